"""Which request goes to which handler. Paths are matched raw, so an object's name may hold any character."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from urllib.parse import parse_qsl, unquote, urlencode, urlsplit

from everstep_sandbox.storage import batch, errors, rights
from everstep_sandbox.storage.access import Access
from everstep_sandbox.storage.buckets import Buckets
from everstep_sandbox.storage.exchange import Request, Response
from everstep_sandbox.storage.faults import Faults
from everstep_sandbox.storage.folders import Folders
from everstep_sandbox.storage.objects import Objects
from everstep_sandbox.storage.uploads import Uploads
from everstep_sandbox.storage.vault import Vault

_BUCKET = r"/storage/v1/b/([^/]+)"
_OBJECT = _BUCKET + r"/o/(.+?)"


_WRITING = frozenset({"object", "copy", "compose"})


class Router:
    """The whole API as one function of a request; knows nothing of the network.

    `counts` tells how often each kind of request came, as "METHOD kind"; parts of a batch count too. `faults` are met
    by the parts of a batch, each as "PART METHOD path?query".
    """

    def __init__(
        self, vault: Vault, run_later: Callable[[Callable[[], None]], None], access: Access | None = None
    ) -> None:
        """Without `access` every caller may do everything."""
        buckets = Buckets(vault, access)
        objects = Objects(vault)
        uploads = Uploads(vault)
        folders = Folders(vault, run_later)
        self.counts: Counter[str] = Counter()
        self.faults = Faults()
        self._buckets = buckets
        self._vault = vault
        self._access = access
        routes: list[tuple[str, str, str, Callable[..., Response]]] = [
            ("GET", "agent", "/storage/v1/projects/([^/]+)/serviceAccount", buckets.agent),
            ("GET", "buckets", "/storage/v1/b", buckets.list_all),
            ("POST", "buckets", "/storage/v1/b", buckets.create),
            ("GET", "bucket", _BUCKET, buckets.get),
            ("PATCH|PUT", "bucket", _BUCKET, buckets.patch),
            ("DELETE", "bucket", _BUCKET, buckets.delete),
            ("GET", "layout", _BUCKET + "/storageLayout", buckets.layout),
            ("GET", "iam", _BUCKET + "/iam", buckets.get_policy),
            ("PUT", "iam", _BUCKET + "/iam", buckets.set_policy),
            ("GET", "permissions", _BUCKET + "/iam/testPermissions", self._test_permissions),
            ("GET", "objects", _BUCKET + "/o", objects.list_page),
            ("POST", "object", "/(?:resumable/)?upload/storage/v1/b/([^/]+)/o", uploads.insert),
            ("PUT", "object", "/(?:resumable/)?upload/storage/v1/b/([^/]+)/o", uploads.resume),
            ("DELETE", "object", "/(?:resumable/)?upload/storage/v1/b/([^/]+)/o", uploads.cancel),
            ("POST", "copy", _OBJECT + "/copyTo/b/([^/]+)/o/(.+)", objects.copy),
            ("POST", "copy", _OBJECT + "/rewriteTo/b/([^/]+)/o/(.+)", objects.rewrite),
            ("POST", "move", _OBJECT + "/moveTo/o/(.+)", objects.move),
            ("POST", "compose", _OBJECT + "/compose", objects.compose),
            ("GET", "object", _OBJECT, objects.get),
            ("PATCH|PUT", "object", _OBJECT, objects.update),
            ("DELETE", "object", _OBJECT, objects.delete),
            ("GET", "object", "/download/storage/v1/b/([^/]+)/o/(.+)", objects.download),
            ("GET", "folders", _BUCKET + "/folders", folders.list_page),
            ("POST", "folders", _BUCKET + "/folders", folders.create),
            ("POST", "rename", _BUCKET + "/folders/(.+?)/renameTo/folders/(.+)", folders.rename),
            ("POST", "deleteRecursive", _BUCKET + "/folders/(.+?)/deleteRecursive", folders.delete_recursive),
            ("GET", "folder", _BUCKET + "/folders/(.+)", folders.get),
            ("DELETE", "folder", _BUCKET + "/folders/(.+)", folders.delete),
            ("GET", "operations", _BUCKET + "/operations", folders.operations),
            ("GET", "operation", _BUCKET + "/operations/([^/]+)", folders.operation),
            ("POST", "batch", "/batch(?:/storage/v1)?", self._batch),
        ]
        self._routes = [
            (method.split("|"), kind, re.compile(pattern), handler) for method, kind, pattern, handler in routes
        ]

    def handle(self, request: Request) -> Response:
        """Raises StorageError for a request that is refused."""
        for methods, kind, pattern, handler in self._routes:
            match = pattern.fullmatch(request.path) if request.method in methods else None
            if match is not None:
                self.counts[f"{request.method} {kind}"] += 1
                parts = tuple(unquote(part) for part in match.groups())
                if self._access is not None:
                    rights.check(self._access, self._vault, request, kind, parts)
                    if kind in _WRITING and request.method in ("POST", "PUT"):
                        self._check_key(parts[2] if kind == "copy" else parts[0])
                return handler(request, *parts)
        self.counts[f"{request.method} unknown"] += 1
        raise errors.StorageError(404, "notFound", f"No such method: {request.method} {request.path}")

    def _check_key(self, bucket: str) -> None:
        """Objects of a bucket with a default key can only be written while Cloud Storage may use it."""
        found = self._vault.index.bucket(bucket)
        if found is not None and self._access is not None:
            self._access.check_key((found.settings.get("encryption") or {}).get("defaultKmsKeyName"))

    def _test_permissions(self, request: Request, bucket: str) -> Response:
        permissions = request.query.get("permissions", "").split("\n")
        return self._buckets.test_permissions(request, bucket, [one for one in permissions if one])

    def _batch(self, request: Request) -> Response:
        return batch.answer(request, self._one_of_batch)

    def _one_of_batch(self, request: Request) -> Response:
        query = urlencode(request.query)
        fault = self.faults.meet(f"PART {request.method} {request.path}{'?' if query else ''}{query}")
        try:
            if fault is not None and fault.status and not fault.after:
                raise fault.error()
            response = self.handle(request)
            if fault is not None and fault.status:
                raise fault.error()
            return response
        except errors.StorageError as refused:
            return Response(refused.status, document=refused.document(), headers=refused.headers)


def split_target(target: str) -> tuple[str, dict[str, str]]:
    """Raw path and query of a request target; values given more than once are joined by line ends."""
    parts = urlsplit(target)
    query: dict[str, str] = {}
    for key, value in parse_qsl(parts.query, keep_blank_values=True):
        query[key] = f"{query[key]}\n{value}" if key in query else value
    return parts.path, query

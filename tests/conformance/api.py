"""Kubernetes as the suite speaks to it: plain requests and watches over the official client's connection."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import urllib3
from kubernetes import client, config

Object = dict[str, Any]

MERGE = "application/merge-patch+json"
JSON = "application/json-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
APPLY = "application/apply-patch+yaml"

_GROUPS = {
    "jobsets": "/apis/jobset.x-k8s.io/v1alpha2",
    "jobs": "/apis/batch/v1",
    "daemonsets": "/apis/apps/v1",
    "priorityclasses": "/apis/scheduling.k8s.io/v1",
    "leases": "/apis/coordination.k8s.io/v1",
}
_REQUEST_SECONDS = 30.0


@dataclass(frozen=True)
class Refusal(Exception):
    """An answer outside of 2xx: its HTTP status and its body, a Status object where the server sent one."""

    code: int
    body: Object

    def __str__(self) -> str:
        return f"HTTP {self.code}: {self.message}"

    @property
    def message(self) -> str:
        return str(self.body.get("message", ""))

    @property
    def reason(self) -> str:
        return str(self.body.get("reason", ""))


def path_of(plural: str, namespace: str | None = None, name: str | None = None, subresource: str | None = None) -> str:
    """The path of a collection, an object or a subresource."""
    parts = [_GROUPS.get(plural, "/api/v1")]
    parts += [f"namespaces/{namespace}"] if namespace else []
    parts += [part for part in (plural, name, subresource) if part]
    return "/".join(parts)


class Stream:
    """The events of one watch; a context manager, so that it is closed."""

    def __init__(self, answer: Any, deadline: float, path: str) -> None:
        self._answer, self._deadline, self._path = answer, deadline, path
        self._events = self._read()
        self._is_cut = False

    def __enter__(self) -> Stream:
        return self

    def __exit__(self, *_: object) -> None:
        self._answer.close()

    def __iter__(self) -> Iterator[Object]:
        return self._events

    def __next__(self) -> Object:
        return next(self._events)

    def cut(self) -> None:
        """Ends it for whoever reads it, from another thread."""
        # First the mark: what a TLS socket still yields after its end is no longer decrypted.
        self._is_cut = True
        # An answer that has ended by itself has no socket any more, which the library takes for a mistake.
        with contextlib.suppress(OSError, ValueError):
            self._answer.shutdown()

    def _read(self) -> Iterator[Object]:
        rest = b""
        try:
            for chunk in self._answer.stream(65536, decode_content=True):
                if self._is_cut:
                    return
                *lines, rest = (rest + chunk).split(b"\n")
                yield from (json.loads(line) for line in lines if line.strip())
                if time.monotonic() > self._deadline:
                    raise TimeoutError(f"watch of {self._path}: its time is up")
        except (urllib3.exceptions.ReadTimeoutError, TimeoutError):
            raise TimeoutError(f"watch of {self._path}: nothing more came") from None
        except urllib3.exceptions.ProtocolError:
            # The stream was cut, by the server or by `cut`: an end like any other.
            return


class Api:
    """One user's requests; usable from several threads."""

    def __init__(self, kubeconfig: Path, **headers: str) -> None:
        configuration = client.Configuration()
        config.load_kube_config(str(kubeconfig), client_configuration=configuration)
        configuration.connection_pool_maxsize = 32
        configuration.retries = 0
        self._client = client.ApiClient(configuration)
        self._headers = {"Accept": "application/json", **{key.replace("_", "-"): text for key, text in headers.items()}}

    def close(self) -> None:
        self._client.close()

    def request(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        content_type: str = "application/json",
        **query: Any,
    ) -> Object:
        """Returns the decoded answer. Raises Refusal."""
        answer = self._call(method, path, body, content_type, query, timeout=_REQUEST_SECONDS)
        found: Object = json.loads(answer.data) if answer.data else {}
        return found

    def get(self, path: str, **query: Any) -> Object:
        return self.request("GET", path, **query)

    def find(self, path: str) -> Object | None:
        """An object, or None where there is none."""
        try:
            return self.get(path)
        except Refusal as refusal:
            if refusal.code != 404:
                raise
            return None

    def items(self, path: str, **query: Any) -> list[Object]:
        found: list[Object] = self.get(path, **query)["items"]
        return found

    def create(self, path: str, body: Object, **query: Any) -> Object:
        return self.request("POST", path, body, **query)

    def patch(self, path: str, body: Any, content_type: str = MERGE, **query: Any) -> Object:
        return self.request("PATCH", path, body, content_type=content_type, **query)

    def delete(self, path: str, **options: Any) -> Object:
        """Options are those of DeleteOptions: propagationPolicy, gracePeriodSeconds, preconditions."""
        return self.request("DELETE", path, options or None)

    def watch(self, path: str, version: str, seconds: float = 20.0, **query: Any) -> Stream:
        """Events after a version, until the server ends the stream; raises TimeoutError after so many seconds."""
        query = {"timeoutSeconds": int(seconds) + 1, **query, "watch": "true", "resourceVersion": version}
        answer = self._call("GET", path, None, "", query, timeout=seconds)
        return Stream(answer, time.monotonic() + seconds, path)

    def wait(
        self,
        path: str,
        holds: Callable[[dict[str, Object]], bool],
        seconds: float = 20.0,
        **query: Any,
    ) -> dict[str, Object]:
        """Watches a collection until `holds` of its objects by name; returns them. Raises AssertionError."""
        deadline = time.monotonic() + seconds
        listing = self.get(path, **query)
        found = {item["metadata"]["name"]: item for item in listing["items"]}
        if holds(found):
            return found
        try:
            with self.watch(path, listing["metadata"]["resourceVersion"], seconds, **query) as events:
                for event in events:
                    name = event["object"]["metadata"]["name"]
                    if event["type"] == "DELETED":
                        found.pop(name, None)
                    else:
                        found[name] = event["object"]
                    if holds(found):
                        return found
                    if time.monotonic() > deadline:
                        break
        except TimeoutError:
            pass
        shown = {name: item.get("status") or item.get("message") for name, item in found.items()}
        raise AssertionError(f"{path} {query}: not within {seconds:g} s; last seen {json.dumps(shown)[:4000]}")

    def _call(self, method: str, path: str, body: Any, content_type: str, query: Object, *, timeout: float) -> Any:
        headers = self._headers | ({"Content-Type": content_type} if body is not None else {})
        try:
            answer = self._client.call_api(
                path,
                method,
                query_params=[(key, str(value)) for key, value in query.items()],
                header_params=headers,
                body=body,
                auth_settings=["BearerToken"],
                _preload_content=False,
                _request_timeout=(10.0, timeout),
            )
        except client.ApiException as failure:
            raise Refusal(failure.status, _decoded(failure.body)) from None
        if not 200 <= answer.status <= 299:
            raise Refusal(answer.status, _decoded(answer.read()))
        return answer


def _decoded(body: Any) -> Object:
    text = body.decode() if isinstance(body, bytes) else str(body or "")
    try:
        found: Object = json.loads(text)
        return found
    except ValueError:
        return {"message": text}

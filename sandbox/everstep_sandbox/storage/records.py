"""What the index knows of buckets, objects, folders and operations, and how each looks as a JSON resource."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote

SEVEN_DAYS_SECONDS = 7 * 24 * 3600

_PLAIN_NAME = re.compile(r"[A-Za-z0-9_.~/-]+")


def now() -> str:
    """The time as Google writes it: RFC 3339, UTC, milliseconds."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%f")[:-3] + "Z"


def _quoted(name: str) -> str:
    """Percent-encoded whole. Most names need no more than their slashes encoded, which is far cheaper."""
    return name.replace("/", "%2F") if _PLAIN_NAME.fullmatch(name) else quote(name, safe="")


@dataclass(frozen=True)
class Bucket:
    """A bucket. `settings` holds what a client may set (labels, lifecycle, soft delete policy, …)."""

    name: str
    hierarchical: bool
    created: str
    updated: str
    metageneration: int
    settings: dict[str, Any]

    def resource(self, base_url: str) -> dict[str, Any]:
        document: dict[str, Any] = {
            "kind": "storage#bucket",
            "id": self.name,
            "name": self.name,
            "selfLink": f"{base_url}/storage/v1/b/{self.name}",
            "projectNumber": "0",
            "generation": "1",
            "metageneration": str(self.metageneration),
            "etag": f"CAE{self.metageneration}",
            "location": "US",
            "locationType": "multi-region",
            "storageClass": "STANDARD",
            "timeCreated": self.created,
            "updated": self.updated,
            "softDeletePolicy": {
                "retentionDurationSeconds": str(SEVEN_DAYS_SECONDS),
                "effectiveTime": self.created,
            },
            "iamConfiguration": {
                "uniformBucketLevelAccess": {"enabled": self.hierarchical},
                "publicAccessPrevention": "inherited",
            },
        }
        if self.hierarchical:
            document["hierarchicalNamespace"] = {"enabled": True}
        document.update(self.settings)
        return document


@dataclass(frozen=True)
class StoredObject:
    """A live object. `content` names its file in the bucket's content directory, `settings` what a client may set."""

    bucket: str
    name: str
    generation: int
    metageneration: int
    size: int
    md5: str | None
    crc32c: str
    created: str
    updated: str
    content: str
    components: int | None = None
    settings: dict[str, Any] = field(default_factory=dict)

    @property
    def etag(self) -> str:
        return f"{self.generation}/{self.metageneration}"

    def resource(self, base_url: str) -> dict[str, Any]:
        path = f"{self.bucket}/o/{_quoted(self.name)}"
        document: dict[str, Any] = {
            "kind": "storage#object",
            "id": f"{self.bucket}/{self.name}/{self.generation}",
            "selfLink": f"{base_url}/storage/v1/b/{path}",
            "mediaLink": f"{base_url}/download/storage/v1/b/{path}?generation={self.generation}&alt=media",
            "name": self.name,
            "bucket": self.bucket,
            "generation": str(self.generation),
            "metageneration": str(self.metageneration),
            "storageClass": "STANDARD",
            "size": str(self.size),
            "crc32c": self.crc32c,
            "etag": self.etag,
            "timeCreated": self.created,
            "updated": self.updated,
            "timeStorageClassUpdated": self.created,
            "timeFinalized": self.created,
        }
        if self.md5 is not None:
            document["md5Hash"] = self.md5
        if self.components is not None:
            document["componentCount"] = self.components
        document.update(self.settings)
        return document


@dataclass(frozen=True)
class Folder:
    """A folder of a hierarchical bucket; its name ends with a slash."""

    bucket: str
    name: str
    created: str
    updated: str
    metageneration: int
    pending_rename: str | None = None

    def resource(self, base_url: str) -> dict[str, Any]:
        document: dict[str, Any] = {
            "kind": "storage#folder",
            "id": f"{self.bucket}/{self.name}",
            "selfLink": f"{base_url}/storage/v1/b/{self.bucket}/folders/{quote(self.name, safe='')}",
            "name": self.name,
            "bucket": self.bucket,
            "metageneration": str(self.metageneration),
            "createTime": self.created,
            "updateTime": self.updated,
        }
        if self.pending_rename is not None:
            document["pendingRenameInfo"] = {"operationId": self.pending_rename}
        return document


@dataclass(frozen=True)
class Operation:
    """A long-running change of folders: `kind` is renameFolder or deleteFolderRecursive."""

    bucket: str
    identifier: str
    kind: str
    source: str
    destination: str | None
    created: str
    done: bool
    response: dict[str, Any] | None = None

    @property
    def name(self) -> str:
        return f"projects/_/buckets/{self.bucket}/operations/{self.identifier}"

    def resource(self, base_url: str) -> dict[str, Any]:
        metadata: dict[str, Any] = {
            "@type": f"type.googleapis.com/google.storage.control.v2.{self.kind[0].upper()}{self.kind[1:]}Metadata",
            "sourceFolderId": self.source,
            "commonMetadata": {
                "createTime": self.created,
                "type": self.kind,
                "progressPercent": 100 if self.done else 0,
            },
        }
        if self.destination is not None:
            metadata["destinationFolderId"] = self.destination
        document: dict[str, Any] = {
            "kind": "storage#operation",
            "name": self.name,
            "selfLink": f"{base_url}/storage/v1/b/{self.bucket}/operations/{self.identifier}",
            "done": self.done,
            "metadata": metadata,
        }
        if self.done:
            document["response"] = self.response or {}
        return document

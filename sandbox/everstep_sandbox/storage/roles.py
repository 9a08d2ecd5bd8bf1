"""Predefined roles of Cloud Storage: the permissions that they hold (https://cloud.google.com/storage/docs/access-control/iam-roles)."""

from __future__ import annotations

import re

_READ = (r"storage\.(objects|folders|managedFolders)\.(get|list)$",)
_USE = (
    *_READ,
    r"storage\.objects\.(create|delete|update|move|restore)$",
    r"storage\.(folders|managedFolders)\.(create|delete|rename)$",
    r"storage\.multipartUploads\.",
)
_LEGACY_READ = (r"storage\.(buckets\.get|objects\.list|folders\.(get|list)|managedFolders\.(get|list))$",)
_LEGACY_WRITE = (
    *_LEGACY_READ,
    r"storage\.objects\.(create|delete|restore)$",
    r"storage\.(folders|managedFolders)\.",
    r"storage\.multipartUploads\.",
)

_ROLES = {
    "roles/storage.objectViewer": _READ,
    "roles/storage.objectCreator": (
        r"storage\.(objects|folders|managedFolders)\.create$",
        r"storage\.multipartUploads\.",
    ),
    "roles/storage.objectUser": _USE,
    "roles/storage.objectAdmin": (r"storage\.(objects|folders|managedFolders|multipartUploads)\.",),
    "roles/storage.folderAdmin": (r"storage\.(folders|managedFolders)\.",),
    "roles/storage.bucketViewer": (r"storage\.buckets\.(get|list)$",),
    "roles/storage.admin": (r"storage\.",),
    "roles/storage.legacyBucketReader": _LEGACY_READ,
    "roles/storage.legacyBucketWriter": _LEGACY_WRITE,
    "roles/storage.legacyBucketOwner": (
        *_LEGACY_WRITE,
        r"storage\.buckets\.(update|getIamPolicy|setIamPolicy)$",
    ),
    "roles/storage.legacyObjectReader": (r"storage\.objects\.get$",),
    "roles/storage.legacyObjectOwner": (r"storage\.objects\.(get|update|getIamPolicy|setIamPolicy)$",),
    "roles/owner": (r"storage\.",),
    "roles/editor": (r"storage\.buckets\.(create|delete|list|get)$",),
    "roles/viewer": (r"storage\.buckets\.list$",),
}


def predefined(role: str, permission: str) -> bool:
    """Whether a predefined role holds a permission; an unknown one holds none."""
    return any(re.match(pattern, permission) for pattern in _ROLES.get(role, ()))

"""Names in cluster files, as Google Cloud and Kubernetes take them: what they would refuse is refused before any call.

Each is a type of text for a model's field. Sources: the naming rules of Resource Manager, GKE and Cloud Storage
(cloud.google.com/storage/docs/buckets#naming), and of Kubernetes objects.
"""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import AfterValidator, Field

from everstep.spec.machine_types import spelt_right

# Letters, digits and '-'; before the organisation-wide ids there were some of a domain, as in example.com:project.
_PROJECT = re.compile(r"(?:[a-z0-9.-]+:)?[a-z][-a-z0-9]{4,28}[a-z0-9]")
_LABEL = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")
_OBJECT = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_BUCKET = re.compile(r"[a-z0-9][a-z0-9._-]{1,220}[a-z0-9]")
_ADDRESS = re.compile(r"\d+\.\d+\.\d+\.\d+")
_MACHINE_TYPE = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)+")
# Of a bucket's name, between dots.
BUCKET_PART_AT_MOST = 63
# Names of Kubernetes objects.
OBJECT_NAME_AT_MOST = 253


def is_project_id(text: str) -> bool:
    """Say whether a text can be a project's id, and is not its number."""
    return _PROJECT.fullmatch(text) is not None


def _project(text: str) -> str:
    if text.isdigit():
        raise ValueError(
            "the project's id, not its number: access would be granted to somebody else "
            "(gcloud projects describe NUMBER --format='value(projectId)')"
        )
    if not is_project_id(text):
        raise ValueError("a project's id: 6 to 30 lower-case letters, digits and '-', beginning with a letter")
    return text


def _label(text: str) -> str:
    if not _LABEL.fullmatch(text):
        raise ValueError("lower-case letters, digits and '-', beginning with a letter, ending with a letter or digit")
    return text


def _object(text: str) -> str:
    if not _OBJECT.fullmatch(text) or len(text) > OBJECT_NAME_AT_MOST:
        raise ValueError(
            "a name that Kubernetes takes: lower-case letters, digits, '-' and '.', beginning and ending with a letter "
            f"or digit, at most {OBJECT_NAME_AT_MOST} characters"
        )
    return text


def _bucket(text: str) -> str:
    if not _BUCKET.fullmatch(text):
        raise ValueError("a bucket name: no gs://, at least 3 of lower-case letters, digits, '-', '_' and '.'")
    if any(not 1 <= len(part) <= BUCKET_PART_AT_MOST for part in text.split(".")):
        raise ValueError(f"a bucket name of at most {BUCKET_PART_AT_MOST} characters, also between two dots")
    if text.startswith("goog") or "google" in text or _ADDRESS.fullmatch(text):
        raise ValueError("a bucket name that is no IP address, does not begin with goog and has no google in it")
    return text


def _machine_type(text: str) -> str:
    if not _MACHINE_TYPE.fullmatch(text):
        raise ValueError("a machine type of Compute Engine, such as ct6e-standard-4t")
    return spelt_right(text)


ProjectId = Annotated[str, AfterValidator(_project)]
"""A project's id, not its number."""
Label = Annotated[str, AfterValidator(_label)]
"""Names of clusters and node pools."""
ObjectName = Annotated[str, AfterValidator(_object)]
"""Names of Kubernetes objects."""
BucketName = Annotated[str, AfterValidator(_bucket)]
"""Names of buckets, without gs://."""
MachineType = Annotated[str, AfterValidator(_machine_type)]
"""Machine types, in the spelling of Compute Engine."""
Given = Annotated[str, Field(min_length=1)]
"""Any text but none."""

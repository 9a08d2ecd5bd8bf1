"""What the project holds, in one JSON document on disk, replaced whole after every change."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

from everstep_sandbox.kubernetes.files import write_atomically

Object = dict[str, Any]

PROJECT = "everstep-sandbox"
NUMBER = "415012345678"
BASE_SERVICES = ("cloudresourcemanager.googleapis.com", "serviceusage.googleapis.com", "storage.googleapis.com")
"""Enabled in a project from its beginning."""


class State:
    """The document: project, services, clusters, operations, IAM policies, custom roles. `save` after a change."""

    def __init__(self, directory: Path, *, project: str = PROJECT, number: str = NUMBER) -> None:
        self.directory = directory
        self._path = directory / "state.json"
        if self._path.exists():
            self.document: Object = json.loads(self._path.read_text(encoding="utf-8"))
        else:
            self.document = {
                "project": project,
                "number": number,
                "services": list(BASE_SERVICES),
                "clusters": {},
                "operations": {},
                "policies": {},
                "roles": {},
                "keys": [],
            }
            self.save()

    def save(self) -> None:
        write_atomically(self._path, json.dumps(self.document, indent=1))

    @property
    def project(self) -> str:
        return str(self.document["project"])

    @property
    def number(self) -> str:
        return str(self.document["number"])

    @property
    def services(self) -> list[str]:
        """Names of the enabled APIs."""
        found: list[str] = self.document["services"]
        return found

    @property
    def clusters(self) -> dict[str, Object]:
        """By `projects/P/locations/L/clusters/C`, each with its node pools."""
        found: dict[str, Object] = self.document["clusters"]
        return found

    @property
    def operations(self) -> dict[str, Object]:
        """By `projects/P/locations/L/operations/O`."""
        found: dict[str, Object] = self.document["operations"]
        return found

    @property
    def policies(self) -> dict[str, Object]:
        """IAM policies by resource name: of the project and of keys."""
        found: dict[str, Object] = self.document["policies"]
        return found

    @property
    def roles(self) -> dict[str, Object]:
        """Custom roles by name."""
        found: dict[str, Object] = self.document["roles"]
        return found


def unique(digits: int = 8) -> str:
    """A random tail of a name."""
    return "".join(random.choices("0123456789abcdef", k=digits))

"""A server of Google's APIs, real clients of it, and a project whose APIs are enabled."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from google.auth.credentials import AnonymousCredentials
from googleapiclient.discovery import build

from everstep_sandbox.google.state import PROJECT
from everstep_sandbox.google.testing import RunningGoogle, running_google

Object = dict[str, Any]


@pytest.fixture
def google(tmp_path: Path) -> Iterator[RunningGoogle]:
    """A server with a project in which nothing but the first few APIs is enabled; operations are quick."""
    with running_google(tmp_path, speed=40) as server:
        yield server


class Discovered:
    """Google's discovery client, on the project's place."""

    parent = f"projects/{PROJECT}/locations/us-east5-a"

    def __init__(self, google: RunningGoogle) -> None:
        self.google = google

    def build(self, api: str, version: str) -> Any:
        return build(
            api,
            version,
            client_options={"api_endpoint": self.google.address},
            credentials=AnonymousCredentials(),
            static_discovery=True,
        )

    def enable(self, *services: str) -> Object:
        body = {"serviceIds": list(services)}
        usage = self.build("serviceusage", "v1").services()
        answer: Object = usage.batchEnable(parent=f"projects/{PROJECT}", body=body).execute()
        return answer

    @property
    def clusters(self) -> Any:
        return self.build("container", "v1").projects().locations().clusters()

    @property
    def operations(self) -> Any:
        return self.build("container", "v1").projects().locations().operations()

    def create(self, **fields: Any) -> Object:
        body = {"cluster": {"name": "tokyo", "initialNodeCount": 2, **fields}}
        answer: Object = self.clusters.create(parent=self.parent, body=body).execute()
        return answer

    def cluster(self, name: str = "tokyo") -> Object:
        found: Object = self.clusters.get(name=f"{self.parent}/clusters/{name}").execute()
        return found

    def done(self, operation: Object) -> Object:
        """The operation when it is DONE."""
        deadline = time.monotonic() + 20
        while operation["status"] != "DONE":
            assert time.monotonic() < deadline, operation
            time.sleep(0.02)
            operation = self.operations.get(name=f"{self.parent}/operations/{operation['name']}").execute()
        return operation


@pytest.fixture
def discovered(google: RunningGoogle) -> Discovered:
    """The discovery client; GKE's API is enabled."""
    made = Discovered(google)
    made.enable("container.googleapis.com")
    return made

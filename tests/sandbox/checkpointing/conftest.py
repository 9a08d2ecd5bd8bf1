"""Nodes with real drivers and replicators over a real storage server."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from everstep_sandbox.checkpointing.scripted_job import JobBackups
from everstep_sandbox.checkpointing.testing import StandaloneNodes, create_bucket
from everstep_sandbox.storage.process import running_storage


@pytest.fixture(scope="session")
def storage_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with running_storage(tmp_path_factory.mktemp("storage")) as url:
        yield url


@pytest.fixture
def bucket(storage_url: str, tmp_path: Path) -> JobBackups:
    name = "".join(letter if letter.isalnum() else "-" for letter in tmp_path.name.lower())[:60].strip("-")
    create_bucket(storage_url, name)
    return JobBackups(storage_url, name)


@pytest.fixture
def nodes(bucket: JobBackups, tmp_path: Path) -> Iterator[StandaloneNodes]:
    with StandaloneNodes(tmp_path / "sandbox", bucket.url, bucket.name, 2) as nodes:
        yield nodes

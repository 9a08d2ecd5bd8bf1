from __future__ import annotations

import pytest

from everstep.checkpoints.layout import RunFolder

FOLDER = RunFolder("bucket", "run")


def test_paths_of_a_run() -> None:
    assert FOLDER.run_record == "run/everstep/run.json"
    assert FOLDER.lease == "run/everstep/lease.json"
    assert FOLDER.status == "run/everstep/status.json"
    assert FOLDER.attempt_node(3, 12, 1) == "run/everstep/attempts/0003-0012/node-1.json"
    assert FOLDER.restore_version == "run/restore.version"
    assert FOLDER.durable_marker(40) == "run/checkpoints/40/commit_success.txt"
    assert FOLDER.backup_prefix("2025-10-22_09-05") == "run/2025-10-22_09-05/"
    assert FOLDER.url() == "gs://bucket/run"
    assert FOLDER.url(FOLDER.durable_step(40)) == "gs://bucket/run/checkpoints/40/"


def test_attempts_sort_as_they_happened() -> None:
    made = [FOLDER.attempt_prefix(launch, restart) for launch in (1, 2, 10) for restart in (0, 9, 10)]
    assert sorted(made) == made


def test_urls_are_parsed() -> None:
    assert RunFolder.from_url("gs://bucket/run/") == FOLDER


@pytest.mark.parametrize("url", ["bucket/run", "s3://bucket/run", "gs://bucket", "gs://bucket/a/b", "gs:///run"])
def test_other_urls_are_refused(url: str) -> None:
    with pytest.raises(ValueError, match="expected"):
        RunFolder.from_url(url)

from __future__ import annotations

import os
from pathlib import Path
from queue import Queue

import pytest

from everstep_trainer import save_requests


@pytest.mark.parametrize(
    ("text", "identifier"),
    [
        ('everstep.dev/save-requested="suspend-7"\n', "suspend-7"),
        ('a="b"\neverstep.dev/save-requested="x=\\"y\\""\nc="d"', 'x="y"'),
        ('everstep.dev/save-requested=""', None),
        ('everstep.dev/save-requested-not="7"', None),
        ("everstep.dev/save-requested=unquoted", None),
        ("", None),
    ],
)
def test_the_annotation(text: str, identifier: str | None) -> None:
    assert save_requests.requested(text) == identifier


def test_changes_are_seen_once_each(tmp_path: Path) -> None:
    """The kubelet swaps a directory behind a link, as here."""
    seen: Queue[str] = Queue()

    def publish(version: int, text: str) -> None:
        directory = tmp_path / f"..version{version}"
        directory.mkdir()
        (directory / "annotations").write_text(text)
        (tmp_path / "..new").symlink_to(directory.name)
        os.replace(tmp_path / "..new", tmp_path / "..data")

    publish(1, "")
    (tmp_path / "annotations").symlink_to("..data/annotations")
    save_requests.watch(tmp_path, seen.put)
    publish(2, 'everstep.dev/save-requested="one"\n')
    assert seen.get(timeout=5) == "one"
    publish(3, 'everstep.dev/save-requested="one"\nother="x"\n')
    publish(4, 'everstep.dev/save-requested="two"\n')
    assert seen.get(timeout=5) == "two"
    assert seen.empty()

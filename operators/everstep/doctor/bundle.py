"""Evidence as a directory of plain JSON files, to be kept, sent and looked at elsewhere. No secrets are in it.

```
manifest.json            version, when it was taken, of what, and what could not be read
objects/<kind>.json      a list of objects
logs/<n>.json            the end of one log: place and text
```
"""

from __future__ import annotations

import json
import os
import shutil
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from everstep.doctor.evidence import KINDS, Evidence, Target
from everstep.doctor.redaction import redacted
from everstep.spec.findings import FindingsError, error

VERSION = 1
MANIFEST = "manifest.json"


def write(evidence: Evidence, directory: Path) -> Path:
    """Write a bundle: aside at first, then renamed, so that it is whole or not there.

    Raises FindingsError when something is there already, or it can't be written.
    """
    refuse_existing(directory)
    directory = directory.absolute()
    clean = redacted(evidence)
    aside = directory.with_name(f".{directory.name}.{os.getpid()}")
    try:
        shutil.rmtree(aside, ignore_errors=True)
        # What is in it is for those who collect it.
        aside.mkdir(mode=0o700, parents=True)
        (aside / "objects").mkdir()
        (aside / "logs").mkdir()
        for kind, found in clean.objects.items():
            _write(aside / "objects" / f"{kind}.json", found)
        for number, (place, text) in enumerate(sorted(clean.logs.items())):
            _write(aside / "logs" / f"{number}.json", {"place": place, "text": text})
        _write(
            aside / MANIFEST,
            {
                "version": VERSION,
                "about": "Collected by `everstep collect`; secrets are removed. Read it by `everstep doctor --bundle`.",
                "taken": clean.taken.isoformat(),
                "target": clean.target.as_dict(),
                "unread": clean.unread,
            },
        )
        aside.replace(directory)
    except OSError as failure:
        shutil.rmtree(aside, ignore_errors=True)
        raise FindingsError(
            "the bundle can't be written",
            [error(str(directory), failure.strerror or str(failure), "a directory to write to", "name another one")],
        ) from failure
    return directory


def refuse_existing(directory: Path) -> None:
    """Raise FindingsError when something is there already."""
    if directory.exists() and (not directory.is_dir() or any(directory.iterdir())):
        raise FindingsError(
            "the bundle can't be written",
            [error(str(directory), "there is something already", "a directory that is not there", "name another one")],
        )


def read(directory: Path) -> Evidence:
    """Return the evidence of a bundle. Raises FindingsError when it is none, or a newer one."""
    evidence = _described(directory, _manifest(directory))
    for path in sorted((directory / "objects").glob("*.json")):
        found = _read(path)
        if path.stem not in KINDS:
            continue
        if isinstance(found, list) and all(isinstance(each, dict) for each in found):
            evidence.objects[path.stem] = found
        else:
            evidence.unread[path.stem] = f"{path.name} of the bundle is no list of objects"
    for path in sorted((directory / "logs").glob("*.json")):
        found = _read(path)
        if isinstance(found, dict) and isinstance(found.get("text"), str):
            evidence.logs[str(found.get("place"))] = found["text"]
    return evidence


def _described(directory: Path, manifest: dict[str, Any]) -> Evidence:
    """Return the evidence that a manifest announces, without objects."""
    try:
        taken = datetime.fromisoformat(manifest["taken"])
        taken = taken if taken.tzinfo is not None else taken.replace(tzinfo=UTC)
        return Evidence(Target.of(manifest["target"]), taken, unread=dict(manifest.get("unread") or {}))
    except (AttributeError, TypeError, ValueError) as mistake:
        raise FindingsError(
            "the bundle can't be read",
            [error(str(directory / MANIFEST), str(mistake), "what `everstep collect` wrote", "collect it again")],
        ) from mistake


def _manifest(directory: Path) -> dict[str, Any]:
    path = directory / MANIFEST
    manifest = _read(path) if path.is_file() else None
    if not isinstance(manifest, dict) or not isinstance(manifest.get("target"), dict) or "taken" not in manifest:
        raise FindingsError(
            "the bundle can't be read",
            [
                error(
                    str(directory),
                    f"no {MANIFEST} of a bundle",
                    "a directory that `everstep collect` wrote",
                    "everstep collect RUN_FILE --to DIRECTORY",
                )
            ],
        )
    if int(manifest.get("version") or 0) > VERSION:
        raise FindingsError(
            "the bundle can't be read",
            [error(str(path), f"version {manifest['version']}", f"version {VERSION} or older", "update everstep")],
        )
    return manifest


def _write(path: Path, content: Any) -> None:
    path.write_text(json.dumps(content, indent=1, sort_keys=True, default=str) + "\n")


def _read(path: Path) -> Any:
    try:
        return json.loads(path.read_text())
    except (OSError, ValueError):
        return None

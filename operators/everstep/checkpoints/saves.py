"""Whether a plain Orbax or PyTorch DCP directory is complete, from what is listed of it. Pure.

Orbax in a bucket writes ``commit_success.txt`` last, into the step's directory and into each item's; only the step's
counts. DCP's coordinator renames ``.metadata`` into place last. A directory without its marker is *unproven* and not
incomplete: a copy made by other tools lacks Orbax's marker too. A DCP directory that was written over by a save that
died keeps its old marker, while its data files are cut off: only their sizes tell.
"""

from __future__ import annotations

import enum
import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

from everstep.checkpoints import dcp_metadata
from everstep.checkpoints.catalogue import ListedObject
from everstep.checkpoints.layout import COMMIT_MARKER

SaveFramework = Literal["orbax", "dcp"]

DCP_MARKER = ".metadata"
DCP_MARKER_IN_FLIGHT = ".metadata.tmp"
DCP_DATA_SUFFIX = ".distcp"
ORBAX_METADATA = "_CHECKPOINT_METADATA"
ORBAX_IN_FLIGHT = ".orbax-checkpoint-tmp"


class SaveState(enum.StrEnum):
    COMPLETE = "complete"
    UNPROVEN = "unproven"
    """No marker: unfinished, or a copy."""
    TORN = "torn"
    """The marker is there, but something that it vouches for is not."""


@dataclass(frozen=True)
class Save:
    """One directory of plain saves. `created` is when its marker was written, or its newest object directly inside."""

    step: int
    framework: SaveFramework
    state: SaveState
    reasons: tuple[str, ...] = ()
    created: datetime | None = None


def judge(step: int, objects: Sequence[ListedObject], folders: Collection[str]) -> Save:
    """Judge a directory by one listing with the delimiter ``/``. `missing_of_orbax`, `missing_of_dcp` look closer."""
    by_name = {item.name: item for item in objects}
    dcp = DCP_MARKER in by_name or any(name.endswith(DCP_DATA_SUFFIX) for name in by_name)
    framework: SaveFramework = "dcp" if dcp and COMMIT_MARKER not in by_name else "orbax"
    marker = by_name.get(DCP_MARKER if framework == "dcp" else COMMIT_MARKER)
    created = [item.created for item in objects if item.created is not None]
    when = marker.created if marker is not None else max(created, default=None)
    if marker is None:
        name = DCP_MARKER if framework == "dcp" else COMMIT_MARKER
        return Save(step, framework, SaveState.UNPROVEN, (f"no {name}",), when)
    reasons = _torn_dcp(by_name) if framework == "dcp" else _torn_orbax(folders)
    return Save(step, framework, SaveState.TORN if reasons else SaveState.COMPLETE, tuple(reasons), when)


def _torn_dcp(by_name: Mapping[str, ListedObject]) -> list[str]:
    reasons = []
    if DCP_MARKER_IN_FLIGHT in by_name:
        reasons.append(f"{DCP_MARKER_IN_FLIGHT} is there: it is being written over")
    data = [item for name, item in by_name.items() if name.endswith(DCP_DATA_SUFFIX)]
    if not data:
        reasons.append(f"no *{DCP_DATA_SUFFIX}")
    reasons += [f"{item.name} is empty" for item in data if item.size == 0]
    return reasons


def _torn_orbax(folders: Collection[str]) -> list[str]:
    reasons = [f"{name} is unfinished" for name in sorted(folders) if name.endswith(ORBAX_IN_FLIGHT)]
    if not folders:
        reasons.append("no item below it")
    return reasons


def orbax_items(metadata: bytes) -> tuple[str, ...] | None:
    """Return the items that ``_CHECKPOINT_METADATA`` names; None when it names none (a single unnamed item)."""
    handlers = _document(metadata).get("item_handlers")
    return tuple(sorted(handlers)) if isinstance(handlers, dict) else None


def orbax_metric(metadata: bytes, name: str) -> float | None:
    """Return a metric that was saved with a step, None when there is none."""
    metrics = _document(metadata).get("metrics")
    value = metrics.get(name) if isinstance(metrics, dict) else None
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def missing_of_orbax(
    items: Sequence[str] | None, folders: Collection[str], inside: Mapping[str, tuple[Collection[str], Collection[str]]]
) -> list[str]:
    """Return what an Orbax directory lacks that its metadata vouches for.

    :param items: what `orbax_items` returned
    :param inside: names of objects and of folders directly inside each item
    """
    missing = [f"item {item} is missing" for item in items or () if item not in folders]
    for item, (objects, subfolders) in sorted(inside.items()):
        if not objects and not subfolders:
            missing.append(f"item {item} is empty")
        ocdbt = [name for name in subfolders if name.startswith("ocdbt.process_")]
        if ocdbt and "manifest.ocdbt" not in objects:
            missing.append(f"{item}/manifest.ocdbt is missing")
    return missing


def missing_of_dcp(metadata: bytes, sizes: Mapping[str, int]) -> list[str]:
    """Return what a DCP directory lacks that its ``.metadata`` vouches for.

    :param sizes: of the objects directly inside it, in bytes
    """
    try:
        named = dcp_metadata.files(metadata)
    except ValueError as torn:
        return [f"{DCP_MARKER} is torn ({torn})"]
    missing = [f"{name} is missing" for name in sorted(named) if name not in sizes]
    missing += [
        f"{name} is cut off: {sizes[name]} of {size} bytes"
        for name, size in sorted(named.items())
        if sizes.get(name, size) < size
    ]
    return missing


def _document(body: bytes) -> dict[str, Any]:
    try:
        document = json.loads(body)
    except ValueError:
        return {}
    return document if isinstance(document, dict) else {}

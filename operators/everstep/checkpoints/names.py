"""File and directory names of multi-tier checkpointing, parsed from the right and matched in full.

A job name may itself contain text such as ``-s1-n2-w3``, so only the last such group counts. Digits are ASCII
digits: ``\\d`` would accept other scripts, which the replicator never writes.

Source of the patterns: the public replicator's file naming and Orbax's multi-tier initialisation.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime

_RANKED = r"(?P<job>[^/]+)-s(?P<step>[0-9]+)-n(?P<node>[0-9]+)-w(?P<worker>[0-9]+)"
_META = re.compile(_RANKED + r"\.meta")
_RESTORE = re.compile(_RANKED + r"\.restore")
_SAVE = re.compile(_RANKED + r"\.save")
_DATA = re.compile(r"(?P<digest>D?[a-z0-9]{64})\.data")
_DIGEST = re.compile(r"D?[a-z0-9]{64}")
_STEP = re.compile(r"[0-9]+")
_BACKUP = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}_[0-9]{2}-[0-9]{2}")
_BACKUP_GLOB = re.compile(r"[^/]{4}-[^/]{2}-[^/]{2}_[^/]{2}-[^/]{2}")

IN_FLIGHT_SUFFIX = ".tmp"
DATA_SUFFIX = ".data"


@dataclass(frozen=True, order=True)
class RankedName:
    """What the name of a ``.meta``, ``.restore`` or ``.save`` entry says."""

    job: str
    step: int
    node: int
    worker: int


MetaName = RankedName
RestoreName = RankedName


def is_meta_name(name: str) -> bool:
    """Whether `parse_meta` can parse a name."""
    return _META.fullmatch(name) is not None


def parse_meta(name: str) -> MetaName | None:
    """Parse ``<job>-s<step>-n<node>-w<worker>.meta``; None for any other name."""
    return _parse(_META, name)


def parse_restore(name: str) -> RestoreName | None:
    """Parse ``<job>-s<step>-n<node>-w<worker>.restore``; None for any other name."""
    return _parse(_RESTORE, name)


def parse_save(name: str) -> RankedName | None:
    """Parse ``<job>-s<step>-n<node>-w<worker>.save``; None for any other name."""
    return _parse(_SAVE, name)


def parse_step(name: str) -> int | None:
    """The step of a directory whose whole name is ASCII digits; None for any other name."""
    return int(name) if _STEP.fullmatch(name) else None


def meta_name(job: str, step: int, node: int, worker: int = 0) -> str:
    """The name of the ``.meta`` entry of one worker of one node."""
    return f"{job}-s{step}-n{node}-w{worker}.meta"


def is_data_name(name: str) -> bool:
    """Whether the name is ``<digest>.data``, that is, finished data and not a copy in flight."""
    return _DATA.fullmatch(name) is not None


def digest_of_data(name: str) -> str | None:
    """The digest in ``<digest>.data``; None for any other name."""
    match = _DATA.fullmatch(name)
    return match["digest"] if match else None


def data_name(digest: str) -> str:
    """The name of the data entry that a ``.meta`` with this body names."""
    return digest + DATA_SUFFIX


def is_in_flight(name: str) -> bool:
    """Whether the name is that of a copy which is not finished (the replicator renames it at the end)."""
    return name.endswith(IN_FLIGHT_SUFFIX)


def parse_backup_directory(name: str) -> datetime | None:
    """The UTC minute that a backup directory is named after; None if the name is not one or not a real
    minute.
    """
    if not _BACKUP.fullmatch(name):
        return None
    try:
        return datetime.strptime(name, "%Y-%m-%d_%H-%M").replace(tzinfo=UTC)
    except ValueError:
        return None


def backup_directory(minute: datetime) -> str:
    """The directory name of a backup asked for at this time (aware; written in UTC)."""
    return minute.astimezone(UTC).strftime("%Y-%m-%d_%H-%M")


def looks_like_backup(name: str) -> bool:
    """Whether the replicator's own pattern (``????-??-??_??-??``) takes the directory for a backup."""
    return _BACKUP_GLOB.fullmatch(name) is not None


def _parse(pattern: re.Pattern[str], name: str) -> RankedName | None:
    match = pattern.fullmatch(name)
    if match is None:
        return None
    return RankedName(match["job"], int(match["step"]), int(match["node"]), int(match["worker"]))

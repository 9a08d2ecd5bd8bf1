"""``run.json``: what the launcher decided about the run, read once at the start of every process."""

from __future__ import annotations

import json
from dataclasses import dataclass

from everstep_trainer.errors import ConfigurationError, StartRefused
from everstep_trainer.settings import Settings

VERSION = 1


@dataclass(frozen=True)
class RunRecord:
    """The launcher's record. ``known`` is False where there was none: a run with unknown history."""

    known: bool = False
    lineage: str = ""
    launch: int = 0
    nodes: int | None = None
    data_parallelism: int | None = None
    allow_fresh_start: bool = False
    bound_step: int | None = None
    quarantined: tuple[str, ...] = ()

    @classmethod
    def parse(cls, content: bytes, where: str) -> RunRecord:
        """Read the record. Raises ConfigurationError if it is not one that this library understands."""
        try:
            record = json.loads(content)
            if record["version"] != VERSION:
                raise ConfigurationError(
                    f"{where}: version {record['version']}, expected {VERSION}; update the library in the image"
                )
            bound = record.get("bound_step")
            return cls(
                known=True,
                lineage=str(record["lineage"]),
                launch=int(record["launch"]),
                nodes=int(record["nodes"]),
                data_parallelism=int(record["data_parallelism"]),
                allow_fresh_start=record.get("allow_fresh_start") is True,
                bound_step=None if bound is None else int(bound),
                quarantined=tuple(str(name) for name in record.get("quarantined", ())),
            )
        except (ValueError, KeyError, TypeError) as error:
            raise ConfigurationError(f"{where}: not a run record ({error!r}); launch the run again") from error

    def check(self, settings: Settings, where: str) -> None:
        """Refuse before the replicator hears of us: with another shape it would find nothing and clear all RAM disks.

        :raises StartRefused: if the record is of another launch or another shape
        """
        if not self.known:
            return
        of_launches = f"{where} is of launch {self.launch}, this pod is of launch {settings.launch}"
        if self.launch > settings.launch:
            raise StartRefused(f"{of_launches}: a newer JobSet has taken the run over; delete this one")
        if self.launch < settings.launch:
            raise StartRefused(
                f"{of_launches}: the launcher writes it before it makes a JobSet, so its bound and lineage may be "
                "out of date; launch the run again"
            )
        found = (settings.nodes, settings.data_parallelism)
        if found != (self.nodes, self.data_parallelism):
            raise StartRefused(
                f"{where} says nodes {self.nodes} and data parallelism {self.data_parallelism}, the pod's "
                f"environment says {found[0]} and {found[1]}: the replicator would restore nothing; launch it again"
            )

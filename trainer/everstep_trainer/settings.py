"""What the launcher tells a training process, read from its environment and checked all at once."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from everstep.checkpoints.layout import RunFolder
from everstep_trainer.errors import ConfigurationError

_Value = TypeVar("_Value")

FRAMEWORKS = ("orbax", "pytorch.distributed")


@dataclass(frozen=True)
class Settings:
    """The settings of one training process. Every field comes from the environment variable named beside it."""

    run: str
    """EVERSTEP_RUN: job-name of the replicator and folder in the bucket."""
    folder: RunFolder
    """EVERSTEP_RUN_URL: gs://bucket/run."""
    launch: int
    """EVERSTEP_LAUNCH: number of this JobSet of the run, from 1."""
    restart: int
    """EVERSTEP_RESTART_ATTEMPT: how often the JobSet controller has restarted it, from 0."""
    slices: int
    """EVERSTEP_SLICES."""
    nodes_per_slice: int
    """EVERSTEP_NODES_PER_SLICE."""
    workers_per_node: int
    """EVERSTEP_WORKERS_PER_NODE, default 1."""
    data_parallelism: int
    """EVERSTEP_DATA_PARALLELISM: groups of nodes over which state is replicated; default: slices."""
    slice_index: int
    """EVERSTEP_SLICE_INDEX: index of the pod's Job. It is not the rank: a moved node keeps its rank."""
    node_index: int
    """EVERSTEP_NODE_INDEX: completion index within the Job."""
    directory: Path
    """EVERSTEP_CHECKPOINT_DIR: where the checkpoint volume is mounted, default /local."""
    local_every_steps: int
    """EVERSTEP_LOCAL_EVERY_STEPS: steps between saves to the RAM disk."""
    backup_every_minutes: float
    """EVERSTEP_BACKUP_EVERY_MINUTES: minutes between the replicator's backups."""
    durable_at_end: bool
    """EVERSTEP_DURABLE_AT_END, default true."""
    durable_every_hours: float | None
    """EVERSTEP_DURABLE_EVERY_HOURS; empty: only at the end and on request."""
    final_step: int | None
    """EVERSTEP_FINAL_STEP; empty: unknown."""
    framework: str
    """EVERSTEP_FRAMEWORK, default orbax."""
    pod_info: Path | None
    """EVERSTEP_POD_INFO: downward API volume with the pod's annotations and labels; empty: none."""
    handshake_seconds: float
    """EVERSTEP_HANDSHAKE_SECONDS: one deadline for everything until training may start, default 900."""
    pod: str
    """EVERSTEP_POD_NAME, for reports."""
    node: str
    """EVERSTEP_NODE_NAME, for reports."""

    @property
    def nodes(self) -> int:
        return self.slices * self.nodes_per_slice

    @classmethod
    def from_environment(cls, environment: Mapping[str, str]) -> Settings:
        """Read and check all settings. Raises ConfigurationError with every finding."""
        reader = _Reader(environment)
        slices = reader.integer("EVERSTEP_SLICES", minimum=1)
        settings = cls(
            run=reader.text("EVERSTEP_RUN"),
            folder=reader.value("EVERSTEP_RUN_URL", RunFolder.from_url, RunFolder("unknown", "unknown")),
            launch=reader.integer("EVERSTEP_LAUNCH", minimum=1),
            restart=reader.integer("EVERSTEP_RESTART_ATTEMPT", minimum=0),
            slices=slices,
            nodes_per_slice=reader.integer("EVERSTEP_NODES_PER_SLICE", minimum=1),
            workers_per_node=reader.integer("EVERSTEP_WORKERS_PER_NODE", minimum=1, default=1),
            data_parallelism=reader.integer("EVERSTEP_DATA_PARALLELISM", minimum=1, default=slices),
            slice_index=reader.integer("EVERSTEP_SLICE_INDEX", minimum=0),
            node_index=reader.integer("EVERSTEP_NODE_INDEX", minimum=0),
            directory=Path(reader.text("EVERSTEP_CHECKPOINT_DIR", "/local")),
            local_every_steps=reader.integer("EVERSTEP_LOCAL_EVERY_STEPS", minimum=1),
            backup_every_minutes=reader.positive("EVERSTEP_BACKUP_EVERY_MINUTES", 30.0),
            durable_at_end=reader.boolean("EVERSTEP_DURABLE_AT_END", True),
            durable_every_hours=reader.optional_positive("EVERSTEP_DURABLE_EVERY_HOURS"),
            final_step=reader.optional_integer("EVERSTEP_FINAL_STEP", minimum=1),
            framework=reader.text("EVERSTEP_FRAMEWORK", "orbax"),
            pod_info=reader.optional_path("EVERSTEP_POD_INFO"),
            handshake_seconds=reader.positive("EVERSTEP_HANDSHAKE_SECONDS", 900.0),
            pod=reader.text("EVERSTEP_POD_NAME", "unknown"),
            node=reader.text("EVERSTEP_NODE_NAME", "unknown"),
        )
        findings = reader.findings or _contradictions(settings)
        if findings:
            raise ConfigurationError(*findings)
        return settings


def _contradictions(settings: Settings) -> list[str]:
    findings = []
    if settings.folder.run != settings.run:
        findings.append(
            f"EVERSTEP_RUN_URL ends in {settings.folder.run!r}, but EVERSTEP_RUN is {settings.run!r}: the replicator "
            "backs up below its job-name, so both must be the same"
        )
    if settings.nodes % settings.data_parallelism:
        findings.append(
            f"EVERSTEP_DATA_PARALLELISM is {settings.data_parallelism}, which does not divide {settings.nodes} nodes: "
            "the replicator would infer nothing and back up only some of the data; choose a divisor"
        )
    if settings.framework not in FRAMEWORKS:
        findings.append(f"EVERSTEP_FRAMEWORK is {settings.framework!r}, expected one of {', '.join(FRAMEWORKS)}")
    if settings.workers_per_node != 1:
        findings.append(
            f"EVERSTEP_WORKERS_PER_NODE is {settings.workers_per_node}: this library runs one process per node, set 1"
        )
    return findings


class _Reader:
    """Reads variables and collects findings instead of stopping at the first."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._environment = environment
        self.findings: list[str] = []

    def value(self, name: str, parse: Callable[[str], _Value], fallback: _Value, *, required: bool = True) -> _Value:
        text = self._environment.get(name, "").strip()
        if not text:
            if required:
                self.findings.append(f"{name} is not set: the launcher sets it; is the pod started by Everstep?")
            return fallback
        try:
            return parse(text)
        except ValueError as error:
            self.findings.append(f"{name} is {text!r}: {error}")
            return fallback

    def text(self, name: str, default: str | None = None) -> str:
        return self.value(name, str, default or "", required=default is None)

    def integer(self, name: str, *, minimum: int, default: int | None = None) -> int:
        fallback = minimum if default is None else default
        return self.value(name, lambda text: _integer(text, minimum), fallback, required=default is None)

    def optional_integer(self, name: str, *, minimum: int) -> int | None:
        parsed: int | None = self.value(name, lambda text: _integer(text, minimum), -1, required=False)
        return None if parsed == -1 else parsed

    def positive(self, name: str, default: float) -> float:
        return self.value(name, _positive, default, required=False)

    def optional_positive(self, name: str) -> float | None:
        parsed = self.value(name, _positive, 0.0, required=False)
        return parsed or None

    def boolean(self, name: str, default: bool) -> bool:
        return self.value(name, _boolean, default, required=False)

    def optional_path(self, name: str) -> Path | None:
        text = self.text(name, "")
        return Path(text) if text else None


def _integer(text: str, minimum: int) -> int:
    if not text.isascii() or not text.isdigit() or int(text) < minimum:
        raise ValueError(f"expected a whole number of at least {minimum}")
    return int(text)


def _positive(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        raise ValueError("expected a number above 0") from None
    if not math.isfinite(number) or number <= 0:
        raise ValueError("expected a number above 0")
    return number


def _boolean(text: str) -> bool:
    if text not in ("true", "false"):
        raise ValueError("expected true or false")
    return text == "true"

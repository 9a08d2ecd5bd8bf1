"""The handshake with the node's replicator, from the rank file to the restore marker, under one deadline.

1. wait for ``jax-init-info.txt``: rank and coordinator
2. let a stale ``replicator.yaml`` be consumed, or replace it
3. write ``replicator.yaml`` aside and rename it
4. wait until it is gone: the replicator has read it and cleaned up
5. wait for the ``.restore`` marker: every node has its data

``replicator.failed`` is fatal and ``replicator.errors`` is only logged, both only if written after our
configuration: the replicator writes errors at every ordinary restart, and cleans old ones up only when it
accepts a configuration.
"""

from __future__ import annotations

import logging
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from everstep_trainer import checkpoint_directory, restore_point
from everstep_trainer.checkpoint_directory import CONFIG, ERRORS, FAILED, INIT_INFO, FileIdentity
from everstep_trainer.errors import ConfigurationError, HandshakeFailed
from everstep_trainer.replicator_config import ReplicatorConfig
from everstep_trainer.restore_point import RestorePoint
from everstep_trainer.waiting import Deadline, wait_for

logger = logging.getLogger(__name__)

_Found = TypeVar("_Found")

STALE_SHARE = 0.2
"""Share of the deadline that a stale configuration of an earlier attempt gets before it is replaced."""


@dataclass(frozen=True)
class InitInfo:
    """Rank of this node and ``ip:port`` of the coordinator, from the cluster's rank server."""

    rank: int
    coordinator: str

    @property
    def coordinator_host(self) -> str:
        return self.coordinator.rpartition(":")[0]


class Handshake:
    """One attempt's handshake on one node. Make it before anything waits: it notes what was there before."""

    def __init__(self, directory: Path, job: str, deadline: Deadline) -> None:
        if not directory.is_dir():
            raise ConfigurationError(
                f"checkpoint directory {directory} is not there: mount the multi-tier checkpoint volume at it, or set "
                "EVERSTEP_CHECKPOINT_DIR"
            )
        self._directory = directory
        self._job = job
        self._deadline = deadline
        self._data_before = checkpoint_directory.data_names(directory)
        self._before: dict[str, FileIdentity | None] = {}
        self._warned: FileIdentity | None = None

    def init_info(self) -> InitInfo:
        """Wait for the rank file. It is renamed into place, so what is there is whole."""
        path = self._directory / INIT_INFO
        text = wait_for(self._directory, lambda: checkpoint_directory.read_text(path), self._deadline)
        if text is None:
            raise HandshakeFailed(
                f"{path} did not appear within {self._deadline.seconds:g} s: the rank server assigns ranks once all "
                "pods of the attempt run; look for pending pods and at the checkpoint driver of this node"
            )
        lines = text.split("\n")
        rank = lines[0].strip()
        coordinator = lines[1].strip() if len(lines) > 1 else ""
        host, _, port = coordinator.rpartition(":")
        if not rank.isdigit() or not host or not port.isdigit():
            raise HandshakeFailed(f"{path} holds {text!r}, expected a rank and a coordinator ip:port on two lines")
        return InitInfo(int(rank), coordinator)

    def hand_over(self, config: ReplicatorConfig) -> None:
        """Write the configuration in one piece, after a stale one was consumed or has had its share of the
        time.
        """
        path = self._directory / CONFIG
        if path.exists():
            logger.info("%s of an earlier attempt is there; waiting until the replicator has read it", path)
            consumed = wait_for(
                self._directory, lambda: None if path.exists() else True, self._deadline, share=STALE_SHARE
            )
            if consumed is None:
                logger.warning("%s was not read for %.0f s; replacing it", path, self._deadline.elapsed)
        self._before = {name: checkpoint_directory.identity(self._directory / name) for name in (ERRORS, FAILED)}
        aside = self._directory / (CONFIG + ".tmp")
        with aside.open("w", encoding="utf-8") as file:
            file.write(config.to_yaml())
            file.flush()
            os.fsync(file.fileno())
        os.replace(aside, path)

    def restore_point(self) -> RestorePoint:
        """Wait until the replicator accepted the configuration and put the restore marker there."""
        path = self._directory / CONFIG
        accepted = wait_for(
            self._directory, lambda: self._unless_failed(None if path.exists() else True), self._deadline
        )
        if accepted is None:
            raise HandshakeFailed(
                f"{path} was not read within {self._deadline.seconds:g} s: is the checkpoint driver of this node ready?"
            )
        logger.info("the replicator accepted the configuration after %.2f s", self._deadline.elapsed)
        point = wait_for(
            self._directory,
            lambda: self._unless_failed(restore_point.discover(self._directory, self._job, self._data_before)),
            self._deadline,
        )
        if point is None:
            raise HandshakeFailed(
                f"no .restore marker in {self._directory} within {self._deadline.seconds:g} s: the replicator waits "
                "for every node and copies from peers or the bucket; look at the replicators' logs"
            )
        for name in point.foreign:
            logger.warning("%s is no marker of run %s; ignored", self._directory / name, self._job)
        return point

    def _unless_failed(self, found: _Found) -> _Found:
        self._warn_of_errors()
        path = self._directory / FAILED
        identity = checkpoint_directory.identity(path)
        if identity is not None and identity != self._before.get(FAILED):
            text = (checkpoint_directory.read_text(path) or "").strip()
            raise HandshakeFailed(f"the replicator failed: {text or path}")
        return found

    def _warn_of_errors(self) -> None:
        path = self._directory / ERRORS
        identity = checkpoint_directory.identity(path)
        if identity is None or identity in (self._before.get(ERRORS), self._warned):
            return
        self._warned = identity
        for line in (checkpoint_directory.read_text(path) or "").splitlines():
            logger.warning("replicator: %s", line)

"""The coordinator of one attempt of a job: chooses the step to restore, sees replication, asks for backups.

Forked by the replicator of node rank 0; its timer for backups starts with it and is kept nowhere.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from dataclasses import dataclass, field
from pathlib import Path

from everstep_sandbox.checkpointing import completeness, log, names
from everstep_sandbox.checkpointing.bucket import JobFolder
from everstep_sandbox.checkpointing.completeness import Candidates, Shape
from everstep_sandbox.checkpointing.config import Config
from everstep_sandbox.checkpointing.log import logger
from everstep_sandbox.checkpointing.messages import NO_CHECKPOINT, Link, Message, listen
from everstep_sandbox.checkpointing.registry import Registry

_BIND_SECONDS = 15.0


@dataclass(frozen=True)
class Choice:
    """The step to restore (None: none; 0: found, yet never restored), from a backup or from the cluster."""

    step: int | None
    backup: str | None = None
    hashes: dict[tuple[int, int], str] = field(default_factory=dict)


class Coordinator:
    """Hears every node; answers when all have spoken."""

    def __init__(self, config: Config, folder: JobFolder, registry: Registry) -> None:
        self._config = config
        self._shape = Shape(config.nodes, config.workers, config.data_parallelism)
        self._folder = folder
        self._registry = registry
        self._last_backup = time.monotonic()
        self._restoring = True
        self._synced = False
        self._restores: dict[int, tuple[Link, Message]] = {}
        self._done: dict[int, Link] = {}
        self._syncs: dict[int, tuple[Link, Message]] = {}
        self._turn = asyncio.Lock()

    async def serve(self, link: Link) -> None:
        """Hears one node until it goes."""
        while True:
            message = await link.receive()
            async with self._turn:
                handle = {"restore": self._restore, "restore-done": self._restore_done, "sync": self._sync}
                await handle[message["kind"]](link, message)

    async def _restore(self, link: Link, message: Message) -> None:
        rank = message["rank"]
        if not 0 <= rank < self._config.nodes:
            logger.error("NodeRanks are not 0..%s: node %s registered", self._config.nodes - 1, rank)
            await link.send({"error": f"rank {rank} is not below {self._config.nodes}"})
            return
        self._restores[rank] = (link, message)
        if len(self._restores) < self._config.nodes:
            return
        choice = await asyncio.to_thread(self._choose)
        exports = {str(rank): message["export"] for rank, (_, message) in self._restores.items()}
        holders: dict[str, list[int]] = {}
        for rank, (_, message) in self._restores.items():
            for digest in message["data"]:
                holders.setdefault(digest, []).append(rank)
        # None of the nodes says restore-done when there is nothing to restore. A step 0 that validated is
        # announced as nothing too, but waited for: the real coordinator never leaves that state either.
        self._restoring = choice.step is not None
        for rank, (node, _) in self._restores.items():
            hashes = {str(worker): choice.hashes.get((rank, worker)) for worker in range(self._config.workers)}
            answer = {
                "step": choice.step or NO_CHECKPOINT,
                "backup": choice.backup,
                "hashes": hashes,
                "holders": {digest: holders.get(digest, []) for digest in hashes.values() if digest},
                "exports": exports,
            }
            with contextlib.suppress(ConnectionError):
                await node.send(answer)
        await asyncio.to_thread(self._registry.remove, self._config.job)

    async def _restore_done(self, link: Link, message: Message) -> None:
        self._done[message["rank"]] = link
        if len(self._done) < self._config.nodes:
            return
        self._restoring = False
        for node in self._done.values():
            with contextlib.suppress(ConnectionError):
                await node.send({"kind": "restore-done"})
        logger.info("Restore complete. Sent 'restore-done' responses to %s Nodes", len(self._done))
        self._done.clear()

    async def _sync(self, link: Link, message: Message) -> None:
        if self._restoring:
            await link.send({"error": "sync came before the restore was done"})
            return
        self._syncs[message["rank"]] = (link, message)
        if len(self._syncs) < self._config.nodes:
            return
        syncs, self._syncs = self._syncs, {}
        steps = {message["step"] for _, message in syncs.values()}
        if len(steps) != 1:
            raise AssertionError(f"Nodes report different steps: {sorted(steps)}")
        step = steps.pop()
        uploading = [rank for rank, (_, message) in syncs.items() if message["uploading"]]
        backup = await asyncio.to_thread(self._backup, step, uploading)
        for node, _ in syncs.values():
            with contextlib.suppress(ConnectionError):
                await node.send({"replicated-step": step, "backup": backup})

    def _choose(self) -> Choice:
        forced = self._folder.read(names.FORCED_RESTORE)
        if forced is not None:
            backup = forced.decode().strip()
            logger.info("Forcing restore from backup version '%s'", backup)
            found = self._valid_in_backup(backup)
            if found is not None:
                return found
            logger.error("No valid checkpoints found anywhere")
            return Choice(None)
        metas: dict[tuple[int, int, int], str] = {}
        data: set[str] = set()
        for _, message in self._restores.values():
            data.update(message["data"])
            for name, digest in message["metas"].items():
                member = names.parse(name)
                if member is not None:
                    metas[member.step, member.node, member.worker] = digest
        candidates = Candidates(metas, data)
        in_cluster = self._chosen(candidates, None)
        if in_cluster.step is not None:
            # A step 0 too: it hides the backups, and in the end counts as no checkpoint.
            logger.info("We will restore in-cluster checkpoint: %s", in_cluster.step)
            return in_cluster
        logger.warning("No valid checkpoints found in the cluster, trying backups")
        for backup in self._backups():
            found = self._valid_in_backup(backup)
            if found is not None:
                return found
        logger.error("No valid checkpoints found anywhere")
        return Choice(None)

    def _backups(self) -> list[str]:
        """Newest first."""
        _, folders = self._folder.list("")
        return sorted((name for name in folders if names.BACKUP_DIRECTORY.fullmatch(name)), reverse=True)

    def _valid_in_backup(self, backup: str) -> Choice | None:
        logger.info("Considering backup: %s", backup)
        objects, folders = self._folder.list(f"{backup}/")
        metas = {}
        for name in objects:
            member = names.parse(name)
            if member is not None and member.kind == "meta" and member.job == self._config.job:
                body = self._folder.read(f"{backup}/{name}")
                if body is not None:
                    metas[member.step, member.node, member.worker] = body.decode().strip()
        matches = (names.DATA.fullmatch(name) for name in (*objects, *folders))
        candidates = Candidates(metas, {match.group(1) for match in matches if match is not None})
        choice = self._chosen(candidates, backup)
        if not choice.step:
            return None
        logger.info("We will restore checkpoint %s from backup %s", choice.step, backup)
        return choice

    def _chosen(self, candidates: Candidates, backup: str | None) -> Choice:
        step = completeness.newest_valid(candidates, self._shape, logger.error)
        if step is None:
            return Choice(None)
        hashes = completeness.complete(candidates, step, self._shape, logger.error) or {}
        return Choice(step, backup, hashes)

    def _backup(self, step: int, uploading: list[int]) -> str | None:
        """The name of the backup to make of a globally replicated step, None for none."""
        if not self._synced:
            self._synced = True
            # Whenever it was written: one that came after the restore is lost unseen.
            if self._folder.read(names.FORCED_RESTORE) is not None:
                logger.info("Deleting forced restore file %s/%s", self._config.job, names.FORCED_RESTORE)
                self._folder.delete(names.FORCED_RESTORE)
        if self._config.backup_interval_minutes is None:
            raise KeyError("backup-interval-minutes")
        if time.monotonic() - self._last_backup < self._config.backup_interval_minutes * 60:
            return None
        if uploading:
            logger.error(
                "Backup should be requested for step %s, but skipping it because some Nodes are still uploading: %s",
                step,
                sorted(uploading),
            )
            return None
        self._last_backup = time.monotonic()
        backup = time.strftime("%Y-%m-%d_%H-%M", time.gmtime())
        self._folder.make_folder(f"{backup}/")
        logger.info("Requesting Nodes to backup step %s to %s", step, backup)
        return backup


async def run(config: Config, address: str, folder: JobFolder, registry: Registry) -> None:
    """Listens on the node's address and registers, so that the job's nodes find it; ends with an error only."""
    coordinator = Coordinator(config, folder, registry)
    failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def serve(link: Link) -> None:
        try:
            await coordinator.serve(link)
        except ConnectionError:
            raise
        except Exception as problem:
            if not failed.done():
                failed.set_exception(problem)

    deadline = time.monotonic() + _BIND_SECONDS
    while True:
        try:
            server = await listen(address, config.port, serve)
            break
        except OSError:
            # The coordinator of the attempt before may be just going.
            if time.monotonic() > deadline:
                raise
            await asyncio.sleep(0.05)
    async with server:
        await asyncio.to_thread(registry.put, config.job, address, config.port)
        await failed


def main(config: Config, address: str, folder: JobFolder, registry: Registry, directory: Path) -> None:
    """The forked process; never returns. An error is CRITICAL: it ends up in `replicator.failed`."""
    log.set_up(directory, config.job, config.rank, config.nodes)
    try:
        asyncio.run(run(config, address, folder, registry))
    except BaseException as problem:
        logger.critical("Coordinator failed: %s: %s", type(problem).__name__, problem, exc_info=True)
    os._exit(1)

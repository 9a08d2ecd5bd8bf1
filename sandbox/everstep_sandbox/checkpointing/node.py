"""One node's work for one config: it restores, then hashes, replicates and backs up what the job saves."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections import defaultdict
from pathlib import Path

from everstep_sandbox.checkpointing import config as configuration
from everstep_sandbox.checkpointing import digest, inotify, names
from everstep_sandbox.checkpointing.backup import BackupThread
from everstep_sandbox.checkpointing.bucket import JobFolder
from everstep_sandbox.checkpointing.config import Config
from everstep_sandbox.checkpointing.inotify import Event, Inotify
from everstep_sandbox.checkpointing.log import logger
from everstep_sandbox.checkpointing.messages import Link, Message
from everstep_sandbox.checkpointing.names import Member
from everstep_sandbox.checkpointing.ramdisk import RamDisk, remove
from everstep_sandbox.checkpointing.registry import Registry
from everstep_sandbox.checkpointing.restoring import Restoration

_PEER_PAUSE_SECONDS = 1.0


class Node:
    """Ended by a new config, which it answers with the end of the process."""

    def __init__(self, config: Config, disk: RamDisk, events: Inotify, folder: JobFolder, registry: Registry) -> None:
        self._config = config
        self._disk = disk
        self._events = events
        self._restoration = Restoration(config, disk, folder, registry)
        self._backup = BackupThread(folder, disk.client, uploads_data=config.uploads_data)
        self._saved: asyncio.Queue[int] = asyncio.Queue()
        self._workers_saved: dict[int, set[int]] = defaultdict(set)
        self._peers: list[Path] = []
        self._peers_changed = asyncio.Event()

    async def run(self) -> None:
        """Never returns; any error that leaves it is fatal."""
        asyncio.get_running_loop().add_reader(self._events.descriptor, self.see_events)
        restored = await self._restoration.run()
        self._peers = self._disk.mount_peers(restored.exports[str(peer)] for peer in self._config.peers)
        for peer in self._peers:
            self._events.watch(peer)
        while True:
            step = await self._saved.get()
            own = await asyncio.to_thread(self._hash, step)
            await self._replicate(step)
            answer = await self._sync(restored.link, step)
            replicated = answer["replicated-step"]
            logger.info("All files were replicated globally for step %s", replicated)
            if answer["backup"]:
                self._backup.start(replicated, answer["backup"], own)
            self._disk.collect_garbage(self._config.job, self._kept(replicated, self._backup.step))

    def see_events(self) -> None:
        """Meets what happened in the watched directories; a new config ends the process."""
        for event in self._events.read():
            if event.directory != self._disk.client:
                self._peers_changed.set()
            elif event.mask & inotify.DELETE_SELF:
                os._exit(1)
            elif event.name == names.CONFIG:
                # The event of the config that is being served may come late; that file is gone by now.
                if not event.mask & inotify.CREATE and (self._disk.client / names.CONFIG).exists():
                    self._end_for_new_config()
            else:
                self._see_save(event)

    def _end_for_new_config(self) -> None:
        logger.error("New config '%s' detected. Terminating.", self._disk.client / names.CONFIG)
        os._exit(0)

    def _see_save(self, event: Event) -> None:
        """A directory whose whole name is digits is a save of Orbax or torch.distributed, taken at once."""
        if self._config.framework == configuration.PYTORCH:
            member = names.parse(event.name)
            if member is not None and member.kind == "save" and not event.mask & inotify.CREATE:
                self._workers_saved[member.step].add(member.worker)
                if len(self._workers_saved[member.step]) == self._config.workers:
                    self._saved.put_nowait(member.step)
            return
        # A restored step's marker is renamed to the bare step too; being a link it is no directory.
        appeared = event.mask & (inotify.CREATE | inotify.MOVED_TO) and event.mask & inotify.IS_DIRECTORY
        if appeared and names.STEP_DIRECTORY.fullmatch(event.name):
            step = int(event.name)
            save = self._disk.client / self._own(step, 0, "save").name
            remove(save)
            with contextlib.suppress(FileNotFoundError):  # The clean-up at the start came before the event.
                (self._disk.client / event.name).rename(save)
                self._saved.put_nowait(step)

    def _kept(self, replicated: int, uploading: int | None) -> set[int]:
        """A node that uploads for its whole data-parallel column gives the newest step up meanwhile: others hold it."""
        if uploading is None:
            return {replicated}
        if self._config.data_parallelism is not None and self._config.uploads_data:
            return {uploading}
        return {replicated, uploading}

    def _hash(self, step: int) -> dict[Member, str]:
        """Turns the saves of a step into data and metas; returns this node's metas."""
        metas = {}
        for worker in range(self._config.workers):
            save = self._disk.client / self._own(step, worker, "save").name
            if not save.exists() and self._config.framework != configuration.PYTORCH:
                continue
            found = digest.digest(save, self._config.framework)
            data = self._disk.client / names.data_name(found)
            if data.exists():
                logger.error(
                    "New step %s has the same hash %s as previous step. Deleted the new data: "
                    "training is not making progress",
                    step,
                    found,
                )
                remove(save)
            else:
                save.rename(data)
            meta = self._own(step, worker, "meta")
            self._disk.write_meta(meta, found)
            metas[meta] = found
        logger.info("All .save files are hashed for step %s", step)
        return metas

    async def _replicate(self, step: int) -> None:
        """Waits, with no deadline, for each peer's metas of the step and copies them; data too unless assumed equal."""
        for peer, directory in zip(self._config.peers, self._peers, strict=True):
            for worker in range(self._config.workers):
                meta = Member(self._config.job, step, peer, worker, "meta")
                while True:
                    self._peers_changed.clear()
                    if await asyncio.to_thread(self._copy_from_peer, directory, meta):
                        break
                    with contextlib.suppress(TimeoutError):
                        async with asyncio.timeout(_PEER_PAUSE_SECONDS):
                            await self._peers_changed.wait()

    def _copy_from_peer(self, directory: Path, meta: Member) -> bool:
        """False while the peer does not have it (or, restarting, has it no more)."""
        try:
            found = (directory / meta.name).read_text().strip()
            if self._config.data_parallelism is None:
                self._disk.take(directory / names.data_name(found), found)
        except FileNotFoundError:
            return False
        self._disk.write_meta(meta, found)
        return True

    async def _sync(self, link: Link, step: int) -> Message:
        question = {"kind": "sync", "rank": self._config.rank, "step": step, "uploading": self._backup.running}
        try:
            return await link.ask(question)
        except ConnectionError as problem:
            # The coordinator's node is gone. The real replicator waits for it in silence until a new config.
            logger.warning("Coordinator is gone: %s", problem)
            await asyncio.Event().wait()
            raise

    def _own(self, step: int, worker: int, kind: str) -> Member:
        return Member(self._config.job, step, self._config.rank, worker, kind)

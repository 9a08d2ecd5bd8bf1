"""A node's way back: it asks the coordinator what to restore, fetches what it lacks, shows it to the job."""

from __future__ import annotations

import asyncio
import threading
from dataclasses import dataclass
from pathlib import Path

from everstep_sandbox.checkpointing import names
from everstep_sandbox.checkpointing.bucket import JobFolder
from everstep_sandbox.checkpointing.config import Config
from everstep_sandbox.checkpointing.log import logger
from everstep_sandbox.checkpointing.messages import NO_CHECKPOINT, Link, Message
from everstep_sandbox.checkpointing.names import Member
from everstep_sandbox.checkpointing.ramdisk import RamDisk, hashes_by_place, remove
from everstep_sandbox.checkpointing.registry import Entry, Registry

_RECONNECT_PAUSE_SECONDS = 0.1


@dataclass(frozen=True)
class Restored:
    """The open connection to the coordinator, and the nodes' RAM disks by rank."""

    link: Link
    exports: dict[str, str]


class Restoration:
    """Run once per config."""

    def __init__(self, config: Config, disk: RamDisk, folder: JobFolder, registry: Registry) -> None:
        self._config = config
        self._disk = disk
        self._folder = folder
        self._registry = registry

    async def run(self) -> Restored:
        """Asks anew when the coordinator goes in between: the attempt that it served is over then."""
        while True:
            entry = await asyncio.to_thread(self._registry.wait, self._config.job)
            if entry is None:
                raise AssertionError("unreachable: a wait that is not given up ends with an entry")
            try:
                link = await Link.open(entry.ip, entry.port)
                choice = await self._ask_what_to_restore(link, entry)
                if choice is None:
                    link.close()
                    continue
                if choice["step"] == NO_CHECKPOINT:
                    self._start_fresh(choice["step"])
                    return Restored(link, choice["exports"])
                await self._take(choice, link)
                return Restored(link, choice["exports"])
            except ConnectionError as problem:
                logger.warning("Coordinator %s:%s is gone: %s", entry.ip, entry.port, problem)
                await asyncio.sleep(_RECONNECT_PAUSE_SECONDS)

    async def _ask_what_to_restore(self, link: Link, entry: Entry) -> Message | None:
        """None when another coordinator has taken this one's place before it answered."""
        question = {
            "kind": "restore",
            "rank": self._config.rank,
            "metas": hashes_by_place(self._disk.metas(self._config.job)),
            "data": sorted(self._disk.data()),
            "export": str(self._disk.client),
        }
        asked = asyncio.ensure_future(link.ask(question))
        given_up = threading.Event()
        replaced = asyncio.ensure_future(
            asyncio.to_thread(self._registry.wait, self._config.job, other_than=entry.identifier, given_up=given_up)
        )
        await asyncio.wait({asked, replaced}, return_when=asyncio.FIRST_COMPLETED)
        given_up.set()
        if asked.done():
            answer = await asked
            # An answer without a step is a stale coordinator's error; fatal, as in the real replicator.
            answer["step"]
            return answer
        asked.cancel()
        logger.warning("Coordinator %s:%s was replaced", entry.ip, entry.port)
        return None

    def _start_fresh(self, answer: str) -> None:
        self._announce({})
        logger.error("Cannot restore, no checkpoint to restore from: %s", answer)
        for worker in range(self._config.workers):
            marker = self._own(0, worker, "restore")
            self._disk.link(marker, None)
            logger.info("Created empty restore file: %s", marker.name)
        self._disk.collect_garbage(self._config.job, ())

    async def _take(self, choice: Message, link: Link) -> None:
        """Sees to it that this node has the step's data; shows it to the job when every node has."""
        step: int = choice["step"]
        announced: dict[str, int | str] = {"restore-step": step}
        if choice["backup"]:
            announced["restore-backup"] = choice["backup"]
        self._announce(announced)
        hashes = {int(worker): found for worker, found in choice["hashes"].items()}
        await asyncio.to_thread(self._fetch, step, hashes, choice)
        await link.ask({"kind": "restore-done", "rank": self._config.rank})
        for worker, found in hashes.items():
            marker = self._own(step, worker, "restore")
            self._disk.link(marker, found)
            logger.info("Created restore link: %s -> %s", marker.name, names.data_name(found))
        own_only = None if self._config.data_parallelism is None else self._config.rank
        self._disk.collect_garbage(self._config.job, {step}, only_node=own_only)

    def _announce(self, content: dict[str, int | str]) -> None:
        text = "".join(f"{key}: {value}\n" for key, value in content.items()) or "{}\n"
        self._disk.write(names.PRERESTORE, text)
        logger.info("Created .prerestore file '%s': %s", names.PRERESTORE, content)

    def _fetch(self, step: int, hashes: dict[int, str], choice: Message) -> None:
        backup = choice["backup"]
        if backup:
            logger.info("Restoring from backup '%s', checkpoint %s", backup, step)
        else:
            logger.info("Restoring from in-cluster checkpoint %s", step)
        here = self._disk.data()
        for worker, found in hashes.items():
            if found not in here:
                if backup:
                    self._download(backup, found)
                else:
                    self._copy_from_peer(found, choice)
            self._disk.write_meta(self._own(step, worker, "meta"), found)

    def _download(self, backup: str, found: str) -> None:
        name = names.data_name(found)
        aside = self._disk.client / f"{name}.tmp"
        remove(aside)
        data = self._folder.read(f"{backup}/{name}")
        if data is not None:
            aside.write_bytes(data)
        else:
            self._folder.download_tree(f"{backup}/{name}/", aside)
        aside.rename(self._disk.client / name)

    def _copy_from_peer(self, found: str, choice: Message) -> None:
        holders = [choice["exports"][str(rank)] for rank in choice["holders"][found]]
        for export in holders:
            try:
                self._disk.take(Path(export) / names.data_name(found), found)
                return
            except OSError as problem:
                logger.error("Failed to copy %s from %s: %s", found, export, problem)
        raise FileNotFoundError(f"Data {found} could not be copied from any of {len(holders)} peers.")

    def _own(self, step: int, worker: int, kind: str) -> Member:
        return Member(self._config.job, step, self._config.rank, worker, kind)

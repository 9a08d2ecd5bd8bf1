"""The replicator: one process per node, which serves one config of one job and then ends.

``python -m everstep_sandbox.checkpointing.replicator`` waits for `replicator.yaml`, agrees with the other nodes on
what to restore, and from then on hashes, replicates and backs up what the job saves. A new config ends it; whoever
runs it starts it again.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import sys
import threading
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

from everstep_sandbox.checkpointing import config as configuration
from everstep_sandbox.checkpointing import coordinator, digest, inotify, log, names
from everstep_sandbox.checkpointing.backup import BackupThread
from everstep_sandbox.checkpointing.bucket import JobFolder
from everstep_sandbox.checkpointing.config import Config, ConfigError
from everstep_sandbox.checkpointing.inotify import Event, Inotify
from everstep_sandbox.checkpointing.log import logger
from everstep_sandbox.checkpointing.messages import NO_CHECKPOINT, Link, Message
from everstep_sandbox.checkpointing.names import Member
from everstep_sandbox.checkpointing.ramdisk import RamDisk, hashes_by_place, remove
from everstep_sandbox.checkpointing.registry import Entry, Registry
from everstep_sandbox.checkpointing.web import WebError
from everstep_sandbox.parent import die_with_parent

_PEER_PAUSE_SECONDS = 1.0
_RECONNECT_PAUSE_SECONDS = 0.1


@dataclass(frozen=True)
class Surroundings:
    """Where a replicator runs."""

    node_directory: Path
    address: str
    storage_url: str
    bucket: str
    ranks_url: str


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--node-directory", type=Path, required=True)
    parser.add_argument("--address", required=True, help="the node's own loopback address")
    parser.add_argument("--storage", required=True, help="address of the storage server")
    parser.add_argument("--bucket", required=True)
    parser.add_argument("--ranks", required=True, help="address of the rank server")
    parser.add_argument("--parent", type=int, default=os.getppid())
    arguments = parser.parse_args()
    die_with_parent(arguments.parent)
    serve_one_config(
        Surroundings(
            arguments.node_directory,
            arguments.address,
            arguments.storage,
            arguments.bucket,
            arguments.ranks,
        )
    )


def serve_one_config(around: Surroundings) -> None:
    """From the wait for a config to the end of the process. Any error is CRITICAL and ends it."""
    disk = RamDisk(around.node_directory)
    log.set_up(disk.client)
    try:
        events = Inotify()
        events.watch(disk.client)
        text = _wait_for_config(disk, events)
        if not text.strip():
            (disk.client / names.CONFIG).unlink()
            logger.error("Config %s is empty. Deleted it. Terminating.", names.CONFIG)
            sys.exit(0)
        config = configuration.parse(text)
        log.set_up(disk.client, config.job, config.rank, config.nodes)
        disk.clean()
        folder = JobFolder(around.storage_url, around.bucket, config.job)
        registry = Registry(around.ranks_url)
        if config.rank == 0:
            _fork_coordinator(config, around, folder, registry, disk)
        (disk.client / names.CONFIG).unlink()
        asyncio.run(Replicator(config, disk, events, folder, registry).run())
    except SystemExit:
        raise
    except ConfigError as problem:
        logger.critical("Config %s can't be used: %s", names.CONFIG, problem)
        os._exit(1)
    except BaseException as problem:
        logger.critical("%s: %s", type(problem).__name__, problem, exc_info=True)
        # Threads may wait for other nodes without a deadline: an ordinary exit would wait for them.
        os._exit(1)


def _wait_for_config(disk: RamDisk, events: Inotify) -> str:
    path = disk.client / names.CONFIG
    while not path.exists():
        if any(event.mask & inotify.DELETE_SELF for event in events.wait()):
            raise FileNotFoundError(f"The RAM disk {disk.client} is gone.")
    return path.read_text()


def _fork_coordinator(
    config: Config, around: Surroundings, folder: JobFolder, registry: Registry, disk: RamDisk
) -> None:
    parent = os.getpid()
    if os.fork() == 0:
        die_with_parent(parent)
        coordinator.main(config, around.address, folder, registry, disk.client)


class Replicator:
    """One node's work for one config."""

    def __init__(self, config: Config, disk: RamDisk, events: Inotify, folder: JobFolder, registry: Registry) -> None:
        self._config = config
        self._disk = disk
        self._events = events
        self._folder = folder
        self._registry = registry
        self._saved: asyncio.Queue[int] = asyncio.Queue()
        self._workers_saved: dict[int, set[int]] = defaultdict(set)
        self._stirred = asyncio.Event()
        self._peers: list[Path] = []
        self._last_digests: dict[int, str] = {}
        self._backup = BackupThread(folder, disk.client, uploads_data=config.uploads_data)

    async def run(self) -> None:
        """Restores, then follows the job's saves; ended by a new config only."""
        asyncio.get_running_loop().add_reader(self._events.descriptor, self.see_events)
        await asyncio.to_thread(self._mount_bucket)
        link = await self._restore()
        while True:
            step = await self._saved.get()
            own = await asyncio.to_thread(self._hash, step)
            await self._replicate(step)
            answer = await self._sync(link, step)
            replicated = answer["replicated-step"]
            logger.info("All files were replicated globally for step %s", replicated)
            if answer["backup"]:
                self._backup.start(replicated, answer["backup"], own)
            uploading = [self._backup.step] if self._backup.step is not None else []
            self._disk.collect_garbage(self._config.job, replicated, uploading)

    async def _sync(self, link: Link, step: int) -> Message:
        question = {"kind": "sync", "rank": self._config.rank, "step": step, "uploading": self._backup.running}
        try:
            return await link.ask(question)
        except ConnectionError as problem:
            # The coordinator's node is gone. The real replicator waits for it in silence until a new config.
            logger.warning("Coordinator is gone: %s", problem)
            await asyncio.Event().wait()
            raise

    def see_events(self) -> None:
        """Meets what happened in the watched directories; a new config ends the process."""
        for event in self._events.read():
            if event.directory != self._disk.client:
                self._stirred.set()
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

    def _mount_bucket(self) -> None:
        if not self._config.job or "/" in self._config.job:
            raise ConfigError(f"job-name '{self._config.job}' can't be a folder of the bucket.")
        self._folder.mount()
        if self._config.rank != 0:
            return
        try:
            if "atomic-rename-test-passed" in self._folder.list("")[1]:
                self._folder.delete_folder("atomic-rename-test-passed/")
            self._folder.write("atomic-rename-test/dummy-file", b"")
            self._folder.rename_folder("atomic-rename-test/", "atomic-rename-test-passed/")
            self._folder.delete_folder("atomic-rename-test-passed/")
        except (OSError, WebError) as problem:
            logger.critical(
                "FAILED: Backup volume does NOT support atomic renames (GCS bucket is NOT HNS-enabled): %s",
                problem,
            )
            os._exit(1)

    async def _restore(self) -> Link:
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
                else:
                    await self._take(choice, link)
            except OSError as problem:
                logger.warning("Coordinator %s:%s is gone: %s", entry.ip, entry.port, problem)
                await asyncio.sleep(_RECONNECT_PAUSE_SECONDS)
                continue
            self._peers = self._disk.mount_peers(choice["exports"][str(peer)] for peer in self._config.peers)
            for peer in self._peers:
                self._events.watch(peer)
            return link

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
        self._disk.collect_garbage(self._config.job, None)

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
        self._last_digests = hashes
        self._disk.collect_garbage(self._config.job, step)

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

    def _hash(self, step: int) -> dict[Member, str]:
        """Turns the saves of a step into data and metas; returns this node's metas."""
        metas = {}
        for worker in range(self._config.workers):
            save = self._disk.client / self._own(step, worker, "save").name
            if not save.exists() and self._config.framework != configuration.PYTORCH:
                continue
            found = digest.digest(save, self._config.framework)
            data = self._disk.client / names.data_name(found)
            if self._last_digests.get(worker) == found:
                logger.error(
                    "New step %s has the same hash %s as previous step. Deleted the new data: "
                    "training is not making progress",
                    step,
                    found,
                )
            if data.exists():
                remove(save)
            else:
                save.rename(data)
            meta = self._own(step, worker, "meta")
            self._disk.write_meta(meta, found)
            self._last_digests[worker] = found
            metas[meta] = found
        logger.info("All .save files are hashed for step %s", step)
        return metas

    async def _replicate(self, step: int) -> None:
        """Waits, with no deadline, for each peer's metas of the step and copies them; data too unless assumed equal."""
        for peer, directory in zip(self._config.peers, self._peers, strict=True):
            for worker in range(self._config.workers):
                meta = Member(self._config.job, step, peer, worker, "meta")
                path = directory / meta.name
                while not path.exists():
                    self._stirred.clear()
                    if path.exists():
                        break
                    try:
                        async with asyncio.timeout(_PEER_PAUSE_SECONDS):
                            await self._stirred.wait()
                    except TimeoutError:
                        continue
                await asyncio.to_thread(self._copy_peer, path, meta)

    def _copy_peer(self, path: Path, meta: Member) -> None:
        found = path.read_text().strip()
        if self._config.data_parallelism is None:
            self._disk.take(path.with_name(names.data_name(found)), found)
        self._disk.write_meta(meta, found)

    def _own(self, step: int, worker: int, kind: str) -> Member:
        return Member(self._config.job, step, self._config.rank, worker, kind)


if __name__ == "__main__":
    main()

"""The replicator: one process per node, which serves one config of one job and then ends.

``python -m everstep_sandbox.checkpointing.replicator`` waits for `replicator.yaml`, agrees with the other nodes on
what to restore, and from then on hashes, replicates and backs up what the job saves. A new config ends it; whoever
runs it starts it again.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
from dataclasses import dataclass
from pathlib import Path

from everstep_sandbox.checkpointing import config as configuration
from everstep_sandbox.checkpointing import coordinator, inotify, log, names
from everstep_sandbox.checkpointing.bucket import JobFolder
from everstep_sandbox.checkpointing.config import Config, ConfigError
from everstep_sandbox.checkpointing.inotify import Inotify
from everstep_sandbox.checkpointing.log import logger
from everstep_sandbox.checkpointing.node import Node
from everstep_sandbox.checkpointing.ramdisk import RamDisk
from everstep_sandbox.checkpointing.registry import Registry
from everstep_sandbox.checkpointing.web import WebError
from everstep_sandbox.parent import die_with_parent

_LINGER_SECONDS = 5.0


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
        _mount_bucket(config, folder)
        asyncio.run(_work(Node(config, disk, events, folder, registry), coordinates=config.rank == 0))
    except SystemExit:
        raise
    except ConfigError as problem:
        logger.critical("Config %s can't be used: %s", names.CONFIG, problem)
        os._exit(1)
    except BaseException as problem:
        _report(problem)
        os._exit(1)


async def _work(node: Node, *, coordinates: bool) -> None:
    try:
        await node.run()
    except BaseException as problem:
        _report(problem)
        # The coordinator ends with this process; it has to answer the other nodes, which are about to fail too.
        await asyncio.sleep(_LINGER_SECONDS if coordinates else 0)
        # At once: threads may wait for other nodes without a deadline, and the loop's end would wait for them.
        os._exit(1)


def _report(problem: BaseException) -> None:
    logger.critical("%s: %s", type(problem).__name__, problem, exc_info=problem)


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


def _mount_bucket(config: Config, folder: JobFolder) -> None:
    """Rank 0 also tests that a folder can be renamed: backups need it."""
    if not config.job or "/" in config.job:
        raise ConfigError(f"job-name '{config.job}' can't be a folder of the bucket.")
    folder.mount()
    if config.rank != 0:
        return
    try:
        if "atomic-rename-test-passed" in folder.list("")[1]:
            folder.delete_folder("atomic-rename-test-passed/")
        folder.write("atomic-rename-test/dummy-file", b"")
        folder.rename_folder("atomic-rename-test/", "atomic-rename-test-passed/")
        folder.delete_folder("atomic-rename-test-passed/")
    except (OSError, WebError) as problem:
        logger.critical(
            "FAILED: Backup volume does NOT support atomic renames (GCS bucket is NOT HNS-enabled): %s",
            problem,
        )
        os._exit(1)


if __name__ == "__main__":
    main()

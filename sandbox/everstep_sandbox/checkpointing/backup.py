"""One node's part of a backup: its metas, then its data, each under a name in flight until it is whole."""

from __future__ import annotations

import threading
from pathlib import Path

from everstep_sandbox.checkpointing import names
from everstep_sandbox.checkpointing.bucket import JobFolder
from everstep_sandbox.checkpointing.log import logger
from everstep_sandbox.checkpointing.names import Member
from everstep_sandbox.checkpointing.web import WebError


class BackupThread:
    """Uploads one step in the background; a failure is logged and training goes on."""

    def __init__(self, folder: JobFolder, client: Path, *, uploads_data: bool) -> None:
        self._folder = folder
        self._client = client
        self._uploads_data = uploads_data
        self._thread: threading.Thread | None = None
        self.step: int | None = None

    @property
    def running(self) -> bool:
        return self._thread is not None and self._thread.is_alive()

    def start(self, step: int, backup: str, metas: dict[Member, str]) -> None:
        """`metas`: this node's own ones of the step."""
        if self.running:
            logger.error("Backup thread for step %s is still running, skipping backup", self.step)
            return
        self.step = step
        self._thread = threading.Thread(target=self._run, args=(step, backup, metas), daemon=True)
        self._thread.start()

    def _run(self, step: int, backup: str, metas: dict[Member, str]) -> None:
        what = "all files" if self._uploads_data else "only .meta files"
        logger.info("Backing up %s for step %s to %s", what, step, backup)
        logger.info("Starting parallel backup of step %s to %s", step, backup)
        failures = []
        for name in self._files(metas):
            try:
                self._copy(name, backup)
            except (OSError, WebError) as problem:
                logger.error("Failed to copy %s to backup/gcs/%s: %s", name, backup, problem)
                failures.append(name)
        if failures:
            logger.error("Failed: backup for step %s, %s failures: %s", step, len(failures), failures)
        else:
            logger.info("Successful: backup for step %s to backup/gcs/%s", step, backup)
        self.step = None

    def _files(self, metas: dict[Member, str]) -> list[str]:
        data = sorted({names.data_name(digest) for digest in metas.values()}) if self._uploads_data else []
        return sorted(member.name for member in metas) + data

    def _copy(self, name: str, backup: str) -> None:
        source = self._client / name
        target = f"{backup}/{name}"
        if not source.is_dir():
            self._folder.write(f"{target}.tmp", source.read_bytes())
            self._folder.rename(f"{target}.tmp", target)
            return
        # Data is shared by its hash inside a backup. The folder in flight is the lock: whoever makes it uploads alone.
        # One that a dead node left is never taken over.
        if not self._folder.claim_folder(f"{target}.tmp/"):
            logger.info("%s is in flight already, skipping copy", target)
            return
        if name in self._folder.list(f"{backup}/")[1]:
            self._folder.delete_folder(f"{target}.tmp/")
            logger.info("%s already exists, skipping copy", target)
            return
        self._folder.upload_tree(source, f"{target}.tmp/")
        self._folder.rename_folder(f"{target}.tmp/", f"{target}/")

"""The replicator's log: its line format, and the two files that tell a training job of trouble."""

from __future__ import annotations

import logging
import sys
import time
from pathlib import Path

from everstep_sandbox.checkpointing import names

logger = logging.getLogger("replicator")


def set_up(directory: Path, job: str = "", rank: int | str = "", nodes: int | str = "") -> None:
    """Lines to stdout; ERROR also to `replicator.errors`, CRITICAL to `replicator.failed` in the RAM disk."""
    formatter = _Formatter(job, rank, nodes)
    stream = logging.StreamHandler(sys.stdout)
    logger.handlers = [
        stream,
        _FileOfLevel(directory / names.ERRORS, logging.ERROR),
        _FileOfLevel(directory / names.FAILED, logging.CRITICAL),
    ]
    for handler in logger.handlers:
        handler.setFormatter(formatter)
    logger.setLevel(logging.INFO)
    logger.propagate = False


class _Formatter(logging.Formatter):
    def __init__(self, job: str, rank: int | str, nodes: int | str) -> None:
        super().__init__()
        self._where = f"job={job} node={rank}/{nodes}"

    def format(self, record: logging.LogRecord) -> str:
        clock = time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(record.created))
        level = {"WARNING": "WRN", "CRITICAL": "CRT"}.get(record.levelname, record.levelname[:3])
        line = (
            f"{clock}.{int(record.msecs):03d} {record.process}:{record.thread} {self._where} [{level}] "
            f"{record.module}.{record.funcName}({record.lineno}): {record.getMessage()}"
        )
        return f"{line}\n{self.formatException(record.exc_info)}" if record.exc_info else line


class _FileOfLevel(logging.Handler):
    """Appends and closes at once: the file is deleted from under the process by clean-ups and by jobs."""

    def __init__(self, path: Path, level: int) -> None:
        super().__init__(level)
        self._path = path

    def emit(self, record: logging.LogRecord) -> None:
        try:
            with self._path.open("a") as file:
                file.write(self.format(record) + "\n")
        except OSError as problem:
            sys.stderr.write(f"{self._path} can't be written: {problem}\n")

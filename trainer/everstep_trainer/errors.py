"""What the library raises. Each error knows the exit code that the process ends with.

TrainerError
├── ConfigurationError   settings, ranks or sharding that can't work: no restart mends it
├── StartRefused         starting would lose progress, or restore what must not be restored
├── NoRestorePoint       progress was made and nothing of it can be restored
├── HandshakeFailed      the replicator reported a fatal error, or nobody answered in time
├── StorageFailed        the bucket did not answer, or the RAM disk is full: a restart may mend it
└── PeerLost             another process of the attempt is gone
"""

from __future__ import annotations

from everstep_trainer.exit_codes import UNCLASSIFIED, ExitCode


class TrainerError(Exception):
    """Base of all errors of this library."""

    exit_code: int = UNCLASSIFIED


class ConfigurationError(TrainerError):
    """One or more findings about the configuration, all at once."""

    exit_code = ExitCode.CONFIGURATION_ERROR

    def __init__(self, *findings: str) -> None:
        super().__init__("\n".join(findings))
        self.findings = findings


class StartRefused(TrainerError):
    """The start was refused to protect progress."""

    exit_code = ExitCode.START_REFUSED


class NoRestorePoint(TrainerError):
    """The run had saved progress, but neither the replicator nor the bucket can give any of it back."""

    exit_code = ExitCode.NO_RESTORE_POINT


class HandshakeFailed(TrainerError):
    """The replicator failed or did not answer before the deadline."""


class StorageFailed(TrainerError):
    """What checkpoints are kept on failed, and not because of the training code."""


class PeerLost(TrainerError):
    """Another process of this attempt has ended or can't be reached."""

    exit_code = ExitCode.PEER_LOST

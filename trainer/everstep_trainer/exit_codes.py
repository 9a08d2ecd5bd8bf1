"""How a training process says why it ended. The numbers are a contract with the JobSet's failure policy.

A process that watched a peer die exits with PEER_LOST, seconds after the peer, so that the pod with a cause
of its own is the earliest failed one. Codes 134, 137 and 143 are never ours: they come from outside.
"""

from __future__ import annotations

import enum

UNCLASSIFIED = 1
"""Anything else, such as a handshake that failed: the JobSet restarts it and counts the restart."""


class ExitCode(enum.IntEnum):
    """Exit codes of a process that uses this library."""

    DONE = 0
    CONFIGURATION_ERROR = 64
    START_REFUSED = 65
    NO_RESTORE_POINT = 66
    USER_EXCEPTION = 70
    PEER_LOST = 75
    STOPPED_ON_REQUEST = 76


def name_of(code: int) -> str:
    """The name that reports carry for a code, such as ``PEER_LOST``."""
    return ExitCode(code).name if code in set(ExitCode) else "UNCLASSIFIED"

"""Exit codes by which a trainer says how it ended.

The same numbers stand in `everstep_trainer.exit_codes`, since neither package imports the other; a test compares them.
Codes 128 + n come from outside: n is the signal that ended the process (134 abort, 137 kill, 143 terminate).
"""

from __future__ import annotations

DONE = 0
CONFIGURATION_ERROR = 64
START_REFUSED = 65
NO_RESTORE_POINT = 66
USER_EXCEPTION = 70
PEER_LOST = 75
STOPPED_ON_REQUEST = 76

# A restart would end the same way, so the JobSet fails at once.
FATAL = (CONFIGURATION_ERROR, START_REFUSED, NO_RESTORE_POINT, USER_EXCEPTION)
# The process is not the cause, so the restart does not count.
BYSTANDER = (PEER_LOST, STOPPED_ON_REQUEST)

NAMES = {
    DONE: "done",
    CONFIGURATION_ERROR: "configuration error",
    START_REFUSED: "start refused",
    NO_RESTORE_POINT: "no restore point",
    USER_EXCEPTION: "exception in the training script",
    PEER_LOST: "a peer was lost",
    STOPPED_ON_REQUEST: "stopped on request",
}


def describe(code: int) -> str:
    """Return what an exit code means, such as `exit code 75 (a peer was lost)` or `killed by signal 9`."""
    if code in NAMES:
        return f"exit code {code} ({NAMES[code]})"
    if 128 < code < 160:
        return f"exit code {code} (killed by signal {code - 128})"
    return f"exit code {code}"

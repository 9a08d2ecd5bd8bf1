"""What an error that ends the process means: its exit code, once it is clear whether the error is the process's own."""

from __future__ import annotations

import re

from everstep_trainer.ending import Ending
from everstep_trainer.errors import StorageFailed, TrainerError
from everstep_trainer.exit_codes import UNCLASSIFIED, ExitCode
from everstep_trainer.storage_failures import causes

CAUSE_SECONDS = 3.0
"""How long a failed collective waits to learn that a peer is gone, before it counts as the code's own error."""
_STATUS = re.compile(r"(CANCELLED|UNKNOWN|DEADLINE_EXCEEDED|ABORTED|INTERNAL|UNAVAILABLE|DATA_LOSS|NOT_FOUND)\b: ")
_UNREACHABLE = re.compile(r"\b(CANCELLED|DEADLINE_EXCEEDED|ABORTED|UNAVAILABLE|DATA_LOSS): |Gloo \w+ failed")


def judge(error: BaseException | None, ending: Ending | None, *, joined: bool) -> tuple[int, str]:
    """The exit code and the reason in words. May wait for CAUSE_SECONDS for the news of a lost peer.

    :param joined: whether the process was in training; what fails before is never the user's code
    """
    reason = f"{type(error).__name__}: {error}"
    if isinstance(error, StorageFailed) and _may_come_from_a_peer(error) and _is_peer_lost(ending):
        return ExitCode.PEER_LOST, reason
    if isinstance(error, TrainerError):
        return error.exit_code, str(error)
    if isinstance(error, KeyboardInterrupt):
        return ExitCode.STOPPED_ON_REQUEST, "interrupted"
    if isinstance(error, SystemExit):
        return ExitCode.USER_EXCEPTION, f"sys.exit({error.code})"
    if _may_come_from_a_peer(error) and (_is_peer_lost(ending) or _UNREACHABLE.search(reason)):
        return ExitCode.PEER_LOST, reason
    return (ExitCode.USER_EXCEPTION if joined else UNCLASSIFIED), reason


def _is_peer_lost(ending: Ending | None) -> bool:
    return ending is not None and ending.lost_within(CAUSE_SECONDS)


def _may_come_from_a_peer(error: BaseException | None) -> bool:
    """Whether the error, or one that it came from, is of the runtime. JAX raises those of its collectives as ValueError
    too, so their text, which starts with a status, is looked at as well."""
    return any(
        type(cause).__name__ == "JaxRuntimeError" or _STATUS.match(str(cause)) is not None for cause in causes(error)
    )

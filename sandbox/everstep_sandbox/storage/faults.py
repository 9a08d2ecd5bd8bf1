"""Faults on command: requests that are refused, delayed or answered wrongly, a number of times."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from everstep_sandbox.storage import errors

_REASONS = {
    401: "authError",
    403: "forbidden",
    404: "notFound",
    408: "requestTimeout",
    412: "conditionNotMet",
    429: "rateLimitExceeded",
    500: "backendError",
    502: "backendError",
    503: "backendError",
    504: "gatewayTimeout",
}


@dataclass
class Fault:
    """What happens to the next `times` requests whose "METHOD path?query" matches (None: to all of them).

    `status` refuses (0 lets the request pass, only delayed); `after` delays and refuses after the request has been
    carried out, as when an answer is late or lost on its way; `disconnect` closes the connection instead of answering.
    """

    match: str
    status: int = 0
    times: int | None = 1
    delay_ms: int = 0
    retry_after: int | None = None
    after: bool = False
    disconnect: bool = False
    message: str = "A fault that was asked for."

    @classmethod
    def of(cls, document: dict[str, Any]) -> Fault:
        """Raises StorageError 400 for what makes no fault."""
        unknown = set(document) - set(cls.__dataclass_fields__)
        if unknown or "match" not in document:
            raise errors.invalid(
                f"A fault needs 'match' and knows {', '.join(cls.__dataclass_fields__)}; found also: {sorted(unknown)}."
            )
        try:
            re.compile(document["match"])
            return cls(**document)
        except (re.error, TypeError) as problem:
            raise errors.invalid(f"The fault {document} can't be used: {problem}.") from problem

    def error(self) -> errors.StorageError:
        headers = {"Retry-After": str(self.retry_after)} if self.retry_after is not None else {}
        reason = _REASONS.get(self.status, "backendError")
        return errors.StorageError(self.status, reason, self.message, headers=headers)


class Faults:
    """The faults that are set, in the order in which they were set; the first that matches is met."""

    def __init__(self) -> None:
        self._faults: list[Fault] = []

    def add(self, document: dict[str, Any]) -> None:
        self._faults.append(Fault.of(document))

    def clear(self) -> None:
        self._faults.clear()

    def listed(self) -> list[dict[str, Any]]:
        return [vars(fault) for fault in self._faults]

    def meet(self, call: str) -> Fault | None:
        """The fault that this request meets, counted as met once."""
        for fault in self._faults:
            if re.search(fault.match, call):
                if fault.times is not None:
                    fault.times -= 1
                    if fault.times <= 0:
                        self._faults.remove(fault)
                return fault
        return None

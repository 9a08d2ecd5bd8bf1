"""Faults that a test or `everstep sandbox fault` asks the API for: requests refused, delayed, reset or left hanging."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from everstep_sandbox.kubernetes.errors import ApiError, bad_request

_REASONS = {
    401: "Unauthorized",
    403: "Forbidden",
    404: "NotFound",
    409: "Conflict",
    410: "Expired",
    422: "Invalid",
    429: "TooManyRequests",
    500: "InternalError",
    503: "ServiceUnavailable",
    504: "Timeout",
}


@dataclass(slots=True)
class FaultRule:
    """Applies to the next `times` requests whose "METHOD path?query" matches, of those with a bearer token only to
    that of `token` where one is given. `stall` answers a watch with headers and then nothing; `after` delays, resets
    or refuses once the request has been carried out, as when an answer is late or lost on its way."""

    match: re.Pattern[str]
    times: int
    status: int | None = None
    retry_after: int | None = None
    delay_seconds: float = 0.0
    reset: bool = False
    stall: bool = False
    after: bool = False
    token: str | None = None
    message: str = "fault asked of the sandbox"

    def error(self) -> ApiError:
        status = self.status or 500
        details = {"retryAfterSeconds": self.retry_after} if self.retry_after is not None else None
        return ApiError(status, _REASONS.get(status, "InternalError"), self.message, details)


class FaultRules:
    """The rules in force, oldest first."""

    def __init__(self) -> None:
        self._rules: list[FaultRule] = []

    def add(self, asked: dict[str, Any]) -> None:
        """Adds {"match": regex, "status": code, "times": n, "retryAfter": s, "delay_ms": ms, "reset": true,
        "stall": true, "after": true, "token": the only one that the rule is about, "message": what a refusal says}."""
        try:
            match = re.compile(asked["match"])
        except (KeyError, TypeError, re.error) as error:
            raise bad_request(f"fault {asked!r}: expected `match`, a regular expression for `METHOD path`") from error
        if not any(key in asked for key in ("status", "delay_ms", "reset", "stall")):
            raise bad_request(f"fault {asked!r}: expected one of status, delay_ms, reset or stall")
        self._rules.append(
            FaultRule(
                match,
                int(asked.get("times", 1)),
                asked.get("status"),
                asked.get("retryAfter"),
                float(asked.get("delay_ms", 0)) / 1000,
                bool(asked.get("reset", False)),
                bool(asked.get("stall", False)),
                bool(asked.get("after", False)),
                asked.get("token"),
                str(asked.get("message", "fault asked of the sandbox")),
            )
        )

    def take(self, method: str, path_and_query: str, authorization: str = "") -> FaultRule | None:
        """The rule that applies to this request, counted down; None where there is none."""
        line = f"{method} {path_and_query}"
        token = authorization.removeprefix("Bearer ")
        for rule in self._rules:
            if rule.match.search(line) and rule.token in (None, token):
                rule.times -= 1
                if rule.times <= 0:
                    self._rules.remove(rule)
                return rule
        return None

    def clear(self) -> None:
        self._rules.clear()

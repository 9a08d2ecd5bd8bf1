"""GKE's long-running operations: PENDING, RUNNING, DONE; one at a time for each cluster, kept over restarts."""

from __future__ import annotations

import asyncio
import logging
import re
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from everstep_sandbox.google import errors
from everstep_sandbox.google.state import Object, State, unique

logger = logging.getLogger(__name__)

PENDING_SECONDS = 5.0
SECONDS = {
    "CREATE_CLUSTER": 60.0,
    "DELETE_CLUSTER": 40.0,
    "CREATE_NODE_POOL": 30.0,
    "DELETE_NODE_POOL": 30.0,
    "UPDATE_CLUSTER": 30.0,
    "UPGRADE_MASTER": 60.0,
    "UPGRADE_NODES": 60.0,
    "SET_NODE_POOL_SIZE": 20.0,
}
"""How long each is RUNNING, before the sandbox's speed. Real ones take minutes."""
_OTHER_SECONDS = 10.0
_KEPT = 200

FAILURES = {
    "quota": (
        8,
        "GCE_QUOTA_EXCEEDED",
        "Google Compute Engine: [GCE_QUOTA_EXCEEDED]: Instance '{target}' creation failed: Quota "
        "'TPUS_PER_TPU_FAMILY' exceeded.  Limit: 0.0 in region {location}.",
    ),
    "stockout": (
        8,
        "GCE_STOCKOUT",
        "Google Compute Engine: [GCE_STOCKOUT]: Instance '{target}' creation failed: The zone "
        "'projects/{project}/zones/{location}' does not have enough resources available to fulfill the request.  "
        "'(resource type:compute)'.",
    ),
    "internal": (13, "UNKNOWN", "An internal error occurred; please try again later."),
}
"""Kind of failure -> gRPC code, condition code, text."""


class EffectFailed(Exception):
    """What an operation was to bring about can't be; the text becomes the operation's message."""


@dataclass
class FailureRule:
    """The next `times` operations whose "TYPE target" matches fail (None: all of them)."""

    match: str
    kind: str = "internal"
    message: str = ""
    times: int | None = 1

    @classmethod
    def of(cls, document: dict[str, Any]) -> FailureRule:
        """Raises GoogleError 400 for what makes no rule."""
        unknown = set(document) - set(cls.__dataclass_fields__)
        kind = document.get("kind", "internal")
        if unknown or "match" not in document or kind not in FAILURES:
            raise errors.invalid(f"A failure needs 'match', a kind of {', '.join(FAILURES)}; found {document}.")
        return cls(**document)


Finish = Callable[[Object, "Failure | None"], Awaitable[None]]


@dataclass(frozen=True)
class Failure:
    """How an operation failed."""

    code: int
    condition: str
    message: str


class Operations:
    """Starts operations and carries them through; `finish` does what one was started for."""

    def __init__(self, state: State, finish: Finish, *, speed: float) -> None:
        self._state = state
        self._finish = finish
        self._speed = speed
        self._tasks: set[asyncio.Task[None]] = set()
        self.rules: list[FailureRule] = []

    def resume(self) -> None:
        """Goes on with what a previous process had begun."""
        for record in self._state.operations.values():
            if record["public"]["status"] != "DONE":
                self._spawn(record)

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def check_idle(self, cluster: str) -> None:
        """Raises GoogleError when an operation of the cluster is under way."""
        for record in self._state.operations.values():
            if record["cluster"] == cluster and record["public"]["status"] != "DONE":
                raise errors.GoogleError(
                    "FAILED_PRECONDITION",
                    f"Cluster is running incompatible operation {record['public']['name']}.",
                )

    def start(self, kind: str, cluster: str, target: str, plan: Object, detail: str = "") -> Object:
        """A new operation, saved with the rest of the state. `target` is the resource's whole name."""
        _, project, _, location = cluster.split("/")[:4]
        name = f"operation-{int(time.time() * 1000)}-{unique()}"
        now = time.time()
        public = {
            "name": name,
            "zone": location,
            "location": location,
            "operationType": kind,
            "status": "PENDING",
            "selfLink": f"https://container.googleapis.com/v1/projects/{self._state.number}/locations/{location}"
            f"/operations/{name}",
            "targetLink": f"https://container.googleapis.com/v1/{_by_number(target, self._state.number)}",
            "startTime": timestamp(now),
            "progress": {"name": kind, "status": "RUNNING"},
        }
        if detail:
            public["detail"] = detail
        record: Object = {
            "public": public,
            "cluster": cluster,
            "target": target,
            "plan": plan,
            "run_at": now + PENDING_SECONDS / self._speed,
            "done_at": now + (PENDING_SECONDS + SECONDS.get(kind, _OTHER_SECONDS)) / self._speed,
            "failure": self._failure(kind, target, project, location),
        }
        self._state.operations[f"projects/{project}/locations/{location}/operations/{name}"] = record
        self._forget_old()
        self._state.save()
        self._spawn(record)
        return dict(public)

    def get(self, name: str) -> Object:
        """Raises GoogleError 404."""
        record = self._state.operations.get(name)
        if record is None:
            raise errors.GoogleError("NOT_FOUND", f"Not found: {name}.")
        return dict(record["public"])

    def list_all(self, parent: str) -> list[Object]:
        """Of projects/P/locations/L; L "-" is all."""
        wanted = parent.removesuffix("-") if parent.endswith("/-") else f"{parent}/"
        return [dict(one["public"]) for name, one in self._state.operations.items() if name.startswith(wanted)]

    def _spawn(self, record: Object) -> None:
        task = asyncio.create_task(self._carry_out(record))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _carry_out(self, record: Object) -> None:
        public = record["public"]
        await asyncio.sleep(max(0.0, record["run_at"] - time.time()))
        if public["status"] == "PENDING":
            public["status"] = "RUNNING"
            self._state.save()
        await asyncio.sleep(max(0.0, record["done_at"] - time.time()))
        failure = Failure(**record["failure"]) if record["failure"] else None
        try:
            await self._finish(record, failure)
        except EffectFailed as problem:
            failure = Failure(13, "UNKNOWN", str(problem))
            await self._finish(record, failure)
        except Exception:
            logger.exception("operation %s", public["name"])
            failure = Failure(13, "UNKNOWN", FAILURES["internal"][2])
        if failure is not None:
            public["error"] = {"code": failure.code, "message": failure.message}
            public["statusMessage"] = failure.message
            public["clusterConditions"] = [{"code": failure.condition, "message": failure.message}]
        public["status"] = "DONE"
        public["endTime"] = timestamp(time.time())
        public["progress"]["status"] = "DONE"
        self._state.save()

    def _failure(self, kind: str, target: str, project: str, location: str) -> Object | None:
        for rule in self.rules:
            if re.search(rule.match, f"{kind} {target}"):
                if rule.times is not None:
                    rule.times -= 1
                    if rule.times <= 0:
                        self.rules.remove(rule)
                code, condition, text = FAILURES[rule.kind]
                shown = rule.message or text.format(
                    target=target.rpartition("/")[2], project=project, location=location
                )
                return {"code": code, "condition": condition, "message": shown}
        return None

    def _forget_old(self) -> None:
        done = [name for name, one in self._state.operations.items() if one["public"]["status"] == "DONE"]
        for name in done[: max(0, len(self._state.operations) - _KEPT)]:
            del self._state.operations[name]


def timestamp(moment: float) -> str:
    """RFC 3339 in UTC, nanoseconds, as GKE writes it."""
    return datetime.fromtimestamp(moment, UTC).strftime("%Y-%m-%dT%H:%M:%S.%f") + "000Z"


def _by_number(name: str, number: str) -> str:
    parts = name.split("/")
    return "/".join([parts[0], number, *parts[2:]])

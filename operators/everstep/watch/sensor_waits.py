"""What sensors wait for: they share the watch and the readings of buckets with all other waits of the triggerer."""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from everstep.checkpoints.catalogue import BackupState, Shape
from everstep.checkpoints.layout import RunFolder
from everstep.clients import run_folder
from everstep.clients.access import ClusterAccess, StorageAccess
from everstep.clients.errors import RemoteError
from everstep.clients.run_folder import RunContents
from everstep.clients.storage_async import AsyncBucketClient
from everstep.watch import backup_rhythm, story
from everstep.watch.inbox import Inbox
from everstep.watch.readings import Away, Reading, reading
from everstep.watch.run_state import RunState
from everstep.watch.shared import subscribed

# How long beyond its deadline a wait that has not seen anything yet waits for the first answer.
GIVE_ANSWER_SECONDS = 300.0


@dataclass(frozen=True, slots=True)
class Seen:
    """What a wait has seen so far: the result if that is what it waits for, and how it is in words."""

    message: str
    result: dict[str, Any] | None = None


class Wait:
    """One wait. Subclasses say what it listens to and what it waits for.

    :param arguments: those of the trigger
    """

    def __init__(self, arguments: Mapping[str, Any], log: Any) -> None:
        self.arguments = arguments
        self.log = log
        self.folder = RunFolder(arguments["bucket"], arguments["run_name"])

    async def outcome(self) -> dict[str, Any]:
        """Wait, and return the event's content."""
        inbox = Inbox()
        try:
            async with AsyncExitStack() as sources:
                return await self._listen(inbox, sources)
        except RemoteError as failure:
            return {"kind": "error", "message": failure.message}

    async def open(self, inbox: Inbox, sources: AsyncExitStack) -> None:
        """Let the inbox be told what matters."""
        raise NotImplementedError

    async def take_in(self, told: Any, inbox: Inbox, sources: AsyncExitStack) -> Seen | None:
        """Return what is seen with what was just told; None while that is not enough to say anything."""
        raise NotImplementedError

    async def _listen(self, inbox: Inbox, sources: AsyncExitStack) -> dict[str, Any]:
        await self.open(inbox, sources)
        seen: Seen | None = None
        while True:
            remaining = max(0.0, float(self.arguments["deadline"]) - time.time())
            try:
                told = await inbox.take(remaining + (GIVE_ANSWER_SECONDS if seen is None else 0.0))
            except TimeoutError:
                return {"kind": "deadline", "message": seen.message if seen else "there was no answer"}
            if isinstance(told, RemoteError):
                raise told
            if isinstance(told, Away):
                self.log.info("The bucket is away, trying on: %s", told.message)
                continue
            now = await self.take_in(told, inbox, sources)
            if now is None:
                continue
            if now.result is not None:
                return {"kind": "found", "message": now.message, "result": now.result}
            if seen is None or now.message != seen.message:
                self.log.info("%s", now.message)
            seen = now


class CheckpointWait(Wait):
    """Waits for a complete checkpoint at `min_step` or above in a run's folder."""

    def __init__(self, arguments: Mapping[str, Any], log: Any) -> None:
        super().__init__(arguments, log)
        self.shape = Shape(arguments["nodes"], 1, arguments["data_parallelism"])
        self.min_step: int = arguments["min_step"]

    async def open(self, inbox: Inbox, sources: AsyncExitStack) -> None:
        """Read the run's folder at the rhythm of its backups, once for all waits on it."""
        await sources.enter_async_context(
            reading(
                StorageAccess(**self.arguments["storage"]),
                self.folder.bucket,
                ("checkpoints", self.folder, self.shape),
                self._read,
                _to_next_backup,
                inbox,
                float(self.arguments["poke_interval"]),
            )
        )

    async def take_in(self, told: Any, inbox: Inbox, sources: AsyncExitStack) -> Seen | None:
        """Return what the newest complete checkpoint is."""
        contents: RunContents = told.value
        good = contents.last_known_good
        if good is None:
            return Seen(f"no complete checkpoint in {self.folder.url()} yet")
        if good.step < self.min_step:
            return Seen(f"the newest complete checkpoint is step {good.step} ({good.tier} {good.name})")
        result = {"step": good.step, "tier": good.tier, "name": good.name}
        return Seen(f"step {good.step} is complete: {good.tier} {good.name}", result)

    async def _read(self, bucket: AsyncBucketClient) -> RunContents:
        return await bucket.run(run_folder.contents(self.folder, self.shape, everything=False))


class RestoreWait(Wait):
    """Waits until all nodes of the present attempt have reported what they restored."""

    def __init__(self, arguments: Mapping[str, Any], log: Any) -> None:
        super().__init__(arguments, log)
        self.namespace: str = arguments["namespace"]
        self.nodes: int = arguments["nodes"]
        self.min_restart: int = arguments["min_restart"]
        self._attempt: tuple[int, int] | None = None
        self._reports: AsyncExitStack | None = None

    async def open(self, inbox: Inbox, sources: AsyncExitStack) -> None:
        """Listen to the JobSet on the watch that all waits share."""
        self._attempt = None
        self._reports = await sources.enter_async_context(AsyncExitStack())
        access = ClusterAccess(**self.arguments["cluster"])
        await sources.enter_async_context(subscribed(access, self.namespace, self.folder.run, inbox))

    async def take_in(self, told: Any, inbox: Inbox, sources: AsyncExitStack) -> Seen | None:
        """Return how many nodes of the present attempt have restored."""
        if isinstance(told, Reading):
            return self._restored(told.value) if told.key == self._key(self._attempt) else None
        if told is None:
            await self._read_reports_of(None, inbox)
            return Seen(f"there is no JobSet {self.namespace}/{self.folder.run}")
        state: RunState = told
        if state.restarts < self.min_restart or state.launch is None:
            await self._read_reports_of(None, inbox)
            return Seen(f"waiting for restart {self.min_restart}: {state}")
        await self._read_reports_of((state.launch, state.restarts), inbox)
        return None

    async def _read_reports_of(self, attempt: tuple[int, int] | None, inbox: Inbox) -> None:
        """Read an attempt's reports again and again instead of another one's; None reads nothing."""
        if attempt == self._attempt:
            return
        assert self._reports is not None, "opened before anything is told"
        await self._reports.aclose()
        self._attempt = attempt
        if attempt is None:
            return
        restored: dict[str, Any] = {}

        async def read(bucket: AsyncBucketClient) -> list[dict[str, Any]]:
            return await bucket.run(run_folder.attempt(self.folder, *attempt, restored))

        await self._reports.enter_async_context(
            reading(
                StorageAccess(**self.arguments["storage"]),
                self.folder.bucket,
                self._key(attempt),
                read,
                lambda _, least: least,
                inbox,
                float(self.arguments["poke_interval"]),
            )
        )

    def _key(self, attempt: tuple[int, int] | None) -> tuple[str, RunFolder, tuple[int, int] | None]:
        return ("reports", self.folder, attempt)

    def _restored(self, reports: list[dict[str, Any]]) -> Seen:
        assert self._attempt is not None, "only the present attempt's reports are taken in"
        launch, restart = self._attempt
        restored = [report for report in reports if report.get("restored_tier")]
        if len(restored) < self.nodes:
            where = f"launch {launch}, restart {restart}"
            return Seen(f"{len(restored)} of {self.nodes} nodes have restored ({where})")
        told = story.of_attempts({self._attempt: restored})[0]
        result = {
            "launch": told.launch,
            "restart": told.restart,
            "step": told.restored_step,
            "tier": told.tier,
            "tiers": told.tiers,
        }
        return Seen(str(told), result)


def _to_next_backup(contents: RunContents, least: float) -> float:
    backups = contents.catalogue.backups
    return backup_rhythm.seconds_to_next_look(
        [backup.name for backup in backups] + list(contents.unjudged),
        in_flight=any(backup.state is BackupState.IN_FLIGHT for backup in backups),
        now=datetime.now(UTC),
        least=least,
    )

"""What a pod's worker tells the API: status patches as they happen, events, and the final removal."""

from __future__ import annotations

import asyncio
import contextlib
import datetime
import logging
import secrets
from typing import TYPE_CHECKING, Any

import aiohttp

from everstep_sandbox.kubelet.api import Api, ApiFailure
from everstep_sandbox.kubelet.pod_status import ContainerState, conditions

if TYPE_CHECKING:
    from everstep_sandbox.kubelet.pod_worker import PodWorker

logger = logging.getLogger(__name__)

Object = dict[str, Any]

_RETRY_SECONDS = 0.3
_UNREACHABLE = (aiohttp.ClientError, OSError, TimeoutError)


class PodReporter:
    """Keeps the API's status of one pod equal to its worker's; changes that come fast go out together."""

    def __init__(self, api: Api, worker: PodWorker) -> None:
        self._api = api
        self._worker = worker
        self._dirty = asyncio.Event()
        self._clean = asyncio.Event()
        self._clean.set()
        self._started_at = _timestamp()
        self._events: set[asyncio.Task[None]] = set()
        self._task = asyncio.get_running_loop().create_task(self._run())

    def changed(self) -> None:
        self._dirty.set()
        self._clean.clear()

    async def flush(self) -> None:
        """Sends the status as it is now and waits until the API has it (or has refused it for good)."""
        if not self._task.done():
            self.changed()
            waiting = asyncio.create_task(self._clean.wait())
            await asyncio.wait({waiting, self._task}, return_when=asyncio.FIRST_COMPLETED)
            waiting.cancel()

    def stop(self) -> None:
        self._task.cancel()
        for task in self._events:
            task.cancel()

    async def confirm_removal(self) -> None:
        """Tells the API that nothing of the pod is left, so that its object can go."""
        self.stop()
        while True:
            try:
                await self._api.delete(self._path, grace_period_seconds=0, uid=self._worker.uid)
                return
            except ApiFailure as failure:
                if failure.code in (404, 409):
                    return
                logger.warning("removal of %s was refused: %s", self._path, failure)
            except _UNREACHABLE as error:
                logger.info("removal of %s is tried again: %s", self._path, error)
            await asyncio.sleep(_RETRY_SECONDS)

    def event(self, kind: str, reason: str, message: str) -> None:
        """Records an event about the pod; a failure to do so is no failure of the pod."""
        task = asyncio.get_running_loop().create_task(self._send_event(kind, reason, message))
        self._events.add(task)
        task.add_done_callback(self._events.discard)

    async def _run(self) -> None:
        while True:
            await self._dirty.wait()
            self._dirty.clear()
            try:
                await self._api.patch(f"{self._path}/status", self._status())
            except ApiFailure as failure:
                if failure.code in (404, 409, 422):
                    logger.info("status of %s is no longer taken: %s", self._path, failure)
                    return
                await self._again(failure)
            except _UNREACHABLE as error:
                await self._again(error)
            if not self._dirty.is_set():
                self._clean.set()

    async def _again(self, error: Exception) -> None:
        logger.info("status of %s is sent again: %s", self._path, error)
        await asyncio.sleep(_RETRY_SECONDS)
        self._dirty.set()

    def _status(self) -> Object:
        worker = self._worker
        init, main = worker.states(worker.init), worker.states(worker.main)
        before = worker.pod.get("status") or {}
        now = datetime.datetime.now(datetime.UTC)
        status: Object = {
            "phase": worker.phase,
            "hostIP": worker.node.address,
            "hostIPs": [{"ip": worker.node.address}],
            "podIP": worker.address,
            "podIPs": [{"ip": worker.address}],
            "startTime": before.get("startTime") or self._started_at,
            "conditions": conditions(
                worker.pod,
                init,
                main,
                worker.phase,
                before.get("conditions") or (),
                now,
                sandbox_ready=worker.directory.exists(),
            ),
            "containerStatuses": [state.as_status() for state in main.values()],
        }
        if init:
            status["initContainerStatuses"] = [state.as_status() for state in init.values()]
        return {"metadata": {"uid": worker.uid}, "status": status}

    async def _send_event(self, kind: str, reason: str, message: str) -> None:
        metadata = self._worker.pod["metadata"]
        now = _timestamp()
        body = {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": f"{metadata['name']}.{secrets.token_hex(8)}", "namespace": metadata["namespace"]},
            "involvedObject": {
                "apiVersion": "v1",
                "kind": "Pod",
                "name": metadata["name"],
                "namespace": metadata["namespace"],
                "uid": metadata["uid"],
            },
            "type": kind,
            "reason": reason,
            "message": message,
            "source": {"component": "kubelet", "host": self._worker.node.name},
            "reportingComponent": "kubelet",
            "reportingInstance": self._worker.node.name,
            "firstTimestamp": now,
            "lastTimestamp": now,
            "count": 1,
        }
        with contextlib.suppress(ApiFailure, *_UNREACHABLE):
            await self._api.create(f"/api/v1/namespaces/{metadata['namespace']}/events", body)

    @property
    def _path(self) -> str:
        metadata = self._worker.pod["metadata"]
        return f"/api/v1/namespaces/{metadata['namespace']}/pods/{metadata['name']}"


def recorded_state(spec: Object, status: Object | None, *, was_started: bool) -> ContainerState:
    """A container's state when a worker takes it over: new, or what an earlier kubelet has left.

    A container that was running then is lost: it ends with 137, as the kubelet reports one that it can't find.
    """
    state = ContainerState(spec["name"], spec.get("image", ""))
    state.restarts = int((status or {}).get("restartCount") or 0)
    reported = (status or {}).get("state") or {}
    now = datetime.datetime.now(datetime.UTC)
    if ended := reported.get("terminated"):
        state.start(ended.get("containerID", ""), _moment(ended.get("startedAt")) or now)
        state.terminate(
            int(ended["exitCode"]),
            _moment(ended.get("finishedAt")) or now,
            reason=ended.get("reason", ""),
            message=ended.get("message", ""),
        )
    elif was_started or "running" in reported:
        state.start("", _moment((reported.get("running") or {}).get("startedAt")) or now)
        state.terminate(
            137,
            now,
            reason="ContainerStatusUnknown",
            message="The container could not be located when the pod was terminated",
        )
    return state


def _moment(text: str | None) -> datetime.datetime | None:
    return datetime.datetime.fromisoformat(text.replace("Z", "+00:00")) if text else None


def _timestamp() -> str:
    return datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")

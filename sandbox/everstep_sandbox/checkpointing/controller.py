"""The controller of multi-tier checkpointing: a driver DaemonSet per CheckpointConfiguration, and the rank server.

``python -m everstep_sandbox.checkpointing.controller --directory DIR --kubeconfig FILE --speed N``. Changes of a
configuration do not reach its DaemonSet, as in reality: it has to be deleted and made again. The rank server keeps
its port and what it knows in ``DIR/checkpointing``, since drivers learn its address once and pods report once.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import signal
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import uuid4

from everstep_sandbox.checkpointing import daemonset
from everstep_sandbox.checkpointing.daemonset import NAMESPACE, Invalid
from everstep_sandbox.checkpointing.job_shapes import job_shape
from everstep_sandbox.checkpointing.rank_server import JobShape, RankServer
from everstep_sandbox.kubelet.api import MERGE, Api, ApiFailure

Object = dict[str, Any]

CONFIGURATIONS = "/apis/checkpointing.gke.io/v1/checkpointconfigurations"
_DAEMONSETS = f"/apis/apps/v1/namespaces/{NAMESPACE}/daemonsets"
_PODS = f"/api/v1/namespaces/{NAMESPACE}/pods"
_POOL_LABEL = "cloud.google.com/gke-nodepool"
_SETTLE_SECONDS = 0.02
_REQUEUE_SECONDS = 1.0
_UNREADY_SECONDS = 300.0

logger = logging.getLogger("checkpointing-controller")


class Controller:
    """Follows configurations, DaemonSets, driver pods and nodes; makes and removes DaemonSets."""

    def __init__(self, api: Api, directory: Path, *, speed: float) -> None:
        self._api = api
        self._directory = directory
        self._unready_seconds = _UNREADY_SECONDS / speed
        self._seen: dict[str, dict[str, Object]] = {
            path: {} for path in (CONFIGURATIONS, _DAEMONSETS, _PODS, "/api/v1/nodes")
        }
        self._synced: set[str] = set()
        self._changed = asyncio.Event()
        self._unready_since: dict[str, float] = {}
        self._reported: dict[tuple[str, str], str] = {}
        self._loop = asyncio.get_running_loop()
        self._own_directory = directory / "checkpointing"
        self._own_directory.mkdir(parents=True, exist_ok=True)
        self._ranks = RankServer(
            self._shape_of,
            self._pool_of,
            port=self._port(),
            state=self._own_directory / "ranks.json",
            log=logger.info,
        )

    async def run(self) -> None:
        """Until cancelled."""
        self._keep_port()
        self._ranks.start()
        try:
            async with asyncio.TaskGroup() as group:
                for path in self._seen:
                    group.create_task(self._follow(path))
                group.create_task(self._reconcile_for_ever())
        finally:
            self._ranks.stop()

    async def _follow(self, path: str) -> None:
        async for event in self._api.follow(path):
            objects = self._seen[path]
            if event.type == "RESET":
                objects.clear()
                objects.update({item["metadata"]["name"]: item for item in event.items})
                self._synced.add(path)
            elif event.type == "DELETED":
                objects.pop(event.object["metadata"]["name"], None)
            else:
                objects[event.object["metadata"]["name"]] = event.object
            self._changed.set()
            if path == "/api/v1/nodes":
                self._ranks.stir()

    async def _reconcile_for_ever(self) -> None:
        while True:
            await self._changed.wait()
            await asyncio.sleep(_SETTLE_SECONDS)
            self._changed.clear()
            if len(self._synced) < len(self._seen):
                continue
            again = False
            for configuration in list(self._seen[CONFIGURATIONS].values()):
                try:
                    again |= await self._reconcile(configuration)
                except ApiFailure as failure:
                    logger.warning("%s: %s", configuration["metadata"]["name"], failure)
                    again = True
            again |= await self._delete_unready_drivers()
            if again:
                self._loop.call_later(_REQUEUE_SECONDS, self._changed.set)

    async def _reconcile(self, configuration: Object) -> bool:
        """True when it has to be tried again although nothing changes."""
        metadata = configuration["metadata"]
        existing = self._seen[_DAEMONSETS].get(daemonset.daemonset_name(configuration))
        finalizers = metadata.get("finalizers") or []
        if metadata.get("deletionTimestamp"):
            if existing is not None:
                await self._delete_daemonset(existing)
            elif daemonset.FINALIZER in finalizers and not self._driver_pods(configuration):
                kept = [one for one in finalizers if one != daemonset.FINALIZER]
                await self._set_finalizers(configuration, kept)
            return False
        if daemonset.FINALIZER not in finalizers:
            await self._set_finalizers(configuration, [*finalizers, daemonset.FINALIZER])
        if existing is not None:
            return False
        try:
            wanted = daemonset.driver_daemonset(configuration, directory=self._directory, rank_server=self._ranks.url)
            nodes = self._seen["/api/v1/nodes"].values()
            if daemonset.overlaps(configuration, nodes, self._all_driver_pods()):
                await self._report(
                    configuration,
                    "Conflict",
                    f"CheckpointConfiguration {metadata['name']} overlaps with existing configuration",
                )
                return True
        except Invalid as problem:
            logger.warning("%s: %s", metadata["name"], problem)
            return True
        await self._ensure_account()
        try:
            await self._api.create(_DAEMONSETS, wanted)
        except ApiFailure as failure:
            if failure.code != 409:
                raise
        else:
            logger.info("%s: created DaemonSet %s", metadata["name"], wanted["metadata"]["name"])
        return False

    async def _ensure_account(self) -> None:
        """The drivers' ServiceAccount, by whose principal they reach the bucket."""
        body = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": daemonset.SERVICE_ACCOUNT}}
        try:
            await self._api.create(f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts", body)
        except ApiFailure as failure:
            if failure.code != 409:
                raise

    async def _delete_daemonset(self, existing: Object) -> None:
        if existing["metadata"].get("deletionTimestamp"):
            return
        try:
            await self._api.delete(f"{_DAEMONSETS}/{existing['metadata']['name']}")
        except ApiFailure as failure:
            if failure.code != 404:
                raise

    async def _set_finalizers(self, configuration: Object, finalizers: list[str]) -> None:
        metadata = configuration["metadata"]
        change = {"metadata": {"finalizers": finalizers, "resourceVersion": metadata["resourceVersion"]}}
        try:
            await self._api.patch(f"{CONFIGURATIONS}/{metadata['name']}", change, kind=MERGE)
        except ApiFailure as failure:
            if failure.code not in (404, 409):
                raise

    async def _delete_unready_drivers(self) -> bool:
        """Driver pods that have not been Ready for five minutes are deleted. True while any is not Ready."""
        unready = {pod["metadata"]["name"] for pod in self._all_driver_pods() if not _ready(pod)}
        now = time.monotonic()
        self._unready_since = {name: self._unready_since.get(name, now) for name in unready}
        for name, since in self._unready_since.items():
            if now - since > self._unready_seconds:
                self._unready_since[name] = now
                logger.info("Driver pod %s is not Ready for too long: deleted", name)
                try:
                    await self._api.delete(f"{_PODS}/{name}")
                except ApiFailure as failure:
                    if failure.code != 404:
                        raise
        return bool(unready)

    async def _report(self, configuration: Object, reason: str, message: str) -> None:
        """An event about a configuration; once as long as it stays the same."""
        metadata = configuration["metadata"]
        if self._reported.get((metadata["uid"], reason)) == message:
            return
        time_now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        event = {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": f"{metadata['name']}.{uuid4().hex[:16]}", "namespace": "default"},
            "involvedObject": {
                "apiVersion": configuration["apiVersion"],
                "kind": configuration["kind"],
                "name": metadata["name"],
                "uid": metadata["uid"],
            },
            "type": "Warning",
            "reason": reason,
            "message": message,
            "source": {"component": "high-scale-checkpointing-controller"},
            "firstTimestamp": time_now,
            "lastTimestamp": time_now,
            "count": 1,
        }
        await self._api.create("/api/v1/namespaces/default/events", event)
        self._reported[metadata["uid"], reason] = message

    def _all_driver_pods(self) -> list[Object]:
        labels = daemonset.DRIVER_LABELS.items()
        return [pod for pod in self._seen[_PODS].values() if labels <= (pod["metadata"].get("labels") or {}).items()]

    def _driver_pods(self, configuration: Object) -> list[Object]:
        prefix = daemonset.daemonset_name(configuration) + "-"
        return [pod for pod in self._all_driver_pods() if pod["metadata"]["name"].startswith(prefix)]

    def _shape_of(self, namespace: str, name: str) -> JobShape | None:
        path = f"/apis/jobset.x-k8s.io/v1alpha2/namespaces/{namespace}/jobsets/{name}"
        try:
            found = asyncio.run_coroutine_threadsafe(self._api.get(path), self._loop).result(30)
        except ApiFailure as failure:
            if failure.code == 404:
                return None
            raise
        return job_shape(found)

    def _pool_of(self, name: str) -> str | None:
        node = self._seen["/api/v1/nodes"].get(name)
        return (node["metadata"].get("labels") or {}).get(_POOL_LABEL) if node else None

    def _port(self) -> int:
        try:
            return int((self._own_directory / "port").read_text())
        except FileNotFoundError:
            return 0

    def _keep_port(self) -> None:
        aside = self._own_directory / "port.tmp"
        aside.write_text(self._ranks.url.rsplit(":", 1)[1])
        aside.rename(self._own_directory / "port")


def _ready(pod: Object) -> bool:
    conditions = (pod.get("status") or {}).get("conditions") or []
    return any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)


async def serve(directory: Path, kubeconfig: Path, speed: float) -> None:
    """Runs the controller until SIGTERM or SIGINT."""
    async with Api(kubeconfig, user_agent="high-scale-checkpointing-controller") as api:
        running = asyncio.ensure_future(Controller(api, directory, speed=speed).run())
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, running.cancel)
        try:
            await running
        except asyncio.CancelledError:
            logger.info("ended on request")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--directory", type=Path, required=True, help="the sandbox's state directory")
    parser.add_argument("--kubeconfig", type=Path, required=True)
    parser.add_argument("--speed", type=float, default=10, help="divides the real system's long timers")
    arguments = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    asyncio.run(serve(arguments.directory.resolve(), arguments.kubeconfig, arguments.speed))


if __name__ == "__main__":
    main()

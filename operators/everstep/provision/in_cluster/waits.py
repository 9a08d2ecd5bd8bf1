"""What provisioning waits for inside a cluster: polled without blocking an event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from everstep.clients.access import ClusterAccess
from everstep.clients.kubernetes_async import AsyncKubernetesClient
from everstep.clients.resources import (
    CHECKPOINT_CONFIGURATIONS,
    CHECKPOINTING_NAMESPACE,
    CUSTOM_RESOURCE_DEFINITIONS,
    DAEMON_SETS,
    DEPLOYMENTS,
    EVENTS,
    NODES,
    PODS,
)
from everstep.provision.in_cluster import drivers, jobset
from everstep.spec.findings import FindingsError, error

POLL_SECONDS = 3.0
# Events about objects without a namespace lie here.
EVENTS_NAMESPACE = "default"


class Polling:
    """Base of the waits: looks again and again. `standing` says how things stood at the last look."""

    def __init__(self, arguments: Mapping[str, Any], access: Mapping[str, Any]) -> None:
        self._arguments = arguments
        self._access = ClusterAccess(**access["cluster"])
        self._poll = float(arguments.get("poll", POLL_SECONDS))
        self.standing = ""

    async def outcome(self) -> str:
        """Wait, and say how it ended. Raises FindingsError when it has failed for good."""
        async with self._access.open_async() as client:
            while True:
                outcome = await self._look(client)
                if outcome is not None:
                    return outcome
                await asyncio.sleep(self._poll)

    async def _look(self, client: AsyncKubernetesClient) -> str | None:
        raise NotImplementedError


class KindServed(Polling):
    """A CustomResourceDefinition (`name`) is there and established."""

    async def _look(self, client: AsyncKubernetesClient) -> str | None:
        name = self._arguments["name"]
        found = await client.find(CUSTOM_RESOURCE_DEFINITIONS, name)
        self.standing = "it is not there" if found is None else "it is there, but not established"
        conditions = ((found or {}).get("status") or {}).get("conditions") or ()
        established = any(each.get("type") == "Established" and each.get("status") == "True" for each in conditions)
        return f"{name} is served" if established else None


class DeploymentAvailable(Polling):
    """A Deployment (`namespace`, `name`) is rolled out and available."""

    async def _look(self, client: AsyncKubernetesClient) -> str | None:
        name, namespace = self._arguments["name"], self._arguments["namespace"]
        found = await client.find(DEPLOYMENTS, name, namespace)
        if found is None:
            self.standing = "it is not there"
            return None
        if jobset.is_available(found):
            return f"Deployment {namespace}/{name} is available"
        status = found.get("status") or {}
        told = [
            f"{each['type']} {each['status']}: {each.get('message', '')}" for each in status.get("conditions") or ()
        ]
        self.standing = f"{status.get('availableReplicas') or 0} replicas available; {'; '.join(told)}"
        return None


class ConfigurationGone(Polling):
    """A CheckpointConfiguration (`name`, `uid`) is gone with its DaemonSet and driver pods: the RAM is free."""

    async def _look(self, client: AsyncKubernetesClient) -> str | None:
        name, uid = self._arguments["name"], self._arguments["uid"]
        found = await client.find(CHECKPOINT_CONFIGURATIONS, name)
        gone = {"metadata": {"uid": uid}}
        left = []
        if found is not None and found["metadata"]["uid"] == uid:
            left.append(f"held by {', '.join(found['metadata'].get('finalizers') or ()) or 'nothing'}")
        driver = drivers.daemon_set_name(gone)
        if await client.find(DAEMON_SETS, driver, CHECKPOINTING_NAMESPACE) is not None:
            left.append(f"DaemonSet {driver} is there")
        pods, _ = await client.list_all(PODS, CHECKPOINTING_NAMESPACE)
        left += [
            f"pod {pod['metadata']['name']} on node {(pod.get('spec') or {}).get('nodeName')} is "
            + ("ending" if pod["metadata"].get("deletionTimestamp") else "there")
            for pod in drivers.own_pods(gone, pods)[:5]
        ]
        self.standing = "; ".join(left)
        return None if left else f"CheckpointConfiguration {name} and its driver are gone, and the RAM is free"


class DriverReady(Polling):
    """The driver of a CheckpointConfiguration (`name`, `uid`) is ready on every node that it selects."""

    async def _look(self, client: AsyncKubernetesClient) -> str | None:
        name, uid = self._arguments["name"], self._arguments["uid"]
        where = f"CheckpointConfiguration {name}"
        found = await client.find(CHECKPOINT_CONFIGURATIONS, name)
        if found is None or found["metadata"]["uid"] != uid or found["metadata"].get("deletionTimestamp"):
            state = "gone" if found is None else "being deleted, or another one by now"
            raise FindingsError("the checkpoint driver does not come", [error(where, state, "it to stay")])
        driver = drivers.daemon_set_name(found)
        if await client.find(DAEMON_SETS, driver, CHECKPOINTING_NAMESPACE) is None:
            await self._refuse_conflict(client, where, uid)
            pods, _ = await client.list_all(PODS, CHECKPOINTING_NAMESPACE)
            blocking = drivers.unscheduled(pods)
            why = f", because pod {', '.join(blocking)} has no node yet" if blocking else ""
            self.standing = f"its controller has not made DaemonSet {driver} yet{why}"
            return None
        selector = ",".join(
            f"{key}={value}" for key, value in sorted((found["spec"].get("nodeSelector") or {}).items())
        )
        nodes, _ = await client.list_all(NODES, labels=selector)
        pods, _ = await client.list_all(PODS, CHECKPOINTING_NAMESPACE)
        standing = drivers.standing(found, nodes, pods)
        if not standing.is_ready:
            events, _ = await client.list_all(EVENTS, CHECKPOINTING_NAMESPACE, fields="type=Warning")
            standing = drivers.standing(found, nodes, pods, events)
        self.standing = str(standing)
        return f"{where}: {standing}" if standing.is_ready else None

    async def _refuse_conflict(self, client: AsyncKubernetesClient, where: str, uid: str) -> None:
        events, _ = await client.list_all(EVENTS, EVENTS_NAMESPACE, fields=f"involvedObject.uid={uid},reason=Conflict")
        if events:
            raise FindingsError(
                "the checkpoint driver does not come",
                [
                    error(
                        where,
                        f"Conflict: {events[-1].get('message', '')}",
                        "a configuration whose nodes no other one selects",
                        "kubectl get checkpointconfigurations -o yaml, and delete the one that is not needed",
                    )
                ],
            )

"""Waiting, during an upgrade, for a run's durable save and for its pods to be gone."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from everstep.checkpoints.layout import RunFolder
from everstep.clients import run_folder
from everstep.clients.access import StorageAccess
from everstep.clients.kubernetes_async import AsyncKubernetesClient
from everstep.clients.requests import ReadRequest, Steps, stored
from everstep.clients.resources import JOBSETS, PODS
from everstep.launch import labels
from everstep.provision.in_cluster.waits import Polling
from everstep.spec.findings import FindingsError, error
from everstep.watch import run_state


def saved_step(folder: RunFolder, request: str) -> Steps[int | None]:
    """Read which step a run has saved durably, and completely, for a request; None when it has not."""
    documents = yield from run_folder.progress(folder, with_run_record=False)
    status = documents.get("status.json") or {}
    step = status.get("save_step")
    if status.get("save_answered") != request or not isinstance(step, int):
        return None
    marker = stored((yield [ReadRequest(folder.durable_marker(step))])[0])
    return None if marker is None else step


class RunSaved(Polling):
    """A run has saved durably for a request; fails when its JobSet is gone, or another one, or has ended."""

    def __init__(self, arguments: Mapping[str, Any], access: Mapping[str, Any]) -> None:
        super().__init__(arguments, access)
        self._storage = StorageAccess(**access["storage"])

    async def _look(self, client: AsyncKubernetesClient) -> str | None:
        name, namespace = self._arguments["name"], self._arguments["namespace"]
        folder = RunFolder(self._arguments["bucket"], self._arguments["run"])
        async with self._storage.open_async(folder.bucket) as bucket:
            step = await bucket.run(saved_step(folder, self._arguments["request"]))
        if step is not None:
            return f"run {folder.run} has saved step {step} durably"
        jobset = await client.find(JOBSETS, name, namespace)
        state = None if jobset is None else run_state.of_jobset(jobset)
        if state is None or state.uid != self._arguments["uid"] or state.is_terminal:
            raise FindingsError(
                "the run can't save any more",
                [
                    error(
                        f"JobSet {namespace}/{name}", "gone" if state is None else str(state), "the run that was asked"
                    )
                ],
            )
        pods, _ = await client.list_all(PODS, namespace, labels=f"{labels.JOBSET_NAME}={name}")
        asked = [
            pod
            for pod in pods
            if (pod["metadata"].get("annotations") or {}).get(labels.SAVE_REQUESTED) == self._arguments["request"]
        ]
        if pods and not asked:
            return f"run {folder.run} has restarted before it saved: it is asked again"
        self.standing = f"{state}; {len(asked)} of {len(pods)} pods have been asked, and no save is complete"
        return None


class RunStopped(Polling):
    """No pod of a suspended JobSet is left."""

    async def _look(self, client: AsyncKubernetesClient) -> str | None:
        name, namespace = self._arguments["name"], self._arguments["namespace"]
        pods, _ = await client.list_all(PODS, namespace, labels=f"{labels.JOBSET_NAME}={name}")
        live = [pod for pod in pods if (pod.get("status") or {}).get("phase") not in ("Succeeded", "Failed")]
        if not live:
            return f"JobSet {namespace}/{name} is suspended"
        first = live[0]
        self.standing = f"{len(live)} pods are left, such as {first['metadata']['name']} on node " + str(
            (first.get("spec") or {}).get("nodeName")
        )
        return None

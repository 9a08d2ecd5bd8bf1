"""The rest of the sandbox as what stands behind the first cluster of the project: its API, add-ons and machines."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml

from everstep_sandbox import machine_kinds, nodes
from everstep_sandbox.google import cluster_file, shapes
from everstep_sandbox.google.cluster_file import ClusterFile
from everstep_sandbox.google.operations import EffectFailed
from everstep_sandbox.kubernetes.bootstrap import CSI_DRIVER, csi_driver, definition
from everstep_sandbox.kubernetes.kubeconfig import Address, read
from everstep_sandbox.kubernetes.resources import BY_PLURAL
from everstep_sandbox.stack import record
from everstep_sandbox.stack.furnish import RequestError, request

Object = dict[str, Any]

_PATIENCE_SECONDS = 120.0
_POLL_SECONDS = 0.1
_NAMESPACE = "gke-managed-checkpointing"
_DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
_DRIVERS = "/apis/storage.k8s.io/v1/csidrivers"


class SandboxWorld:
    """One cluster runs; clusters beside it are only recorded."""

    def __init__(self, directory: Path, number: str) -> None:
        self._directory = directory
        self._number = number

    def address(self, cluster: Object) -> Object:
        """The port of the API may be another one after a restart, so it is looked up each time."""
        known = cluster_file.read(self._directory)
        if known is None or known.name != shapes.path_of(cluster) or not (self._directory / "kubeconfig").exists():
            return {"endpoint": cluster.get("endpoint", "127.0.0.1")}
        return {"endpoint": self._address().server.partition("://")[2], "masterAuth": self._authority()}

    async def cluster_made(self, cluster: Object) -> None:
        known = cluster_file.read(self._directory)
        if known is not None and known.name != shapes.path_of(cluster):
            return
        if not (self._directory / "machines.json").exists():
            nodes.save(self._directory / "machines.json", [])
        # The add-ons follow with the first change, once the API is there.
        cluster_file.write(self._directory, self._file(cluster, checkpointing=False))
        await self._stir(lambda now: bool(now.kubernetes), "the cluster's control plane")

    async def cluster_changed(self, cluster: Object) -> None:
        known = cluster_file.read(self._directory)
        if known is None or known.name != shapes.path_of(cluster):
            return
        wanted = self._file(cluster, checkpointing=_addon(cluster, "highScaleCheckpointingConfig"))
        if wanted.checkpointing:
            await asyncio.to_thread(self._install_checkpointing)
        elif known.checkpointing:
            # The controller lives until its objects are gone: it takes their finalizers away.
            await asyncio.to_thread(self._uninstall_checkpointing)
            await self._until(self._definition_is_gone, "the CheckpointConfigurations to go")
        cluster_file.write(self._directory, wanted)
        if wanted.checkpointing != known.checkpointing:
            await self._stir(
                lambda now: now.is_alive("checkpointing") == wanted.checkpointing, "the checkpointing controller"
            )
        await self._resize(cluster)

    async def cluster_gone(self, cluster: Object) -> None:
        known = cluster_file.read(self._directory)
        if known is not None and known.name == shapes.path_of(cluster):
            cluster_file.path(self._directory).unlink()
            await self._stir(lambda now: not now.kubernetes, "the cluster to be taken down")

    def _file(self, cluster: Object, *, checkpointing: bool) -> ClusterFile:
        known = cluster_file.read(self._directory)
        return ClusterFile(
            name=shapes.path_of(cluster),
            number=self._number,
            checkpointing=checkpointing,
            gcs_fuse=_addon(cluster, "gcsFuseCsiDriverConfig"),
            workload_pool=(cluster.get("workloadIdentityConfig") or {}).get("workloadPool"),
            furnished=known is not None and known.furnished,
        )

    async def _resize(self, cluster: Object) -> None:
        before = {machine.name: machine for machine in nodes.load(self._directory / "machines.json")}
        wanted = []
        for pool in cluster["nodePools"]:
            if pool["status"] == "ERROR":
                continue
            for number in range(pool["initialNodeCount"] * len(pool["locations"])):
                kind: Object | None = machine_kinds.of_pool(pool, pool["locations"][number % len(pool["locations"])])
                name = f"gke-{cluster['name']}-{pool['name']}-{number}"
                is_furnished = name in before and before[name].kind is None
                if is_furnished and machine_kinds.METADATA_SERVER_LABEL in (kind or {})["labels"]:
                    kind = None
                wanted.append({"name": name, "pool": pool["name"], "kind": kind})
        same = {name: machine.kind for name, machine in before.items()}
        if same == {one["name"]: one["kind"] for one in wanted}:
            return
        now = record.read(self._directory)
        door = now.kubelet if now is not None else ""
        try:
            await asyncio.to_thread(request, "POST", f"{door}/faults/resize", {"machines": wanted})
        except (RequestError, OSError) as problem:
            raise EffectFailed(f"The machines can't be made or removed: {problem}") from problem

    def _install_checkpointing(self) -> None:
        self._ensure("/api/v1/namespaces", {"metadata": {"name": _NAMESPACE}})
        self._ensure(_DRIVERS, csi_driver())
        found = definition(BY_PLURAL["checkpointconfigurations"])
        self._ensure(_DEFINITIONS, {key: value for key, value in found.items() if key != "status"})

    def _uninstall_checkpointing(self) -> None:
        name = BY_PLURAL["checkpointconfigurations"].qualified
        for path in (f"{_DEFINITIONS}/{name}", f"{_DRIVERS}/{CSI_DRIVER}"):
            try:
                self._ask("DELETE", path)
            except RequestError as problem:
                if problem.code != 404:
                    raise EffectFailed(f"The add-on can't be removed: {problem}") from problem

    def _definition_is_gone(self) -> bool:
        try:
            self._ask("GET", f"{_DEFINITIONS}/{BY_PLURAL['checkpointconfigurations'].qualified}")
        except RequestError as problem:
            return problem.code == 404
        return False

    def _ensure(self, path: str, body: Object) -> None:
        try:
            self._ask("POST", path, body)
        except RequestError as problem:
            if problem.code != 409:
                raise EffectFailed(f"The add-on can't be installed: {problem}") from problem
        except OSError as problem:
            raise EffectFailed(f"The cluster does not answer: {problem}") from problem

    def _ask(self, method: str, path: str, body: Object | None = None) -> Object:
        address = self._address()
        return request(method, f"{address.server}{path}", body, address.token, address.context)

    def _address(self) -> Address:
        return read(self._directory / "kubeconfig")

    def _authority(self) -> Object:
        """`masterAuth`, where the control plane speaks TLS."""
        (cluster,) = yaml.safe_load((self._directory / "kubeconfig").read_text(encoding="utf-8"))["clusters"]
        authority = cluster["cluster"].get("certificate-authority-data")
        return {"clusterCaCertificate": authority} if authority else {}

    async def _stir(self, holds: Callable[[record.Record], bool], what: str) -> None:
        """Lets the supervisor start or end parts, and waits until it has."""
        os.kill(os.getppid(), signal.SIGHUP)

        def is_so() -> bool:
            now = record.read(self._directory)
            return now is not None and holds(now)

        await self._until(is_so, what)

    async def _until(self, holds: Callable[[], bool], what: str) -> None:
        try:
            async with asyncio.timeout(_PATIENCE_SECONDS):
                while not await asyncio.to_thread(holds):  # noqa: ASYNC110 (other processes bring it about)
                    await asyncio.sleep(_POLL_SECONDS)
        except TimeoutError:
            raise EffectFailed(
                f"Waited {_PATIENCE_SECONDS:.0f} s in vain for {what}; see the sandbox's logs."
            ) from None


def _addon(cluster: Object, name: str) -> bool:
    return bool((cluster["addonsConfig"].get(name) or {}).get("enabled"))

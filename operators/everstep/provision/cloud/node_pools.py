"""Node pools: one for each slice of the cluster file's pools; made, sized, and deleted only when asked."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from everstep.provision.changes import Change, Look
from everstep.provision.cloud import bodies, gcloud, terraform
from everstep.provision.cloud.node_pool_differences import differences, message_of
from everstep.provision.cloud.nodes_in_use import in_use
from everstep.provision.cloud.under_way import begun, cluster_of, joined
from everstep.spec.findings import Finding, error, errors_of, warning

if TYPE_CHECKING:
    from everstep.provision.site import Site
    from everstep.spec.pools import PoolSpec

Object = dict[str, Any]

Size = Literal["full", "zero"]


@dataclass(frozen=True)
class NodePoolsStep:
    """The node pools of a cluster file's pools.

    :param pools: only these pools of the cluster file; all of them if None
    :param size: `full` gives each slice its nodes, `zero` takes the nodes of all and keeps the node pools
    :param force: recreate nodes for the GKE metadata server, or take them, also while somebody runs on them
    """

    site: Site
    pools: tuple[str, ...] | None = None
    size: Size = "full"
    force: bool = False
    title: str = "node pools"

    def look(self) -> Look:
        """Return which node pools are missing, have other sizes, or lack the GKE metadata server."""
        google, spec = self.site.google(), self.site.spec
        cluster = cluster_of(google, spec)
        there = {pool["name"]: pool for pool in (cluster or {}).get("nodePools") or ()}
        wanted = list(_wanted(self.site, self.pools))
        findings = [
            *node_pool_findings(self.site, there, self.pools),
            *_without_metadata(self.site, there, {name for name, _ in wanted}),
        ]
        if errors_of(findings):
            return Look(tuple(findings))
        waiting = joined(google, spec, cluster) if cluster is not None else None
        if waiting is not None:
            return Look(tuple(findings), waiting=waiting)
        changes = [
            each
            for name, pool in wanted
            for each in self._changes(name, pool, there.get(name), new_cluster=cluster is None)
        ]
        for name, _ in wanted if not self.force else ():
            if name in there and (why := self._ends_pods(there[name])):
                findings += in_use(self.site, there[name], why)
        return Look(tuple(findings), tuple(changes))

    def _ends_pods(self, found: Object) -> str:
        """Return, in words, what of the changes to a node pool ends the pods on its nodes; nothing where none does."""
        if _lacks_metadata(found):
            return "the GKE metadata server recreates all its nodes, and ends every pod on them"
        if self.size == "zero" and not (found.get("autoscaling") or {}).get("enabled"):
            return "taking its nodes ends every pod on them"
        return ""

    def _changes(self, name: str, pool: PoolSpec, found: Object | None, *, new_cluster: bool) -> Iterator[Change]:
        if found is None:
            if self.size == "full":
                yield self._create(name, pool, new_cluster=new_cluster)
            return
        if found.get("status") == "ERROR":
            why = f"GKE could not make it: {message_of(found)}"
            yield delete_change(self.site, name, why, "it never worked; it is made anew afterwards")
            if self.size == "full":
                yield self._create(name, pool)
            return
        if _lacks_metadata(found):
            yield self._give_metadata(name, pool)
        if (found.get("autoscaling") or {}).get("enabled"):
            # Its size is the autoscaler's: flex-start nodes come and go with the pods that ask for them.
            return
        size = self.site.google().node_pool_size(found)
        if self.size == "full" and size < pool.nodes_per_slice:
            yield self._resize(name, size, pool.nodes_per_slice, "its nodes are billed from then on")
        if self.size == "zero" and size > 0:
            yield self._resize(name, size, 0, "ends the pods on its nodes and loses what their RAM disks hold")

    def _create(self, name: str, pool: PoolSpec, *, new_cluster: bool = False) -> Change:
        google, spec = self.site.google(), self.site.spec
        nodes = 0 if pool.flex_start else pool.nodes_per_slice
        body = bodies.node_pool(spec, pool, name, nodes=nodes)
        kind = "spot" if pool.spot else "flex-start" if pool.flex_start else "on demand"
        capacity = f"reservation {pool.reservation}" if pool.reservation else kind
        topology = f" {pool.topology}" if pool.topology else ""
        return Change(
            object=f"node pool {name}",
            action="create",
            found="none",
            wanted=f"{pool.nodes_per_slice} x {pool.machine_type}{topology}, {capacity}",
            act=lambda: begun(
                google, spec, lambda: google.create_node_pool(spec.project, spec.location, spec.name, body)
            ),
            commands=(gcloud.create_node_pool(spec, pool, name, nodes=nodes),),
            terraform=terraform.node_pool(spec, pool, name, nodes=nodes, new_cluster=new_cluster),
            note="its nodes are billed from then on" if nodes else "nodes come when pods ask for them, for 7 days",
        )

    def _give_metadata(self, name: str, pool: PoolSpec) -> Change:
        google, spec = self.site.google(), self.site.spec
        update = {"workloadMetadataConfig": bodies.GKE_METADATA}
        nodes = pool.nodes_per_slice
        return Change(
            object=f"node pool {name}",
            action="update",
            found="no GKE metadata server: pods there have no Workload Identity",
            wanted="GKE_METADATA",
            act=lambda: begun(
                google, spec, lambda: google.update_node_pool(spec.project, spec.location, spec.name, name, update)
            ),
            commands=(gcloud.node_pool_metadata(spec, name),),
            terraform=terraform.node_pool(spec, pool, name, nodes=nodes, exists=True),
            note="recreates all its nodes: ends the pods on them and loses what their RAM disks hold",
        )

    def _resize(self, name: str, found: int, nodes: int, note: str) -> Change:
        google, spec = self.site.google(), self.site.spec
        pool = next(kind for each, kind in _wanted(self.site, None) if each == name)
        return Change(
            object=f"node pool {name}",
            action="resize",
            found=f"{found} nodes",
            wanted=f"{nodes} nodes",
            act=lambda: begun(
                google, spec, lambda: google.resize_node_pool(spec.project, spec.location, spec.name, name, nodes)
            ),
            commands=(gcloud.resize_node_pool(spec, name, nodes),),
            terraform=terraform.node_pool(spec, pool, name, nodes=nodes, exists=True),
            note=note,
        )


@dataclass(frozen=True)
class DeleteNodePoolsStep:
    """Deletes the node pools of some of a cluster file's pools, and no others.

    :param pools: pools of the cluster file
    :param force: also while somebody runs on their nodes
    """

    site: Site
    pools: tuple[str, ...]
    force: bool = False
    title: str = "node pools to delete"

    def look(self) -> Look:
        """Return which of them are there."""
        google, spec = self.site.google(), self.site.spec
        cluster = cluster_of(google, spec)
        if cluster is None:
            return Look()
        waiting = joined(google, spec, cluster)
        if waiting is not None:
            return Look(waiting=waiting)
        there = {pool["name"]: pool for pool in cluster.get("nodePools") or ()}
        note = "ends the pods on its nodes and loses what their RAM disks hold"
        gone = [name for name, _ in _wanted(self.site, self.pools) if name in there]
        why = "deleting it ends every pod on its nodes"
        findings = [each for name in gone if not self.force for each in in_use(self.site, there[name], why)]
        changes = [delete_change(self.site, name, "a node pool", note) for name in gone]
        return Look(tuple(findings), tuple(changes))


def node_pool_findings(site: Site, there: dict[str, Object], pools: tuple[str, ...] | None = None) -> Iterator[Finding]:
    """Return what is wrong with node pools that exist, given by name, and that can't be mended by a change."""
    for name, pool in _wanted(site, pools):
        found, where = there.get(name), f"node pool {name}"
        if found is None:
            continue
        for field, has, expected in differences(site.spec, pool, found):
            yield error(
                where,
                f"{field} {has}",
                f"{expected}; a node pool can't be changed into another one",
                f"name others by node_pools, or delete it: {gcloud.delete_node_pool(site.spec, name)}",
            )
        if found.get("status") == "ERROR":
            yield from _broken(site, name, found)
        if found.get("status") == "RUNNING_WITH_ERROR":
            yield warning(where, f"RUNNING_WITH_ERROR: {message_of(found)}", "RUNNING")


def _broken(site: Site, name: str, found: Object) -> Iterator[Finding]:
    """Return an error for a node pool in status ERROR, unless it is Everstep's own and never got a machine."""
    where, why = f"node pool {name}", f"ERROR: {message_of(found)}"
    remedy = gcloud.delete_node_pool(site.spec, name)
    if not _is_ours(found):
        yield error(where, why, "a node pool that works", remedy)
    elif running := site.google().node_pool_running(found):
        yield error(
            where,
            f"{why}, while {running} of its machines run",
            "a node pool that works, or one without machines, which is made anew",
            f"look what runs there; when nobody needs it: {remedy}",
        )


def delete_change(site: Site, name: str, found: str, note: str) -> Change:
    """Return the deletion of a node pool."""
    google, spec = site.google(), site.spec
    return Change(
        object=f"node pool {name}",
        action="delete",
        found=found,
        wanted="none",
        act=lambda: begun(google, spec, lambda: google.delete_node_pool(spec.project, spec.location, spec.name, name)),
        commands=(gcloud.delete_node_pool(spec, name),),
        note=note,
    )


def _wanted(site: Site, pools: tuple[str, ...] | None) -> Iterator[tuple[str, PoolSpec]]:
    """Return the node pools, by name, of all pools or of some."""
    for pool, kind in site.spec.pools.items():
        if pools is None or pool in pools:
            for name in site.spec.node_pool_names(pool):
                yield name, kind


def _lacks_metadata(pool: Object) -> bool:
    return ((pool.get("config") or {}).get("workloadMetadataConfig") or {}).get("mode") != "GKE_METADATA"


def _is_ours(pool: Object) -> bool:
    labels = (pool.get("config") or {}).get("resourceLabels") or {}
    return all(labels.get(key) == value for key, value in bodies.LABELS.items())


def _without_metadata(site: Site, there: dict[str, Object], wanted: set[str]) -> Iterator[Finding]:
    """Other people's node pools that a CheckpointConfiguration covers by their machine type; they are left alone."""
    covered = {each.machine_type for each in site.spec.checkpoint_configurations.values()}
    mine = {name for pool in site.spec.pools for name in site.spec.node_pool_names(pool)}
    for name, pool in there.items():
        config = pool.get("config") or {}
        if name not in wanted | mine and config.get("machineType") in covered and _lacks_metadata(pool):
            yield warning(
                f"node pool {name}",
                f"{config['machineType']} without the GKE metadata server: the checkpoint driver gets no token there",
                "GKE_METADATA",
                gcloud.node_pool_metadata(site.spec, name),
            )

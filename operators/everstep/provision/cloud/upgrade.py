"""The cluster's version, when somebody asks for a new one: the control plane first, then the nodes of training."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from everstep.provision.changes import Change, Look
from everstep.provision.cloud import gcloud
from everstep.provision.cloud.under_way import begun, cluster_of, joined
from everstep.spec.findings import FindingsError, error
from everstep.spec.gke_versions import GkeVersion

if TYPE_CHECKING:
    from everstep.provision.site import Site

Object = dict[str, Any]


@dataclass(frozen=True)
class UpgradeStep:
    """Brings control plane and the node pools of the cluster file to a version; never back to an older one.

    :param version: e.g. 1.34.1-gke.1829001
    """

    site: Site
    version: str
    title: str = "cluster version"

    def look(self) -> Look:
        """Return what has an older version. Raises FindingsError without a cluster or a version that can be read."""
        google, spec = self.site.google(), self.site.spec
        try:
            GkeVersion.of(self.version)
        except ValueError as mistake:
            raise FindingsError(
                "the cluster can't be upgraded", [error("version", self.version, str(mistake))]
            ) from None
        cluster = cluster_of(google, spec)
        if cluster is None:
            missing = error(f"cluster {spec.name}", "none", "a cluster that exists", gcloud.create_cluster(spec))
            raise FindingsError("the cluster can't be upgraded", [missing])
        waiting = joined(google, spec, cluster)
        return Look(changes=() if waiting else tuple(self._changes(cluster)), waiting=waiting)

    def _changes(self, cluster: Object) -> Iterator[Change]:
        google, spec, version = self.site.google(), self.site.spec, self.version
        found = str(cluster["currentMasterVersion"])
        if GkeVersion.of(found) < GkeVersion.of(version):
            yield Change(
                object=f"cluster {spec.name}",
                action="upgrade",
                found=f"control plane {found}",
                wanted=version,
                act=lambda: begun(
                    google,
                    spec,
                    lambda: google.update_cluster(
                        spec.project, spec.location, spec.name, {"desiredMasterVersion": version}
                    ),
                ),
                commands=(gcloud.upgrade_control_plane(spec, version),),
                note="there is no way back; a zonal cluster's API is away for some minutes",
            )
        ours = {name for pool in spec.pools for name in spec.node_pool_names(pool)}
        for pool in cluster.get("nodePools") or ():
            if pool["name"] in ours and GkeVersion.of(str(pool["version"])) < GkeVersion.of(version):
                yield self._upgrade_nodes(str(pool["name"]), str(pool["version"]))

    def _upgrade_nodes(self, name: str, found: str) -> Change:
        google, spec, version = self.site.google(), self.site.spec, self.version
        return Change(
            object=f"node pool {name}",
            action="upgrade",
            found=found,
            wanted=version,
            act=lambda: begun(
                google,
                spec,
                lambda: google.update_node_pool(spec.project, spec.location, spec.name, name, {"nodeVersion": version}),
            ),
            commands=(gcloud.upgrade_node_pool(spec, name, version),),
            note="recreates all its nodes: ends the pods on them and loses what their RAM disks hold",
        )

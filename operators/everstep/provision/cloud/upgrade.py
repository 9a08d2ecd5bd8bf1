"""The cluster's version, when somebody asks for a new one: the control plane first, then the nodes of training."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from everstep.provision.changes import Change, Look
from everstep.provision.cloud import gcloud
from everstep.provision.cloud.under_way import begun, cluster_of, joined
from everstep.spec.findings import Finding, error
from everstep.spec.gke_versions import GkeVersion

if TYPE_CHECKING:
    from everstep.provision.site import Site

Object = dict[str, Any]


@dataclass(frozen=True)
class VersionStep:
    """What would stop an upgrade to a version, known before runs are suspended for it. Changes nothing.

    :param version: e.g. 1.34.1-gke.1829001
    """

    site: Site
    version: str
    title: str = "version of the upgrade"

    def look(self) -> Look:
        """Return an error where there is no cluster, or GKE would refuse the version."""
        cluster = cluster_of(self.site.google(), self.site.spec)
        return Look(tuple(_findings(self.site, self.version, cluster)))


@dataclass(frozen=True)
class UpgradeStep:
    """Brings control plane and the node pools of the cluster file to a version; never back to an older one.

    :param version: e.g. 1.34.1-gke.1829001
    """

    site: Site
    version: str
    title: str = "cluster version"

    def look(self) -> Look:
        """Return what has an older version."""
        google, spec = self.site.google(), self.site.spec
        cluster = cluster_of(google, spec)
        findings = tuple(_findings(self.site, self.version, cluster))
        if findings or cluster is None:
            return Look(findings)
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


def _findings(site: Site, version: str, cluster: Object | None) -> Iterator[Finding]:
    spec = site.spec
    try:
        wanted = GkeVersion.of(version)
    except ValueError as mistake:
        yield error("version", repr(version), str(mistake))
        return
    if cluster is None:
        yield error(f"cluster {spec.name}", "none", "a cluster that exists", gcloud.create_cluster(spec))
        return
    found = GkeVersion.of(str(cluster["currentMasterVersion"]))
    if found >= wanted:
        return
    offer = site.google().server_config(spec.project, spec.location)
    offered = sorted(
        {
            each
            for text in (
                *offer.get("validMasterVersions", ()),
                *(text for channel in offer.get("channels", ()) for text in channel.get("validVersions", ())),
            )
            if found < (each := GkeVersion.of(text)) and _is_next(found, each)
        },
        reverse=True,
    )
    choice = f"one of {', '.join(map(str, offered))}" if offered else "GKE offers nothing newer"
    if not _is_next(found, wanted):
        far = f"{wanted}, which skips a minor version of {found}: GKE upgrades a control plane by one at a time"
        yield error("version", far, choice)
    elif wanted not in offered:
        yield error("version", f"{wanted}, which GKE does not offer in {spec.location}", choice)


def _is_next(found: GkeVersion, wanted: GkeVersion) -> bool:
    """Say whether a version is at most one minor version further."""
    return found.major == wanted.major and wanted.minor <= found.minor + 1

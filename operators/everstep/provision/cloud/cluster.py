"""The cluster: made, or given what multi-tier checkpointing needs; everything else in it stays as it is."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from everstep.clients.errors import Forbidden
from everstep.clients.google_requests import SERVICE_DISABLED
from everstep.provision.changes import Change, Look
from everstep.provision.cloud import bodies, gcloud, terraform
from everstep.provision.cloud.node_pools import node_pool_findings
from everstep.provision.cloud.principals import workload_pool
from everstep.provision.cloud.under_way import begun, cluster_of, joined
from everstep.spec.findings import Finding, error, errors_of, note, warning
from everstep.spec.gke_versions import LEAST_FOR_NEW, TOO_OLD, GkeVersion

if TYPE_CHECKING:
    from everstep.provision.site import Site

Object = dict[str, Any]


@dataclass(frozen=True)
class ClusterStep:
    """The cluster with Workload Identity and the add-ons HighScaleCheckpointing and GcsFuseCsiDriver."""

    site: Site
    title: str = "cluster"

    def look(self) -> Look:
        """Return what the cluster lacks, or that there is none."""
        google, spec = self.site.google(), self.site.spec
        cluster = cluster_of(google, spec)
        if cluster is None:
            findings = tuple(self._findings_of_new())
            return Look(findings, () if errors_of(findings) else (self._create(),))
        findings = tuple(self._findings(cluster))
        if errors_of(findings):
            return Look(findings)
        waiting = joined(google, spec, cluster)
        return Look(findings, () if waiting else tuple(self._changes(cluster)), waiting)

    def _create(self) -> Change:
        google, spec = self.site.google(), self.site.spec
        nodes = spec.gke.system_nodes
        return Change(
            object=f"cluster {spec.name}",
            action="create",
            found="none",
            wanted=f"{spec.gke.version or 'GKE default'} in {spec.location}, with {nodes.count} x {nodes.machine_type}",
            act=lambda: begun(
                google, spec, lambda: google.create_cluster(spec.project, spec.location, bodies.cluster(spec))
            ),
            commands=(gcloud.create_cluster(spec),),
            terraform=terraform.cluster(spec),
            note="takes several minutes; control plane and system nodes are billed from then on",
        )

    def _findings_of_new(self) -> Iterator[Finding]:
        """Look whether GKE offers the version that a new cluster would get."""
        spec = self.site.spec
        try:
            offer = self.site.google().server_config(spec.project, spec.location)
        except Forbidden as refusal:
            if refusal.reason == SERVICE_DISABLED:
                # Once the API is enabled, this is looked at again before the cluster is made.
                return
            raise
        channel = spec.gke.release_channel.upper()
        said: Object = next((each for each in offer.get("channels", ()) if each.get("channel") == channel), {})
        offered = {*offer.get("validMasterVersions", ()), *said.get("validVersions", ())}
        wanted = spec.gke.version
        if wanted is None:
            default = str(said.get("defaultVersion") or offer.get("defaultClusterVersion") or "")
            if not default or GkeVersion.of(default) >= LEAST_FOR_NEW:
                return
            yield error(
                f"cluster {spec.name}",
                f"GKE's default version in {spec.location} is {default}",
                f"at least {LEAST_FOR_NEW}",
                f"set gke.version to one of {_newest(offered)}",
            )
        elif wanted not in offered:
            yield error(
                "gke.version", f"{wanted}, which GKE does not offer in {spec.location}", f"one of {_newest(offered)}"
            )

    def _findings(self, cluster: Object) -> Iterator[Finding]:
        spec, name = self.site.spec, f"cluster {self.site.spec.name}"
        status, message = cluster.get("status"), _message(cluster)
        if (cluster.get("autopilot") or {}).get("enabled"):
            yield error(name, "an Autopilot cluster", "a Standard one: Autopilot has no multi-tier checkpointing")
            return
        if status == "ERROR":
            remedy = f"when nobody needs it any more: {gcloud.delete_cluster(spec)}"
            yield error(name, f"ERROR{message}", "a cluster that works", remedy)
        if status == "STOPPING":
            yield error(name, "it is being deleted", "a cluster that stays", "wait until it is gone, then run again")
        if status == "DEGRADED":
            yield warning(name, f"DEGRADED{message}", "RUNNING")
        version = str(cluster.get("currentMasterVersion") or "")
        if version and GkeVersion.of(version) <= TOO_OLD:
            remedy = gcloud.upgrade_control_plane(spec, spec.gke.version or str(LEAST_FOR_NEW))
            yield error(name, f"version {version}", f"later than {TOO_OLD}", remedy)
        pool = (cluster.get("workloadIdentityConfig") or {}).get("workloadPool")
        if pool and pool != workload_pool(spec.project):
            yield error(name, f"workload pool {pool}", f"{workload_pool(spec.project)}, which access is granted in")
        # A node pool that will not do is told before the cluster is changed for it.
        yield from node_pool_findings(self.site, {pool["name"]: pool for pool in cluster.get("nodePools") or ()})
        missing_zones = sorted(set(spec.gke.node_locations) - set(cluster.get("locations") or ()))
        if missing_zones:
            yield note(
                name,
                f"nodes in {', '.join(cluster.get('locations') or ())}",
                f"also in {', '.join(missing_zones)}; a node pool of its own may lie there all the same",
            )

    def _changes(self, cluster: Object) -> Iterator[Change]:
        """Workload Identity comes first: the driver of the add-on has no other identity."""
        spec = self.site.spec
        if not (cluster.get("workloadIdentityConfig") or {}).get("workloadPool"):
            pool = workload_pool(spec.project)
            yield self._update(
                {"desiredWorkloadIdentityConfig": {"workloadPool": pool}},
                "no Workload Identity",
                f"workload pool {pool}",
                gcloud.update_cluster(spec, workload_pool=pool),
                "node pools that exist already get the metadata server one by one, which recreates their nodes",
            )
        addons = cluster.get("addonsConfig") or {}
        lacking = [field for field in bodies.ADDONS if not (addons.get(field) or {}).get("enabled")]
        if lacking:
            names = " and ".join(bodies.ADDONS[field] for field in lacking)
            yield self._update(
                {"desiredAddonsConfig": {field: {"enabled": True} for field in lacking}},
                f"add-on{'s' if len(lacking) > 1 else ''} {names} off",
                "on",
                gcloud.enable_addons(spec, lacking),
            )

    def _update(self, update: Object, found: str, wanted: str, command: str, note: str = "") -> Change:
        google, spec = self.site.google(), self.site.spec
        return Change(
            object=f"cluster {spec.name}",
            action="update",
            found=found,
            wanted=wanted,
            act=lambda: begun(
                google, spec, lambda: google.update_cluster(spec.project, spec.location, spec.name, update)
            ),
            commands=(command,),
            terraform=terraform.cluster(spec, exists=True),
            note=note,
        )


def _newest(versions: set[str]) -> str:
    """Return at most five versions that have multi-tier checkpointing, the newest first."""
    fit = sorted((GkeVersion.of(each) for each in versions), reverse=True)
    return ", ".join(str(each) for each in fit[:5] if each >= LEAST_FOR_NEW) or "none"


def _message(owner: Object) -> str:
    """Return what GKE says of a status."""
    said = [
        str(owner.get("statusMessage") or ""),
        *(str(each.get("message")) for each in owner.get("conditions") or ()),
    ]
    text = next((each for each in said if each), "")
    return f": {text}" if text else ""

"""The steps of the cloud half in the order in which they need each other."""

from __future__ import annotations

from typing import TYPE_CHECKING

from everstep.provision.cloud.apis import ApisStep, InputStep
from everstep.provision.cloud.buckets import BucketsStep
from everstep.provision.cloud.cluster import ClusterStep
from everstep.provision.cloud.grants import BucketAccessStep, KeysStep
from everstep.provision.cloud.node_pools import DeleteNodePoolsStep, NodePoolsStep
from everstep.provision.cloud.upgrade import UpgradeStep, VersionStep
from everstep.spec.findings import Finding, error, raise_on_errors

if TYPE_CHECKING:
    from everstep.provision.changes import Step
    from everstep.provision.site import Site


def cloud_steps(site: Site, *, force: bool = False) -> list[Step]:
    """Return all steps. Buckets come before the cluster, since one that is refused costs nothing then.

    :param force: recreate nodes that lack the GKE metadata server also while somebody runs on them
    """
    return [
        InputStep(site),
        ApisStep(site),
        KeysStep(site),
        BucketsStep(site),
        ClusterStep(site),
        NodePoolsStep(site, force=force),
        # IAM refuses principals of a Workload Identity pool that no cluster has made yet.
        BucketAccessStep(site),
    ]


def api_steps(site: Site) -> list[Step]:
    """Return the steps that enable APIs."""
    return [InputStep(site), ApisStep(site)]


def cluster_steps(site: Site) -> list[Step]:
    """Return the steps that make or complete the cluster."""
    return [InputStep(site), ClusterStep(site)]


def node_pool_steps(
    site: Site, *, pools: tuple[str, ...] | None = None, size: str = "full", force: bool = False
) -> list[Step]:
    """Return the steps that make and size node pools.

    :param size: `full` or `zero`
    :param force: recreate nodes that lack the GKE metadata server, or take nodes, also while somebody runs on them
    """
    findings = [*unknown_pools(site, pools or ())]
    if size not in ("full", "zero"):
        findings.append(error("size", repr(size), "full or zero"))
    raise_on_errors("node pools can't be sized", findings)
    return [InputStep(site), NodePoolsStep(site, pools, size, force)]  # type: ignore[arg-type]


def node_pool_deletion_steps(site: Site, pools: tuple[str, ...], *, force: bool = False) -> list[Step]:
    """Return the steps that delete the node pools of some pools of the cluster file.

    :param force: also while somebody runs on their nodes
    """
    raise_on_errors("node pools can't be deleted", unknown_pools(site, pools))
    return [DeleteNodePoolsStep(site, pools, force)]


def upgrade_steps(site: Site, version: str) -> list[Step]:
    """Return the steps that bring control plane and node pools to a version."""
    return [UpgradeStep(site, version)]


def version_steps(site: Site, version: str) -> list[Step]:
    """Return the step that looks whether the cluster can be upgraded to a version."""
    return [VersionStep(site, version)]


def unknown_pools(site: Site, pools: tuple[str, ...]) -> list[Finding]:
    """Return an error for each name that is no pool of the cluster file."""
    known = ", ".join(site.spec.pools)
    return [error("pools", repr(pool), f"one of {known}") for pool in pools if pool not in site.spec.pools]


def bucket_steps(site: Site) -> list[Step]:
    """Return the steps that make buckets."""
    return [InputStep(site), KeysStep(site), BucketsStep(site)]


def bucket_access_steps(site: Site) -> list[Step]:
    """Return the steps that give access to buckets, to principals that are there once the cluster is."""
    return [InputStep(site), BucketAccessStep(site)]

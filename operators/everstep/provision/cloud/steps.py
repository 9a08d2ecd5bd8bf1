"""The steps of the cloud half in the order in which they need each other."""

from __future__ import annotations

from typing import TYPE_CHECKING

from everstep.provision.cloud.apis import ApisStep, InputStep
from everstep.provision.cloud.buckets import BucketsStep
from everstep.provision.cloud.cluster import ClusterStep
from everstep.provision.cloud.grants import BucketAccessStep, KeysStep
from everstep.provision.cloud.node_pools import NodePoolsStep

if TYPE_CHECKING:
    from everstep.provision.changes import Step
    from everstep.provision.cloud.node_pools import Size
    from everstep.provision.site import Site


def cloud_steps(site: Site) -> list[Step]:
    """Return all steps. Buckets come before the cluster, since one that is refused costs nothing then."""
    return [
        InputStep(site),
        ApisStep(site),
        KeysStep(site),
        BucketsStep(site),
        ClusterStep(site),
        NodePoolsStep(site),
        # IAM refuses principals of a Workload Identity pool that no cluster has made yet.
        BucketAccessStep(site),
    ]


def api_steps(site: Site) -> list[Step]:
    """Return the steps that enable APIs."""
    return [InputStep(site), ApisStep(site)]


def cluster_steps(site: Site) -> list[Step]:
    """Return the steps that make or complete the cluster."""
    return [InputStep(site), ClusterStep(site)]


def node_pool_steps(site: Site, *, pools: tuple[str, ...] | None = None, size: Size = "full") -> list[Step]:
    """Return the steps that make and size node pools."""
    return [InputStep(site), NodePoolsStep(site, pools, size)]


def bucket_steps(site: Site) -> list[Step]:
    """Return the steps that make buckets and give access to them."""
    return [InputStep(site), KeysStep(site), BucketsStep(site), BucketAccessStep(site)]

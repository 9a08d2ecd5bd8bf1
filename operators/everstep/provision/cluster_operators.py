"""Operators that make in Google Cloud what a cluster file describes; one for each stage.

All of them look before they change anything, so that they can be run again at any time.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from everstep.cluster_operator import ClusterOperator
from everstep.telling import as_flag

if TYPE_CHECKING:
    from everstep.provision.changes import Step
    from everstep.provision.site import Site


class EnsureApisOperator(ClusterOperator):
    """Enable the APIs that cluster, buckets and keys need."""

    def steps(self, site: Site) -> list[Step]:
        """Return the steps, in order."""
        from everstep.provision.cloud.steps import api_steps

        return api_steps(site)


class EnsureClusterOperator(ClusterOperator):
    """Make the cluster, or give an existing one Workload Identity and the add-ons that it lacks."""

    def steps(self, site: Site) -> list[Step]:
        """Return the steps, in order."""
        from everstep.provision.cloud.steps import cluster_steps

        return cluster_steps(site)


class EnsureNodePoolsOperator(ClusterOperator):
    """Make the node pools of the cluster file's pools, and give them their nodes or take them.

    :param pools: only these pools of the cluster file, as a list or joined by commas; all if empty (templated)
    :param size: `full` gives each slice its nodes; `zero` takes them and keeps the node pools (templated)
    :param force: take nodes, or give them the GKE metadata server, which recreates them, also while somebody runs
        there (templated)
    """

    template_fields: Sequence[str] = (*ClusterOperator.template_fields, "pools", "size", "force")

    def __init__(
        self,
        *,
        pools: Sequence[str] | str | None = None,
        size: str = "full",
        force: bool | str = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.pools = pools
        self.size = size
        self.force = force

    def steps(self, site: Site) -> list[Step]:
        """Return the steps, in order."""
        from everstep.provision.cloud.steps import node_pool_steps

        pools = as_names(self.pools) or None
        return node_pool_steps(site, pools=pools, size=self.size, force=as_flag(self.force))


class DeleteNodePoolsOperator(ClusterOperator):
    """Delete the node pools of some pools of the cluster file, with their nodes; no others.

    :param pools: pools of the cluster file, as a list or joined by commas (templated)
    :param force: also while somebody runs on their nodes (templated)
    """

    template_fields: Sequence[str] = (*ClusterOperator.template_fields, "pools", "force")

    def __init__(self, *, pools: Sequence[str] | str, force: bool | str = False, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.pools = pools
        self.force = force

    def steps(self, site: Site) -> list[Step]:
        """Return the steps, in order."""
        from everstep.provision.cloud.steps import node_pool_deletion_steps

        return node_pool_deletion_steps(site, as_names(self.pools), force=as_flag(self.force))


class UpgradeClusterOperator(ClusterOperator):
    """Bring the control plane and the node pools of the cluster file to a version; never back to an older one.

    :param version: e.g. 1.34.1-gke.1829001 (templated)
    """

    template_fields: Sequence[str] = (*ClusterOperator.template_fields, "version")

    def __init__(self, *, version: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.version = version

    def steps(self, site: Site) -> list[Step]:
        """Return the steps, in order."""
        from everstep.provision.cloud.steps import upgrade_steps

        return upgrade_steps(site, self.version)


class EnsureBucketOperator(ClusterOperator):
    """Make the buckets of the cluster file, and let Cloud Storage use their keys."""

    def steps(self, site: Site) -> list[Step]:
        """Return the steps, in order."""
        from everstep.provision.cloud.steps import bucket_steps

        return bucket_steps(site)


class EnsureBucketAccessOperator(ClusterOperator):
    """Give the driver and the runs' own pods access to the buckets.

    It comes after the cluster: IAM refuses principals of a Workload Identity pool that no cluster has made yet.
    """

    def steps(self, site: Site) -> list[Step]:
        """Return the steps, in order."""
        from everstep.provision.cloud.steps import bucket_access_steps

        return bucket_access_steps(site)


def as_names(given: Sequence[str] | str | None) -> tuple[str, ...]:
    """Return names as a template may render them: a list, or a text with commas; `None` and nothing are none."""
    if given is None or given in ("", "None"):
        return ()
    names = given.strip("[]").split(",") if isinstance(given, str) else given
    return tuple(name.strip(" '\"") for name in names)

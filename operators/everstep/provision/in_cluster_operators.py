"""Operators for what a cluster itself holds: JobSet controller, priority classes, checkpoint configurations."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from everstep.cluster_operator import ClusterOperator
from everstep.telling import as_flag

if TYPE_CHECKING:
    from everstep.provision.changes import Step
    from everstep.provision.site import Site


class InClusterOperator(ClusterOperator):
    """Base of operators that change what a cluster holds: first of all, it has to be the cluster file's cluster."""

    def steps(self, site: Site) -> list[Step]:
        """Return the steps, in order."""
        from everstep.provision.way_in import WayInStep

        return [WayInStep(site), *self.inner_steps(site)]

    def inner_steps(self, site: Site) -> list[Step]:
        """Return the steps inside the cluster, in order."""
        raise NotImplementedError


class EnsureJobSetOperator(InClusterOperator):
    """Have the JobSet controller there, new enough, and with the resources that large sets need.

    It is installed only from a manifest that the cluster file names.
    """

    def inner_steps(self, site: Site) -> list[Step]:
        """Return the steps inside the cluster, in order."""
        from everstep.provision.in_cluster.steps import jobset_steps

        return jobset_steps(site)


class EnsurePriorityClassesOperator(InClusterOperator):
    """Make the priority classes of the cluster file where they lack; an existing one is never changed."""

    def inner_steps(self, site: Site) -> list[Step]:
        """Return the steps inside the cluster, in order."""
        from everstep.provision.in_cluster.steps import priority_class_steps

        return priority_class_steps(site)


class EnsureCheckpointingOperator(InClusterOperator):
    """Have the cluster file's CheckpointConfigurations, with the driver ready on every node that they select.

    :param recreate: delete and make anew one that differs, which wipes the RAM disks of its nodes (templated)
    :param force: also while a JobSet uses its driver (templated)
    """

    template_fields: Sequence[str] = (*InClusterOperator.template_fields, "recreate", "force")

    def __init__(self, *, recreate: bool | str = False, force: bool | str = False, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.recreate = recreate
        self.force = force

    def inner_steps(self, site: Site) -> list[Step]:
        """Return the steps inside the cluster, in order."""
        from everstep.provision.in_cluster.steps import checkpointing_steps

        return checkpointing_steps(site, recreate=as_flag(self.recreate), force=as_flag(self.force))


class RemoveCheckpointingOperator(InClusterOperator):
    """Delete the cluster file's CheckpointConfigurations and wait until drivers and RAM disks are gone.

    Buckets are left as they are. Refused while a JobSet uses a driver.

    :param force: also then: its pods lose their volume, and what has no backup or durable save is lost (templated)
    """

    template_fields: Sequence[str] = (*InClusterOperator.template_fields, "force")

    def __init__(self, *, force: bool | str = False, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.force = force

    def inner_steps(self, site: Site) -> list[Step]:
        """Return the steps inside the cluster, in order."""
        from everstep.provision.removal import removal_steps

        return removal_steps(site, force=as_flag(self.force))


class PrepareUpgradeOperator(InClusterOperator):
    """Before a cluster is upgraded: let every run on the drivers save durably, suspend it, delete the configurations.

    :param upgrade: its name, such as the version that it leads to (templated)
    :param version: of GKE, that the cluster will be upgraded to; one that GKE would refuse fails the task before any
        run is touched; not looked at if empty (templated)
    :param unsaved: suspend also runs that can't be asked for a save (templated)
    """

    template_fields: Sequence[str] = (*InClusterOperator.template_fields, "upgrade", "version", "unsaved")

    def __init__(self, *, upgrade: str, version: str = "", unsaved: bool | str = False, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.upgrade = upgrade
        self.version = version
        self.unsaved = unsaved

    def inner_steps(self, site: Site) -> list[Step]:
        """Return the steps inside the cluster, in order."""
        from everstep.provision.cloud.steps import version_steps
        from everstep.provision.upgrade import before_upgrade

        refused = version_steps(site, self.version) if self.version else []
        return [*refused, *before_upgrade(site, self.upgrade, unsaved=as_flag(self.unsaved))]


class FinishUpgradeOperator(InClusterOperator):
    """After a cluster was upgraded: make the configurations anew, wait for drivers, resume what was suspended for it.

    :param upgrade: the name that PrepareUpgradeOperator was given (templated)
    """

    template_fields: Sequence[str] = (*InClusterOperator.template_fields, "upgrade")

    def __init__(self, *, upgrade: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.upgrade = upgrade

    def inner_steps(self, site: Site) -> list[Step]:
        """Return the steps inside the cluster, in order."""
        from everstep.provision.upgrade import after_upgrade

        return after_upgrade(site, self.upgrade)

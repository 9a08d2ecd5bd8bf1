"""All steps inside a cluster, in the order in which they need each other."""

from __future__ import annotations

from typing import TYPE_CHECKING

from everstep.provision.in_cluster.checkpointing import CheckpointConfigurations
from everstep.provision.in_cluster.classes import PriorityClasses
from everstep.provision.in_cluster.jobset import JobSetController

if TYPE_CHECKING:
    from everstep.provision.changes import Step
    from everstep.provision.site import Site


def jobset_steps(site: Site) -> list[Step]:
    """Return the steps of the JobSet controller."""
    return [JobSetController(site)]


def priority_class_steps(site: Site) -> list[Step]:
    """Return the steps of the priority classes."""
    return [PriorityClasses(site)]


def checkpointing_steps(site: Site, *, recreate: bool = False, force: bool = False) -> list[Step]:
    """Return the steps of the CheckpointConfigurations and their drivers."""
    return [CheckpointConfigurations(site, recreate=recreate, force=force)]


def in_cluster_steps(site: Site, *, recreate: bool = False, force: bool = False) -> list[Step]:
    """Return every step inside the cluster.

    :param recreate: a CheckpointConfiguration that differs is deleted and made anew, which wipes its RAM disks
    :param force: also while a JobSet uses them
    """
    return [
        *jobset_steps(site),
        *priority_class_steps(site),
        *checkpointing_steps(site, recreate=recreate, force=force),
    ]

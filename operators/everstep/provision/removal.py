"""Taking checkpoint drivers away: configurations deleted, RAM freed, buckets left as they are."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from everstep.clients.resources import CHECKPOINT_CONFIGURATIONS
from everstep.provision.changes import Change, Look, Waiting
from everstep.provision.in_cluster import texts, users
from everstep.provision.in_cluster.checkpointing import WIPES, deletion, gone
from everstep.provision.in_cluster.reading import Reader
from everstep.spec.findings import Finding

if TYPE_CHECKING:
    from everstep.clients.kubernetes import Object
    from everstep.provision.changes import Step
    from everstep.provision.site import Site


class NoCheckpointConfigurations:
    """None of the cluster file's CheckpointConfigurations is there; others are left alone.

    :param force: delete one also while a JobSet uses its driver
    """

    title = "removal of checkpoint configurations"

    def __init__(self, site: Site, *, force: bool = False) -> None:
        self._names = tuple(site.spec.checkpoint_configurations)
        self._reader = Reader(site)
        self._force = force

    def look(self) -> Look:
        """Look which are there, and who uses them."""
        findings: list[Finding] = [*self._reader.absence()]
        changes: list[Change] = []
        waiting: Waiting | None = None
        for name in self._names:
            found = self._reader.find(CHECKPOINT_CONFIGURATIONS, name)
            if found is None:
                continue
            if found["metadata"].get("deletionTimestamp"):
                waiting = waiting or gone(found)
                continue
            change, refused = self._removal(found)
            changes.append(change)
            findings += refused
        return Look(tuple(findings), tuple(changes), waiting)

    def _removal(self, found: Object) -> tuple[Change, list[Finding]]:
        name, spec = found["metadata"]["name"], found.get("spec") or {}
        where = f"CheckpointConfiguration {name}"
        using = users.live(self._reader, spec.get("nodeSelector") or {})
        change = Change(
            where,
            "delete",
            f"RAM disk {spec.get('inMemoryVolumeSize')} on nodes {spec.get('nodeSelector') or 'of every kind'}",
            f"none; gs://{spec.get('cloudStorageBucketName')} is left as it is",
            partial(self._delete, found),
            (texts.kubectl("delete", "checkpointconfiguration", name, "--wait=true"),),
            note=WIPES + (f"; used by {', '.join(map(str, using))}" if using else ""),
        )
        return change, self._refusals(where, using)

    def _refusals(self, where: str, using: Sequence[users.User]) -> list[Finding]:
        return [] if self._force else users.refusals(where, using, WIPES)

    def _delete(self, found: Object) -> Waiting | None:
        return deletion(self._reader, found)


def removal_steps(site: Site, *, force: bool = False) -> list[Step]:
    """Return the steps that take the drivers of a cluster file away."""
    return [NoCheckpointConfigurations(site, force=force)]

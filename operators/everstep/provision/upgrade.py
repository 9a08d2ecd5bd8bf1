"""Upgrading a cluster, whose checkpoint drivers an upgrade leaves as they are: run by run, then the drivers themselves.

Per live run: a fresh durable save, then a suspension that is noted on the JobSet. Then the configurations are deleted,
the cluster is upgraded, configurations are made anew, and what was suspended is resumed. Everything is read from
objects: a procedure that was killed goes on where they stand. An upgrade has a name, such as the version that it leads
to; the configurations made in it carry that name, by which a finished upgrade is known.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from everstep.clients.kubernetes import Object
from everstep.clients.resources import CHECKPOINT_CONFIGURATIONS, JOBSETS
from everstep.provision.changes import Look, Waiting
from everstep.provision.in_cluster import users
from everstep.provision.in_cluster.checkpointing import WIPES, CheckpointConfigurations
from everstep.provision.in_cluster.reading import Reader
from everstep.provision.removal import NoCheckpointConfigurations
from everstep.provision.upgrade_jobsets import SUSPENDED_FOR, UPGRADE, annotation
from everstep.provision.upgrade_runs import ResumedRuns, SuspendedRuns
from everstep.spec.findings import Finding, FindingsError, error, raise_on_errors
from everstep.watch import run_state
from everstep.watch.run_state import Phase

if TYPE_CHECKING:
    from everstep.provision.changes import Step
    from everstep.provision.site import Site


def before_upgrade(site: Site, name: str, *, unsaved: bool = False) -> list[Step]:
    """Return the steps before the cluster itself is upgraded: runs saved and suspended, configurations gone."""
    upgrade = Upgrade(site, name, unsaved=unsaved)
    return [SuspendedRuns(upgrade), _OldConfigurationsGone(upgrade)]


def after_upgrade(site: Site, name: str) -> list[Step]:
    """Return the steps after it: configurations made anew, drivers ready, runs resumed."""
    upgrade = Upgrade(site, name)
    return [CheckpointConfigurations(site, marks={UPGRADE: name}), ResumedRuns(upgrade)]


class Upgrade:
    """What the steps of one upgrade share.

    :param name: of the upgrade, such as the version that it leads to
    :param unsaved: suspend also runs that can't be asked for a save
    """

    def __init__(self, site: Site, name: str, *, unsaved: bool = False) -> None:
        if not name or len(name) > 63 or not all(each.isalnum() or each in "-._" for each in name):
            raise FindingsError(
                "the upgrade has no name that fits",
                [error("upgrade", repr(name), "letters, digits, '-', '.' and '_', such as 1.34.1-gke.1829001")],
            )
        self.site = site
        self.name = name
        self.unsaved = unsaved
        self.reader = Reader(site)

    def old_configurations(self) -> list[Object]:
        """Return the cluster file's configurations that this upgrade has not made."""
        found = (self.reader.find(CHECKPOINT_CONFIGURATIONS, name) for name in self.site.spec.checkpoint_configurations)
        return [each for each in found if each is not None and annotation(each, UPGRADE) != self.name]

    def running(self) -> list[tuple[Object, Object]]:
        """Return the JobSets that run or start on nodes of such configurations, each with its configuration."""
        return [
            (jobset, configuration)
            for configuration in self.old_configurations()
            for jobset in users.jobsets(self.reader, (configuration.get("spec") or {}).get("nodeSelector") or {})
            if run_state.of_jobset(jobset).phase in (Phase.RUNNING, Phase.STARTING)
        ]

    def suspended(self) -> list[Object]:
        """Return the JobSets that this upgrade has suspended."""
        return [each for each in self.reader.list_all(JOBSETS) if annotation(each, SUSPENDED_FOR) == self.name]


class _OldConfigurationsGone(NoCheckpointConfigurations):
    """The configurations that were made before this upgrade are gone."""

    title = "checkpoint configurations removed for the upgrade"

    def __init__(self, upgrade: Upgrade) -> None:
        super().__init__(upgrade.site)
        self._upgrade = upgrade

    def look(self) -> Look:
        """Look at those that this upgrade has not made."""
        self._names = tuple(each["metadata"]["name"] for each in self._upgrade.old_configurations())
        return super().look()

    def _refusals(self, where: str, using: Sequence[users.User]) -> list[Finding]:
        """Runs that the step before this one is yet to suspend refuse nothing: a check looks at both steps at once."""
        suspended_first = {
            (jobset["metadata"]["namespace"], jobset["metadata"]["name"]) for jobset, _ in self._upgrade.running()
        }
        others = [each for each in using if (each.namespace, each.name) not in suspended_first]
        return super()._refusals(where, others)

    def _delete(self, found: Object) -> Waiting | None:
        """Delete it, unless a run has begun since the others were suspended."""
        where = f"CheckpointConfiguration {found['metadata']['name']}"
        using = users.live(self._reader, (found.get("spec") or {}).get("nodeSelector") or {})
        raise_on_errors(f"{where} can't be removed", users.refusals(where, using, WIPES))
        return super()._delete(found)

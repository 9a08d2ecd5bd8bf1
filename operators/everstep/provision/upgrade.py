"""Upgrading a cluster, whose checkpoint drivers an upgrade leaves as they are: run by run, then the drivers themselves.

Per live run: a fresh durable save, then a suspension that is noted on the JobSet. Then the configurations are deleted,
the cluster is upgraded, configurations are made anew, and what was suspended is resumed. Everything is read from
objects: a procedure that was killed goes on where they stand. An upgrade has a name, such as the version that it leads
to; the configurations made in it carry that name, by which a finished upgrade is known.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from everstep.checkpoints.layout import RunFolder
from everstep.clients.errors import Conflict, NotFound
from everstep.clients.kubernetes import Object
from everstep.clients.resources import CHECKPOINT_CONFIGURATIONS, JOBSETS, PODS, WORKLOADS
from everstep.launch import labels
from everstep.provision.changes import Change, Look, Waiting
from everstep.provision.in_cluster import texts, users
from everstep.provision.in_cluster.checkpointing import CheckpointConfigurations
from everstep.provision.in_cluster.reading import Reader
from everstep.provision.removal import NoCheckpointConfigurations
from everstep.provision.upgrade_saves import saved_step
from everstep.spec.findings import Finding, FindingsError, error, note
from everstep.watch import run_state
from everstep.watch.run_state import Phase

if TYPE_CHECKING:
    from everstep.provision.changes import Step
    from everstep.provision.site import Site

UPGRADE = "everstep.dev/upgrade"
SUSPENDED_FOR = "everstep.dev/suspended-for-upgrade"
SAVE_SECONDS = 3600.0
SUSPEND_SECONDS = 1800.0
LOSES = "its RAM disks go: what it has trained since its last backup or durable save is lost"


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


class SuspendedRuns:
    """Every run on the drivers to be renewed has saved durably and is suspended, by Kueue where it rules."""

    title = "runs suspended for the upgrade"

    def __init__(self, upgrade: Upgrade) -> None:
        self._upgrade = upgrade
        self._reader = upgrade.reader

    def look(self) -> Look:
        """Look at every run; the first one that is not suspended decides what comes next."""
        findings: list[Finding] = [*self._reader.absence()]
        changes: list[Change] = []
        waiting: Waiting | None = None
        for jobset, configuration in self._upgrade.running():
            look = self._one(jobset, configuration)
            findings += look.findings
            changes += look.changes
            waiting = waiting or look.waiting
        leaving = [] if changes or waiting else self._leaving()
        return Look(tuple(findings), tuple(changes), waiting or (leaving[0] if leaving else None))

    def _one(self, jobset: Object, configuration: Object) -> Look:
        where = name_of(jobset)
        if annotation(jobset, SUSPENDED_FOR) == self._upgrade.name:
            # Noted, but it runs: killed between the note and the suspension, or Kueue has not acted yet.
            return Look((), (self._suspension(jobset, "noted for the upgrade"),))
        run = (jobset["metadata"].get("labels") or {}).get(labels.RUN)
        bucket = (configuration.get("spec") or {}).get("cloudStorageBucketName")
        if run is None or bucket is None or not has_trainer(jobset):
            return self._without_save(jobset, where)
        client = self._upgrade.site.storage_access.open(bucket)
        step = client.run(saved_step(RunFolder(bucket, run), self.request(jobset)))
        if step is not None:
            told = note(where, f"step {step} is saved durably for the upgrade")
            return Look((told,), (self._suspension(jobset, f"running, step {step} saved"),))
        pods = self._pods(jobset)
        unasked = [pod for pod in pods if annotation(pod, labels.SAVE_REQUESTED) != self.request(jobset)]
        if unasked or not pods:
            return Look((note(where, "running", "", LOSES),), (self._request(jobset, unasked, bucket, run),))
        return Look(waiting=self._saving(jobset, bucket, run))

    def request(self, jobset: Object) -> str:
        """Return the identifier of the save that is asked for: one for each JobSet and upgrade."""
        return f"upgrade-{self._upgrade.name}-{jobset['metadata']['uid'][:8]}"

    def _without_save(self, jobset: Object, where: str) -> Look:
        found = "can't be asked for a save: no trainer of Everstep runs in it"
        remedy = f"let it save by itself, then suspend it, or go on without (unsaved): {LOSES}"
        told = note(where, found, "", LOSES) if self._upgrade.unsaved else error(where, found, "a durable save", remedy)
        return Look((told,), (self._suspension(jobset, "running, not saved"),))

    def _request(self, jobset: Object, pods: list[Object], bucket: str, run: str) -> Change:
        asked = {"metadata": {"annotations": {labels.SAVE_REQUESTED: self.request(jobset)}}}

        def act() -> Waiting:
            for pod in pods:
                metadata = pod["metadata"]
                try:
                    body = {"metadata": {**asked["metadata"], "uid": metadata["uid"]}}
                    self._reader.client.patch(PODS, metadata["name"], body, metadata["namespace"])
                except (Conflict, NotFound):
                    # Gone or replaced since the look: the wait and the next look deal with its successor.
                    continue
            return self._saving(jobset, bucket, run)

        metadata = jobset["metadata"]
        command = texts.kubectl(
            "annotate",
            "pods",
            "-n",
            metadata["namespace"],
            "-l",
            f"{labels.JOBSET_NAME}={metadata['name']}",
            f"{labels.SAVE_REQUESTED}={self.request(jobset)}",
        )
        return Change(
            name_of(jobset),
            "save",
            "running",
            "its state saved durably",
            act,
            (command,),
            note="it trains on meanwhile",
        )

    def _saving(self, jobset: Object, bucket: str, run: str) -> Waiting:
        metadata = jobset["metadata"]
        arguments = {
            "namespace": metadata["namespace"],
            "name": metadata["name"],
            "uid": metadata["uid"],
            "bucket": bucket,
            "run": run,
            "request": self.request(jobset),
        }
        return Waiting("run_saved", arguments, f"the durable save of {name_of(jobset)}", SAVE_SECONDS)

    def _suspension(self, jobset: Object, found: str) -> Change:
        return Change(
            name_of(jobset),
            "suspend",
            found,
            "suspended until the upgrade is done",
            partial(self._suspend, jobset),
            (suspend_command(jobset),),
            note=LOSES,
        )

    def _suspend(self, jobset: Object) -> Waiting | None:
        metadata = jobset["metadata"]
        name, namespace = metadata["name"], metadata["namespace"]
        # The note comes first: what is suspended without one would never be resumed.
        body: Object = {"metadata": {"annotations": {SUSPENDED_FOR: self._upgrade.name}, "uid": metadata["uid"]}}
        kueue = labels.QUEUE_NAME in (metadata.get("labels") or {})
        if not kueue:
            body["spec"] = {"suspend": True}
        try:
            self._reader.client.patch(JOBSETS, name, body, namespace)
            for workload in workloads_of(self._reader, jobset) if kueue else ():
                set_active(self._reader, workload, active=False)
        except Conflict:
            return None
        return self._stopped(jobset)

    def _stopped(self, jobset: Object) -> Waiting:
        metadata = jobset["metadata"]
        arguments = {"namespace": metadata["namespace"], "name": metadata["name"], "uid": metadata["uid"]}
        return Waiting("run_stopped", arguments, f"the pods of {name_of(jobset)} to be gone", SUSPEND_SECONDS)

    def _leaving(self) -> list[Waiting]:
        if not self._upgrade.old_configurations():
            return []
        return [self._stopped(each) for each in self._upgrade.suspended() if self._pods(each)]

    def _pods(self, jobset: Object) -> list[Object]:
        metadata = jobset["metadata"]
        selector = f"{labels.JOBSET_NAME}={metadata['name']}"
        return self._reader.list_all(PODS, metadata["namespace"], labels=selector, fields=users.LIVE_PODS)


class ResumedRuns:
    """What this upgrade has suspended runs again; what somebody else suspended stays so."""

    title = "runs resumed after the upgrade"

    def __init__(self, upgrade: Upgrade) -> None:
        self._upgrade = upgrade
        self._reader = upgrade.reader

    def look(self) -> Look:
        """Look at the JobSets that carry the upgrade's note."""
        return Look(self._reader.absence(), tuple(self._resumption(each) for each in self._upgrade.suspended()))

    def _resumption(self, jobset: Object) -> Change:
        metadata = jobset["metadata"]
        name, namespace = metadata["name"], metadata["namespace"]

        def act() -> None:
            kueue = labels.QUEUE_NAME in (metadata.get("labels") or {})
            try:
                for workload in workloads_of(self._reader, jobset) if kueue else ():
                    set_active(self._reader, workload, active=True)
                # The note goes last, and with the suspension: without it, nobody would know that it is to be resumed.
                body: Object = {"metadata": {"annotations": {SUSPENDED_FOR: None}, "uid": metadata["uid"]}}
                if not kueue:
                    body["spec"] = {"suspend": False}
                self._reader.client.patch(JOBSETS, name, body, namespace)
            except (Conflict, NotFound):
                # Replaced or deleted meanwhile: look again.
                return

        patch = texts.flow({"metadata": {"annotations": {SUSPENDED_FOR: None}}, "spec": {"suspend": False}})
        command = texts.kubectl("patch", "jobset", name, "-n", namespace, "--type=merge", "-p", patch)
        return Change(name_of(jobset), "resume", "suspended for the upgrade", "running", act, (command,))


def before_upgrade(site: Site, name: str, *, unsaved: bool = False) -> list[Step]:
    """Return the steps before the cluster itself is upgraded: runs saved and suspended, configurations gone."""
    upgrade = Upgrade(site, name, unsaved=unsaved)
    return [SuspendedRuns(upgrade), _OldConfigurationsGone(upgrade)]


def after_upgrade(site: Site, name: str) -> list[Step]:
    """Return the steps after it: configurations made anew, drivers ready, runs resumed."""
    upgrade = Upgrade(site, name)
    return [CheckpointConfigurations(site, marks={UPGRADE: name}), ResumedRuns(upgrade)]


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


def annotation(item: Object, key: str) -> str | None:
    """Return an annotation of an object."""
    value: str | None = (item["metadata"].get("annotations") or {}).get(key)
    return value


def name_of(jobset: Object) -> str:
    """Return a JobSet's name as findings have it."""
    return f"JobSet {jobset['metadata']['namespace']}/{jobset['metadata']['name']}"


def has_trainer(jobset: Object) -> bool:
    """Say whether Everstep's trainer runs in a JobSet: the observer beside other trainers can't save."""
    for each in jobset["spec"].get("replicatedJobs") or ():
        pod = each["template"]["spec"]["template"]["spec"]
        names = {container["name"] for container in [*pod["containers"], *(pod.get("initContainers") or ())]}
        if labels.TRAINER_CONTAINER in names and labels.OBSERVER_CONTAINER not in names:
            return True
    return False


def workloads_of(reader: Reader, jobset: Object) -> list[Object]:
    """Return Kueue's Workloads of a JobSet."""
    metadata = jobset["metadata"]
    return [
        each
        for each in reader.list_all(WORKLOADS, metadata["namespace"])
        if any(owner.get("uid") == metadata["uid"] for owner in each["metadata"].get("ownerReferences") or ())
    ]


def set_active(reader: Reader, workload: Object, *, active: bool) -> None:
    """Let Kueue admit a Workload, or evict it."""
    metadata = workload["metadata"]
    body = {"metadata": {"uid": metadata["uid"]}, "spec": {"active": active}}
    reader.client.patch(WORKLOADS, metadata["name"], body, metadata["namespace"])


def suspend_command(jobset: Object) -> str:
    """Return the command that suspends a JobSet that no queue rules."""
    metadata = jobset["metadata"]
    patch = texts.flow({"spec": {"suspend": True}})
    return texts.kubectl("patch", "jobset", metadata["name"], "-n", metadata["namespace"], "--type=merge", "-p", patch)

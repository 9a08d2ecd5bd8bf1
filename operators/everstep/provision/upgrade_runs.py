"""Runs in an upgrade: each is asked for a durable save and suspended before it, and resumed after it."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from everstep.checkpoints.layout import RunFolder
from everstep.clients.errors import Conflict, NotFound
from everstep.clients.kubernetes import Object
from everstep.clients.resources import JOBSETS, PODS
from everstep.launch import labels
from everstep.provision.changes import Change, Look, Waiting
from everstep.provision.in_cluster import texts, users
from everstep.provision.upgrade_jobsets import (
    SUSPENDED_FOR,
    annotation,
    has_trainer,
    name_of,
    set_active,
    suspend_command,
    workloads_of,
)
from everstep.provision.upgrade_saves import saved_step
from everstep.spec.findings import Finding, error, note

if TYPE_CHECKING:
    from everstep.provision.upgrade import Upgrade

SAVE_SECONDS = 3600.0
SUSPEND_SECONDS = 1800.0
LOSES = "its RAM disks go: what it has trained since its last backup or durable save is lost"


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

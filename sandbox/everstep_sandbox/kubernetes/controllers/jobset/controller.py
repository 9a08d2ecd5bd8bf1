"""Commits what `decision` decides for each JobSet."""

from __future__ import annotations

from collections.abc import Hashable, Iterable

from everstep_sandbox.kubernetes.bootstrap import JOBSET_NAMESPACE
from everstep_sandbox.kubernetes.controllers.events import EventRecorder
from everstep_sandbox.kubernetes.controllers.installed import jobset_is_installed
from everstep_sandbox.kubernetes.controllers.jobset import keys
from everstep_sandbox.kubernetes.controllers.jobset.child_jobs import headless_service
from everstep_sandbox.kubernetes.controllers.jobset.decision import Decision, decide, is_finished
from everstep_sandbox.kubernetes.controllers.pods import controller_reference, controller_uid, is_deleting
from everstep_sandbox.kubernetes.controllers.runtime import Controller
from everstep_sandbox.kubernetes.errors import ApiError
from everstep_sandbox.kubernetes.history import Change
from everstep_sandbox.kubernetes.objects import Object, clone, now, parse_timestamp
from everstep_sandbox.kubernetes.store import Store

_AGENT = "jobset-controller"


class JobSetController(Controller):
    """Keys are (namespace, name) of JobSets."""

    resources = frozenset({"jobsets", "jobs", "deployments"})

    def __init__(self, store: Store) -> None:
        self._store = store
        self._events = EventRecorder(store, _AGENT)

    def keys(self, change: Change) -> Iterable[Hashable]:
        meta = change.object["metadata"]
        if change.resource == "deployments":
            if meta["namespace"] == JOBSET_NAMESPACE:
                yield from self.all_keys()
        elif change.resource == "jobsets":
            yield meta["namespace"], meta["name"]
        elif (owner := controller_reference(change.object)) and owner["kind"] == "JobSet":
            yield meta["namespace"], owner["name"]

    def all_keys(self) -> Iterable[Hashable]:
        for jobset in self._store.list("jobsets"):
            yield jobset["metadata"]["namespace"], jobset["metadata"]["name"]

    def reconcile(self, key: Hashable) -> float | None:
        assert isinstance(key, tuple)
        jobset = self._store.peek("jobsets", *key)
        if not jobset_is_installed(self._store):
            return None
        if jobset is None or is_deleting(jobset) or jobset["spec"].get("managedBy") not in (None, _MANAGER):
            return None
        if is_finished(jobset) and (left := self._lifetime_left(jobset)) is not None:
            if left > 0:
                return left
            self._store.delete("jobsets", *key, propagation="Foreground", user_agent=_AGENT)
            return None
        uid = jobset["metadata"]["uid"]
        jobs = [
            job
            for job in self._store.list("jobs", key[0], labels={keys.JOBSET_NAME: key[1]})
            if controller_uid(job) == uid
        ]
        self._commit(jobset, decide(jobset, jobs, now()))
        return None

    def _commit(self, jobset: Object, decision: Decision) -> None:
        namespace = jobset["metadata"]["namespace"]
        changed = clone(jobset)
        changed["status"] = decision.status
        # First the status: a failure that was acted upon must not be acted upon again.
        stored = self._store.update("jobsets", namespace, changed, subresource="status", user_agent=_AGENT)
        for kind, reason, message in decision.events:
            self._events.record(stored, kind, reason, message)
        for job in decision.delete:
            if not is_deleting(job):
                self._store.delete(
                    "jobs",
                    namespace,
                    job["metadata"]["name"],
                    propagation="Foreground",
                    uid=job["metadata"]["uid"],
                    user_agent=_AGENT,
                )
        if decision.needs_service:
            self._ensure_service(stored)
        for job, change in decision.suspend:
            self._store.patch("jobs", namespace, job["metadata"]["name"], {"spec": change}, user_agent=_AGENT)
        for job in decision.create:
            self._create(stored, job)

    def _ensure_service(self, jobset: Object) -> None:
        namespace = jobset["metadata"]["namespace"]
        if self._store.peek("services", namespace, keys.subdomain(jobset)) is None:
            try:
                self._store.create("services", namespace, headless_service(jobset), user_agent=_AGENT)
            except ApiError as error:
                self._events.record(jobset, "Warning", "HeadlessServiceCreationFailed", error.message)
                raise

    def _create(self, jobset: Object, job: Object) -> None:
        try:
            self._store.create("jobs", jobset["metadata"]["namespace"], job, user_agent=_AGENT)
        except ApiError as error:
            self._events.record(jobset, "Warning", "JobCreationFailed", error.message)
            raise

    def _lifetime_left(self, jobset: Object) -> float | None:
        lifetime = jobset["spec"].get("ttlSecondsAfterFinished")
        if lifetime is None:
            return None
        ended = max(
            parse_timestamp(condition["lastTransitionTime"])
            for condition in jobset["status"]["conditions"]
            if condition["type"] in ("Completed", "Failed")
        )
        return float(lifetime) - (now() - ended).total_seconds()


_MANAGER = "jobset.sigs.k8s.io/jobset-controller"

"""Commits what `decision` decides for each Job."""

from __future__ import annotations

import contextlib
from collections.abc import Hashable, Iterable

from everstep_sandbox.kubernetes.controllers.events import EventRecorder
from everstep_sandbox.kubernetes.controllers.job.decision import Decision, decide, is_finished
from everstep_sandbox.kubernetes.controllers.job.pod_template import TRACKING_FINALIZER, build_pod
from everstep_sandbox.kubernetes.controllers.pods import controller_reference, controller_uid, is_deleting
from everstep_sandbox.kubernetes.controllers.runtime import Controller
from everstep_sandbox.kubernetes.errors import ApiError
from everstep_sandbox.kubernetes.history import Change
from everstep_sandbox.kubernetes.objects import Object, clone, now, parse_timestamp
from everstep_sandbox.kubernetes.store import Store

_AGENT = "job-controller"
# A refused pod is tried again after 1 s, then after twice as long each time, at most a minute.
_FIRST_RETRY = 1.0
_LONGEST_RETRY = 60.0

Key = tuple[str, str]


class JobController(Controller):
    """Keys are (namespace, name) of Jobs, also of Jobs that are gone but whose pods are not."""

    resources = frozenset({"jobs", "pods"})

    def __init__(self, store: Store, *, speed: float) -> None:
        self._store = store
        self._speed = speed
        self._events = EventRecorder(store, _AGENT)
        self._refusals: dict[Key, int] = {}

    def keys(self, change: Change) -> Iterable[Hashable]:
        meta = change.object["metadata"]
        if change.resource == "jobs":
            yield meta["namespace"], meta["name"]
        elif (owner := controller_reference(change.object)) and owner["kind"] == "Job":
            yield meta["namespace"], owner["name"]

    def all_keys(self) -> Iterable[Hashable]:
        for job in self._store.list("jobs"):
            yield job["metadata"]["namespace"], job["metadata"]["name"]
        for pod in self._store.list("pods"):
            if (owner := controller_reference(pod)) and owner["kind"] == "Job":
                yield pod["metadata"]["namespace"], owner["name"]

    def reconcile(self, key: Hashable) -> float | None:
        assert isinstance(key, tuple)
        namespace, name = key
        job = self._store.peek("jobs", namespace, name)
        pods = self._store.list("pods", namespace, labels={"batch.kubernetes.io/job-name": name})
        uid = job["metadata"]["uid"] if job else None
        self._release([pod for pod in pods if controller_uid(pod) != uid or job is None or is_deleting(job)])
        if job is None or is_deleting(job):
            self._refusals.pop(key, None)
            return None
        decision = decide(job, [pod for pod in pods if controller_uid(pod) == uid], now(), speed=self._speed)
        self._commit(job, decision)
        refused_again_in = self._create(job, decision) if decision.create else None
        waits = [wait for wait in (decision.again_in, refused_again_in, self._remove_in(job)) if wait is not None]
        return min(waits, default=None)

    def _commit(self, job: Object, decision: Decision) -> None:
        namespace = job["metadata"]["namespace"]
        changed = clone(job)
        changed["status"] = decision.status
        self._store.update("jobs", namespace, changed, subresource="status", user_agent=_AGENT)
        for kind, reason, message in decision.events:
            self._events.record(job, kind, reason, message)
        self._release(decision.release)
        for pod in decision.delete:
            with contextlib.suppress(ApiError):
                self._store.delete(
                    "pods", namespace, pod["metadata"]["name"], uid=pod["metadata"]["uid"], user_agent=_AGENT
                )
                self._events.record(job, "Normal", "SuccessfulDelete", f"Deleted pod: {pod['metadata']['name']}")

    def _create(self, job: Object, decision: Decision) -> float | None:
        """Creates pods until the API refuses one; seconds to the next try where it did."""
        namespace = job["metadata"]["namespace"]
        key = (namespace, job["metadata"]["name"])
        refused: ApiError | None = None
        for index in decision.create:
            try:
                pod = self._store.create("pods", namespace, build_pod(job, index), user_agent=_AGENT)
                self._events.record(job, "Normal", "SuccessfulCreate", f"Created pod: {pod['metadata']['name']}")
            except ApiError as error:
                refused = error
                self._events.record(job, "Warning", "FailedCreate", f"Error creating: {error.message}")
        if refused is None:
            self._refusals.pop(key, None)
            return None
        times = self._refusals[key] = self._refusals.get(key, 0) + 1
        return min(_FIRST_RETRY * 2.0 ** (times - 1), _LONGEST_RETRY) / self._speed

    def _release(self, pods: Iterable[Object]) -> None:
        for pod in pods:
            finalizers = pod["metadata"].get("finalizers") or []
            if TRACKING_FINALIZER not in finalizers:
                continue
            changed = clone(pod)
            changed["metadata"]["finalizers"] = [item for item in finalizers if item != TRACKING_FINALIZER]
            changed["metadata"].pop("resourceVersion")
            with contextlib.suppress(ApiError):
                self._store.update("pods", pod["metadata"]["namespace"], changed, user_agent=_AGENT)

    def _remove_in(self, job: Object) -> float | None:
        """Removes a finished Job when its ttlSecondsAfterFinished is over; else seconds until then."""
        lifetime = job["spec"].get("ttlSecondsAfterFinished")
        if lifetime is None or not is_finished(job):
            return None
        ended = max(
            parse_timestamp(condition["lastTransitionTime"])
            for condition in job["status"]["conditions"]
            if condition["type"] in ("Complete", "Failed")
        )
        left = float(lifetime) - (now() - ended).total_seconds()
        if left > 0:
            return left
        self._store.delete(
            "jobs",
            job["metadata"]["namespace"],
            job["metadata"]["name"],
            propagation="Foreground",
            user_agent="ttl-after-finished-controller",
        )
        return None

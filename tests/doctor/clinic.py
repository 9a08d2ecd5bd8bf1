"""What the doctor's tests share: ways to look at a cluster with real clients, and what was shown."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from datetime import timedelta
from typing import Any

from everstep.clients.access import ClusterAccess, GoogleAccess, StorageAccess
from everstep.clients.kubernetes import KubernetesClient
from everstep.clients.resources import Resource
from everstep.clients.storage import BucketClient
from everstep.doctor.diagnose import blind_spots, diagnose
from everstep.doctor.diagnosis import Diagnosis
from everstep.doctor.evidence import Evidence, Target
from everstep.doctor.gather import gather
from everstep.doctor.live import opened
from everstep.doctor.redaction import redacted

Object = dict[str, Any]
Function = Callable[..., Any]

SHOWN: dict[str, str] = {}
"""Symptom -> the test that produces it."""


def shows(*symptoms: str) -> Callable[[Function], Function]:
    """Mark a test as the one that produces these symptoms; `test_doctor_registry` counts them."""

    def mark(function: Function) -> Function:
        SHOWN.update(dict.fromkeys(symptoms, function.__name__))
        return function

    return mark


def flat(diagnoses: Sequence[Diagnosis]) -> Iterator[Diagnosis]:
    """All diagnoses, consequences after their causes."""
    for each in diagnoses:
        yield each
        yield from each.consequences


def only(diagnoses: Sequence[Diagnosis], symptom: str, about: str = "") -> Diagnosis:
    """The diagnosis of that symptom, wherever it stands; fails with everything that there is."""
    found = [each for each in flat(diagnoses) if each.symptom == symptom and about in each.object]
    assert found, f"no {symptom} {about}; found:\n" + "\n".join(line for each in diagnoses for line in each.lines())
    return found[0]


def root(diagnoses: Sequence[Diagnosis], symptom: str) -> Diagnosis:
    """The diagnosis of that symptom, which has to be a cause and no consequence."""
    found = [each for each in diagnoses if each.symptom == symptom]
    assert found, f"no root {symptom}; found:\n" + "\n".join(line for each in diagnoses for line in each.lines())
    return found[0]


def remedy(diagnosis: Diagnosis) -> str:
    return "\n".join(diagnosis.remedy)


class Clinic:
    """One cluster with bucket and Google Cloud, looked at by real clients."""

    def __init__(self, kubeconfig: Any, storage: str, google: str = "") -> None:
        self.access = ClusterAccess.of_kubeconfig(kubeconfig)
        self.storage = StorageAccess(endpoint=storage)
        self.google = GoogleAccess(endpoint=google, storage_endpoint=storage) if google else None
        self._stack = ExitStack()
        self.cluster: KubernetesClient = self._stack.enter_context(self.access.open())

    def close(self) -> None:
        self._stack.close()

    def bucket(self, name: str) -> BucketClient:
        return self.storage.open(name)

    def evidence(self, target: Target, *, logs: int = 100) -> Evidence:
        with opened(self.access, self.storage, self.google) as sources:
            return redacted(gather(target, sources, log_lines=logs))

    def examine(self, target: Target, *, later: float = 0.0, logs: int = 100) -> list[Diagnosis]:
        """Look now, and judge as if so many seconds had passed: grace times are not waited for."""
        evidence = self.evidence(target, logs=logs)
        found = diagnose(evidence, evidence.taken + timedelta(seconds=later))
        # What a real API shows confuses no rule.
        assert not [spot for spot in blind_spots(evidence) if "the rule can't read it" in spot]
        return found

    def until(self, target: Target, symptom: str, *, seconds: float = 30.0, later: float = 0.0) -> list[Diagnosis]:
        """Look again and again until the symptom shows."""
        deadline = time.monotonic() + seconds
        while True:
            found = self.examine(target, later=later)
            if any(each.symptom == symptom for each in flat(found)):
                return found
            if time.monotonic() > deadline:
                only(found, symptom)
            time.sleep(0.3)

    def status(self, resource: Resource, name: str, status: Object, namespace: str | None = None) -> None:
        """Write an object's status, as its controller would."""
        self.cluster._request(
            "PATCH",
            resource.path(namespace, name, "status"),
            body={"status": status},
            content_type="application/merge-patch+json",
        )

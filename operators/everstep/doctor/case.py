"""What every rule is given: the evidence, the moment of it, and what several rules ask of it. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property

from everstep.clients.resources import CHECKPOINTING_NAMESPACE
from everstep.doctor import objects
from everstep.doctor.diagnosis import Diagnosis
from everstep.doctor.evidence import Evidence, Object, Target
from everstep.launch import labels
from everstep.provision.cloud import gcloud, principals
from everstep.provision.cloud.policies import OBJECT_USER, Grant
from everstep.watch import run_state
from everstep.watch.run_state import RunState


@dataclass(frozen=True)
class Case:
    """Evidence under examination. `now` is when it was taken, for a bundle too."""

    evidence: Evidence
    now: datetime

    @property
    def target(self) -> Target:
        """Return what is looked at."""
        return self.evidence.target

    @property
    def jobset(self) -> Object | None:
        """Return the run's JobSet."""
        return self.evidence.one("jobsets")

    @cached_property
    def state(self) -> RunState | None:
        """Return what the run's JobSet says."""
        return None if self.jobset is None else run_state.of_jobset(self.jobset)

    @cached_property
    def pods(self) -> list[Object]:
        """Return the run's pods of the present attempt."""
        restarts = self.state.restarts if self.state is not None else 0
        found = self.evidence.all("pods")
        return [pod for pod in found if int(objects.labels_of(pod).get(labels.RESTART_ATTEMPT) or 0) >= restarts]

    @cached_property
    def nodes(self) -> dict[str, Object]:
        """Return all nodes by name."""
        return {objects.name(node): node for node in self.evidence.all("nodes")}

    @cached_property
    def own_nodes(self) -> list[Object]:
        """Return the nodes that matter: those the run's pods select, or those that have a checkpoint configuration."""
        if self.target.pool:
            return [node for node in self.nodes.values() if objects.chosen(self.target.pool, node)]
        selectors = [(each.get("spec") or {}).get("nodeSelector") or {} for each in self.evidence.all("configurations")]
        return [node for node in self.nodes.values() if any(objects.chosen(each, node) for each in selectors)]

    @cached_property
    def project_number(self) -> str:
        """Return the number of the cluster's project; empty when it is not known."""
        return str((self.evidence.one("project") or {}).get("projectNumber") or "")

    @property
    def principal(self) -> str:
        """Return the IAM principal of the checkpoint driver, with a placeholder for a number that is not known."""
        return principal(self.project_number or "PROJECT_NUMBER", self.target.project or "PROJECT")

    def grant_driver(self, bucket: str) -> str:
        """Return the command that lets the driver use a bucket."""
        return gcloud.grant_on_bucket(bucket, Grant(OBJECT_USER, self.principal))

    def number_first(self) -> tuple[str, ...]:
        """Return the command that finds the project's number, unless it is known."""
        if self.project_number:
            return ()
        return (f"gcloud projects describe {self.target.project or 'PROJECT'} --format='value(projectNumber)'",)


Rule = Callable[[Case], Iterator[Diagnosis]]


def principal(number: str, project: str) -> str:
    """Return the IAM principal of the checkpoint driver's Kubernetes service account."""
    return principals.spelt(project, number, CHECKPOINTING_NAMESPACE, principals.DRIVER_SERVICE_ACCOUNT)

"""Everything that can be known before money is spent, all findings at once.

A check looks and never changes anything. A check that can't look says so as a finding of its own: an error where the
run needs the answer, a warning where the identity merely may not see it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from everstep.clients.errors import Forbidden, NotConfigured, RemoteError
from everstep.clients.google import GoogleCloud
from everstep.clients.kubernetes import KubernetesClient
from everstep.clients.storage import BucketClient
from everstep.provision import checks_of_bucket, checks_of_cluster, checks_of_place, checks_of_run
from everstep.spec.findings import Finding, FindingsError, error, errors_of, warning
from everstep.spec.training import TrainingSpec


@dataclass(frozen=True)
class Subject:
    """What preflight looks at.

    :param holder: who would launch the run, if that is known
    :param google: opens a way to GKE, given where the cluster is looked up there
    """

    spec: TrainingSpec
    cluster: KubernetesClient
    bucket: BucketClient
    holder: str | None = None
    google: Callable[[], GoogleCloud] | None = None


Check = Callable[[Subject], Iterator[Finding]]


@dataclass(frozen=True)
class Named:
    """A check with the words for what it looks at, and whether a run can do without its answer."""

    title: str
    check: Check
    needed: bool = True


# In the order in which a person would look. The first ones decide whether the others can be asked at all.
ENDPOINT = Named("the endpoint", lambda subject: checks_of_place.endpoint(subject.google, subject.spec), needed=False)
REACH = Named("the cluster", lambda subject: checks_of_cluster.reach(subject.cluster))
CLUSTER = (
    Named("JobSet", lambda subject: checks_of_cluster.jobset(subject.cluster, subject.spec), needed=False),
    Named("priority classes", lambda subject: checks_of_cluster.priority(subject.cluster, subject.spec)),
    Named("a default class", lambda subject: checks_of_cluster.default_class(subject.cluster, subject.spec), False),
    Named("service account", lambda subject: checks_of_place.service_account(subject.cluster, subject.spec), False),
    Named("pull secrets", lambda subject: checks_of_place.pull_secrets(subject.cluster, subject.spec), False),
    Named("quota", lambda subject: checks_of_place.quota(subject.cluster, subject.spec), needed=False),
    Named("queue", lambda subject: checks_of_place.queue(subject.cluster, subject.spec), needed=False),
    Named(
        "checkpoint configuration",
        lambda subject: checks_of_cluster.checkpoint_configuration(subject.cluster, subject.spec),
        needed=False,
    ),
    Named("nodes", lambda subject: checks_of_cluster.nodes(subject.cluster, subject.spec), needed=False),
    Named("victims", lambda subject: checks_of_cluster.victims(subject.cluster, subject.spec), needed=False),
    Named("the run's JobSet", lambda subject: checks_of_run.jobset(subject.cluster, subject.spec, subject.holder)),
    Named("a new JobSet", lambda subject: checks_of_run.admission(subject.cluster, subject.spec), needed=False),
)
BUCKET = Named("the bucket", lambda subject: checks_of_bucket.bucket(subject.bucket, subject.spec))
ESSENTIAL = (
    Named("priority classes", lambda subject: checks_of_cluster.priority(subject.cluster, subject.spec)),
    Named("service account", lambda subject: checks_of_place.service_account(subject.cluster, subject.spec), False),
    Named("a new JobSet", lambda subject: checks_of_run.admission(subject.cluster, subject.spec)),
    BUCKET,
)
ACCESS = Named(
    "access to the run's folder",
    lambda subject: checks_of_bucket.access(subject.bucket, subject.cluster, subject.spec),
    needed=False,
)
FOLDER = (
    Named(
        "the lease",
        lambda subject: checks_of_run.lease(subject.bucket, subject.cluster, subject.spec, subject.holder),
    ),
    Named("the run's folder", lambda subject: checks_of_run.folder(subject.bucket, subject.spec)),
)


def check(subject: Subject) -> list[Finding]:
    """Return all findings about a run: its files, its cluster, its bucket, and what is there of it already."""
    findings = subject.spec.findings()
    findings += _run(ENDPOINT, subject)
    reached = _run(REACH, subject)
    findings += reached
    if not _failed(reached):
        for each in CLUSTER:
            findings += _run(each, subject)
    bucket = _run(BUCKET, subject)
    findings += bucket
    if not any(finding.found == checks_of_bucket.NO_BUCKET for finding in bucket) and not _failed(bucket):
        for each in (ACCESS, *FOLDER) if not _failed(reached) else FOLDER[1:]:
            findings += _run(each, subject)
    return findings


def essentials(subject: Subject) -> list[Finding]:
    """Return the findings that decide whether a JobSet can run at all: what a launch looks at by itself."""
    findings = subject.spec.findings()
    for each in ESSENTIAL:
        findings += _run(each, subject)
    if not errors_of(findings):
        findings += _run(FOLDER[1], subject)
    return findings


def _run(named: Named, subject: Subject) -> list[Finding]:
    findings: list[Finding] = []
    try:
        findings.extend(named.check(subject))
    except FindingsError as refusal:
        findings.extend(refusal.findings)
    except NotConfigured as failure:
        findings.append(error(named.title, f"can't be looked at: {failure.message}", "a way to reach it"))
    except Forbidden as failure:
        tell = error if named.needed else warning
        findings.append(
            tell(
                named.title,
                f"can't be looked at: {failure.message}",
                "leave to read it",
                "grant it to the launcher: everstep permissions --for launcher",
            )
        )
    except RemoteError as failure:
        tell = error if named.needed else warning
        findings.append(tell(named.title, f"can't be looked at: {failure.message}", "an answer"))
    return findings


def _failed(findings: list[Finding]) -> bool:
    return any("can't be looked at" in finding.found for finding in findings)

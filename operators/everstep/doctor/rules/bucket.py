"""The buckets: there, hierarchical, and open to the driver by their policies. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator

from everstep.checkpoints.layout import HIERARCHY_TEST
from everstep.doctor import objects
from everstep.doctor.case import Case, principal
from everstep.doctor.diagnosis import Confidence, Diagnosis, Symptom, quote
from everstep.doctor.rules.driver import denied
from everstep.provision.cloud.principals import DRIVER_SERVICE_ACCOUNT
from everstep.spec.findings import Severity

# The self-test folder is there for a moment at every start of the coordinator.
SENTINEL_SECONDS = 60.0
# Roles that let the driver list, read, write and delete objects, and make and rename folders.
SUFFICIENT = frozenset({"roles/storage.objectUser", "roles/storage.objectAdmin", "roles/storage.admin"})

_MEMBER = re.compile(
    r"principal://iam\.googleapis\.com/projects/(?P<number>[^/]+)/locations/global/workloadIdentityPools/"
    r"(?P<pool>[^/]+)\.svc\.id\.goog/subject/ns/(?P<namespace>[^/]+)/sa/(?P<account>[^/]+)$"
)

SYMPTOMS = (
    Symptom(
        "bucket-missing",
        "the bucket is not there",
        ("driver-denied", "driver-not-ready", "volume-not-mounted", "replicator-failed", "run-folder-denied"),
    ),
    Symptom(
        "bucket-not-hierarchical",
        "the bucket has no hierarchical namespace",
        ("replicator-failed", "backup-late", "backup-failed"),
    ),
    Symptom(
        "principal-wrong",
        "the bucket's policy names the driver wrongly",
        ("driver-denied", "driver-not-ready", "volume-not-mounted"),
    ),
    Symptom("driver-unbound", "the bucket's policy does not name the driver"),
    Symptom("run-folder-denied", "the run's folder can't be read"),
)


def missing(case: Case) -> Iterator[Diagnosis]:
    """Are the buckets there?"""
    for each in case.evidence.all("buckets"):
        if each.get("missing"):
            yield Diagnosis(
                "bucket-missing",
                f"bucket {each['name']}",
                "there is no such bucket, so there are no backups and no reports",
                (quote(each["missing"]),),
                ("everstep provision CLUSTER_FILE --mode apply   # makes it, hierarchical as it has to be",),
            )


def hierarchy(case: Case) -> Iterator[Diagnosis]:
    """Can folders be renamed at once? The replicator can't do without, and it can't be turned on later."""
    seen: dict[str, list[str]] = {}
    certain = set()
    for each in case.evidence.all("buckets"):
        if not each.get("missing") and not (each.get("hierarchicalNamespace") or {}).get("enabled"):
            seen.setdefault(str(each["name"]), []).append(
                f"hierarchicalNamespace: {each.get('hierarchicalNamespace') or 'absent'}"
            )
            certain.add(str(each["name"]))
    folder = case.evidence.one("run-folder") or {}
    left = folder.get("hierarchy_test_since")
    waited = objects.seconds_since(left, case.now) if left else None
    known = {str(each["name"]) for each in case.evidence.all("buckets")} - certain
    if waited is not None and waited > SENTINEL_SECONDS and case.target.bucket not in known:
        seen.setdefault(case.target.bucket, []).append(
            f"gs://{case.target.bucket}/{case.target.run}/{HIERARCHY_TEST} was left behind {objects.spell(waited)} ago"
        )
    for bucket, quotes in seen.items():
        yield Diagnosis(
            "bucket-not-hierarchical",
            f"bucket {bucket}",
            "it has no hierarchical namespace, so the replicator gives up and no backup is ever made; that can't be "
            "turned on later, a new bucket is needed",
            tuple(quotes),
            (
                f"gcloud storage buckets create gs://NEW_BUCKET --location={_location(case)} "
                "--uniform-bucket-level-access --enable-hierarchical-namespace",
                "name it in the cluster file, then: everstep provision CLUSTER_FILE --mode apply --recreate",
            ),
            confidence=Confidence.CERTAIN if bucket in certain else Confidence.LIKELY,
        )


def policies(case: Case) -> Iterator[Diagnosis]:
    """Do the policies name the driver, and rightly? A wrong principal is accepted and never matches anybody."""
    for each in case.evidence.all("bucket-policies"):
        bucket, bound, wrong = str(each.get("name")), False, []
        for binding in each.get("bindings") or []:
            for member in binding.get("members") or []:
                match = _MEMBER.match(str(member))
                if match is None or match["account"] != DRIVER_SERVICE_ACCOUNT:
                    continue
                if match["number"].isdecimal() and not match["pool"].isdecimal() and _ours(case, match):
                    bound |= binding.get("role") in SUFFICIENT or not str(binding.get("role")).startswith("roles/")
                elif _swapped(case, match):
                    wrong.append((str(binding.get("role")), str(member)))
        if bound:
            continue
        if wrong:
            role, member = wrong[0]
            yield Diagnosis(
                "principal-wrong",
                f"bucket {bucket}",
                "its policy names the driver with the project's number and id in each other's place, which IAM accepts "
                f"and which never matches; right is {case.principal}",
                tuple(quote(f"{role}: {member}") for role, member in wrong),
                (
                    *case.number_first(),
                    case.grant_driver(bucket),
                    f"gcloud storage buckets remove-iam-policy-binding gs://{bucket} --member='{member}' --role={role} "
                    "--condition=None",
                ),
            )
        elif case.target.configurations or case.evidence.all("configurations"):
            yield _unbound(case, bucket, each)


def folder(case: Case) -> Iterator[Diagnosis]:
    """Could the run's folder be read?"""
    why = case.evidence.unread.get("run-folder", "")
    if not why or not re.search(r"403|denied|does not have", why):
        return
    yield Diagnosis(
        "run-folder-denied",
        f"gs://{case.target.bucket}/{case.target.run}",
        "it can't be read with the credentials at hand, so neither backups nor reports can be judged",
        (quote(why),),
        ("everstep permissions --for launcher --format iam   # the role on the bucket that reading needs",),
        severity=Severity.WARNING,
        confidence=Confidence.CERTAIN,
    )


RULES = (missing, hierarchy, policies, folder)


def _unbound(case: Case, bucket: str, policy: dict[str, object]) -> Diagnosis:
    given = denied(case, f"bucket {bucket}", bucket, ())
    pods = case.evidence.all("driver-pods")
    # Ready drivers have mounted the bucket: a role on the project, or on its folder, lets them.
    served = bool(pods) and all(objects.is_true(pod, "Ready") for pod in pods)
    return Diagnosis(
        "driver-unbound",
        f"bucket {bucket}",
        f"its policy gives {case.principal} nothing; unless a role on the project does, the driver is denied",
        (quote(f"roles in the policy: {', '.join(_roles(policy)) or 'none'}"),),
        given.remedy,
        severity=Severity.NOTE if served else Severity.WARNING,
        confidence=Confidence.POSSIBLE if served or not pods else Confidence.LIKELY,
    )


def _roles(policy: dict[str, object]) -> list[str]:
    bindings = policy.get("bindings")
    return sorted({str(each.get("role")) for each in bindings}) if isinstance(bindings, list) else []


def _ours(case: Case, match: re.Match[str]) -> bool:
    """Say whether a principal is of our project; what is not known does not speak against it."""
    return match.group() == principal(case.project_number or match["number"], case.target.project or match["pool"])


def _swapped(case: Case, match: re.Match[str]) -> bool:
    number, pool = match["number"], match["pool"]
    return not number.isdecimal() or pool.isdecimal() or number == case.target.project


def _location(case: Case) -> str:
    location = case.target.location
    return location.rsplit("-", 1)[0] if re.fullmatch(r".+-.+\d-[a-z]", location) else location or "REGION"

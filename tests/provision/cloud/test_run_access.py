"""What a bucket's policy gives the pods of a run, as a table."""

from __future__ import annotations

from typing import Any

import pytest

from everstep.provision.cloud import policies, run_access
from everstep.provision.cloud.run_access import Pods

POOL = "//iam.googleapis.com/projects/42/locations/global/workloadIdentityPools/acme.svc.id.goog"
PODS = Pods("acme", "tokyo", "team", "trainer")
PRINCIPAL = f"principal:{POOL}/subject/ns/team/sa/trainer"
USER = "roles/storage.objectUser"


def binding(role: str, member: str, expression: str = "") -> dict[str, Any]:
    condition = {"condition": {"title": "any", "expression": expression}} if expression else {}
    return {"role": role, "members": ["user:somebody@acme.example", member], **condition}


def below(prefix: str) -> str:
    return f'resource.name.startsWith("projects/_/buckets/backups/objects/{prefix}")'


# What a binding is, whether it lets the pods of run lm write.
BINDINGS: list[tuple[str, dict[str, Any], bool]] = [
    ("the pods, always", binding(USER, PRINCIPAL), True),
    ("the pods, as a custom role", binding("projects/acme/roles/everstepTrainer", PRINCIPAL), True),
    ("the pods, reading only", binding("roles/storage.objectViewer", PRINCIPAL), False),
    ("other pods", binding(USER, PRINCIPAL.replace("sa/trainer", "sa/default")), False),
    ("pods of another project", binding(USER, PRINCIPAL.replace("acme", "other")), False),
    ("the namespace", binding("roles/storage.admin", f"principalSet:{POOL}/namespace/team"), True),
    ("another namespace", binding("roles/storage.admin", f"principalSet:{POOL}/namespace/other"), False),
    ("the cluster", binding(USER, f"principalSet:{POOL}/kubernetes.cluster/https://x/v1/clusters/tokyo"), True),
    ("another cluster", binding(USER, f"principalSet:{POOL}/kubernetes.cluster/https://x/v1/clusters/osaka"), False),
    ("the whole pool", binding("roles/storage.objectAdmin", f"principalSet:{POOL}/*"), True),
    ("an account by its uid", binding(USER, f"principal:{POOL}/kubernetes.serviceaccount.uid/1"), True),
    ("everybody", binding(USER, "allAuthenticatedUsers"), True),
    ("somebody else", binding(USER, "serviceAccount:airflow@acme.iam.gserviceaccount.com"), False),
    ("the run's folder", binding(USER, PRINCIPAL, below("lm/")), True),
    ("part of the run's folder", binding(USER, PRINCIPAL, below("lm/everstep/")), True),
    ("folders with the run's among them", binding(USER, PRINCIPAL, below("l")), True),
    ("another run's folder", binding(USER, PRINCIPAL, below("lm-2/everstep/")), False),
    ("a condition on something else", binding(USER, PRINCIPAL, "request.time.getHours() < 23"), True),
]


@pytest.mark.parametrize(("given", "covers"), [row[1:] for row in BINDINGS], ids=[row[0] for row in BINDINGS])
def test_what_lets_pods_into_a_runs_folder(given: dict[str, Any], covers: bool) -> None:
    found = run_access.lacking({"bindings": [given]}, PODS, "backups", "lm")
    assert [grant.role for grant in found][:1] == ([] if covers else [USER])


def test_what_lacks_is_what_provisioning_grants_and_nothing_lacks_with_it() -> None:
    others = policies.with_grants({}, run_access.run_grants("backups", "lm-2", PRINCIPAL))
    found = run_access.lacking(others, PODS, "backups", "lm")
    # The project's number is that of the other run's pods.
    assert found == run_access.run_grants("backups", "lm", PRINCIPAL)
    assert run_access.lacking(policies.with_grants(others, found), PODS, "backups", "lm") == ()
    assert "lm" in run_access.remedies("backups", "lm", found)[0]


def test_a_policy_that_names_no_run_is_not_by_run() -> None:
    driver = binding(USER, f"principal:{POOL}/subject/ns/gke-managed-checkpointing/sa/gke-checkpointing-multitier-node")
    assert not run_access.is_by_run({"bindings": [driver]})
    assert run_access.is_by_run(
        policies.with_grants({"bindings": [driver]}, run_access.run_grants("b", "x", PRINCIPAL))
    )
    assert not run_access.is_by_run({})


def test_a_number_that_nobody_knows_stays_a_placeholder() -> None:
    assert run_access.NUMBER_UNKNOWN in PODS.principal({})

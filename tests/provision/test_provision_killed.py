"""`everstep provision` on an empty project and on one of another team: killed -9 at every change that it makes."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import pytest
from tests.provision.provisioned_project import KEY, ProvisionedProject
from tests.sandbox.google.empty_project import CLUSTERS, Object

from everstep_sandbox.google.state import PROJECT

pytestmark = [pytest.mark.sandbox, pytest.mark.timeout(900)]

REPOSITORY = Path(__file__).parents[2]
THEIRS: Object = {
    "role": "roles/storage.objectViewer",
    "members": ["user:wanda@example.com", "group:evaluation@example.com"],
    "condition": {
        "title": "evaluation",
        "description": "Evaluation reads what training has written.",
        "expression": 'resource.name.startsWith("projects/_/buckets/acme-checkpoints/objects/evaluated/")',
    },
}
THEIR_POOL: Object = {
    "name": "serving",
    "initialNodeCount": 1,
    "config": {
        "machineType": "e2-standard-4",
        "labels": {"team": "serving"},
        "resourceLabels": {"cost-centre": "4711"},
        "taints": [{"key": "serving", "value": "only", "effect": "NO_SCHEDULE"}],
        "metadata": {"owner": "serving"},
    },
}


# What a cluster of another team gets, beside what every cluster gets; nothing of it twice.
OURS = [
    f"POST /v1/projects/{PROJECT}/services:batchEnable",
    f"POST /v1/{KEY}:setIamPolicy",
    *["PATCH /storage/v1/b/acme-checkpoints"] * 2,
    "PUT /storage/v1/b/acme-checkpoints/iam",
    *[f"PUT {CLUSTERS}/tokyo"] * 2,
    f"POST {CLUSTERS}/tokyo/nodePools",
    "create namespaces jobset-system",
    "create customresourcedefinitions jobsets.jobset.x-k8s.io",
    "create deployments jobset-controller-manager",
    "patch deployments jobset-controller-manager",
    "create priorityclasses training-high",
    "create checkpointconfigurations v6e",
]


class Ended:
    """A project after everything was provisioned in it, and what it took."""

    def __init__(self, project: ProvisionedProject, kills: list[int]) -> None:
        self.project = project
        self.kills = kills
        self.calls = list(project.calls())
        self.state = project.state()

    def check_that_a_further_run_changes_nothing(self) -> None:
        """Nothing at all is asked for, not even in vain."""
        asked = self.project.requests()
        assert self.project.provision().endswith("0 changes made: all is as the cluster file says\n")
        assert self.project.calls() == self.calls
        assert self.project.requests() == asked


@pytest.fixture(scope="module")
def ended(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], Ended]]:
    """The projects by how they were provisioned: side by side, since they wait for most of the time."""
    with ExitStack() as stack, ThreadPoolExecutor() as pool:
        futures: dict[str, Future[Ended]] = {}
        for how in ("undisturbed", "seen", "unanswered"):
            project = ProvisionedProject(tmp_path_factory.mktemp(how))
            stack.callback(project.command, "down")
            futures[how] = pool.submit(_provisioned, project, how)
        yield lambda how: futures[how].result()


def _provisioned(project: ProvisionedProject, how: str) -> Ended:
    project.begin()
    if how == "undisturbed":
        project.provision()
        return Ended(project, [])
    return Ended(project, killed(project, how))


def killed(project: ProvisionedProject, moment: str) -> list[int]:
    """Provision, killed at every change; return how many changes each killed process had made."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.provision.killed_provisioning", str(project.directory.parent), moment],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        timeout=800,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    changes: list[int] = json.loads(done.stdout)
    return changes


@pytest.mark.parametrize("moment", ["seen", "unanswered"])
def test_killed_at_every_change_it_ends_where_an_undisturbed_run_does(
    ended: Callable[[str], Ended], moment: str
) -> None:
    undisturbed, disturbed = ended("undisturbed"), ended(moment)
    assert undisturbed.state["ready drivers"] == undisturbed.state["drivers"] == 2
    assert disturbed.state == undisturbed.state
    # Every change was the last one of a process that was killed, and none was made twice.
    assert sum(disturbed.kills) == len(undisturbed.calls) == 12
    assert disturbed.calls == undisturbed.calls
    if moment == "unanswered":
        assert disturbed.kills == [1] * 12
    disturbed.check_that_a_further_run_changes_nothing()


def test_what_another_team_has_is_kept_byte_for_byte(tmp_path: Path) -> None:
    project = ProvisionedProject(tmp_path)
    project.begin({"buckets": {"acme-checkpoints": {"soft_delete_days": 14, "kms_key": KEY}}})
    try:
        made = project.create_cluster(
            addonsConfig={"dnsCacheConfig": {"enabled": True}},
            workloadIdentityConfig=None,
            resourceLabels={"team": "serving", "cost-centre": "4711"},
        )
        project.done(made)
        project.done(project.google("POST", f"{CLUSTERS}/tokyo/nodePools", {"nodePool": THEIR_POOL}))
        project.create_bucket("acme-checkpoints")
        policy = project.policy("acme-checkpoints")
        bindings = [*policy["bindings"], THEIRS]
        project.storage("PUT", "/b/acme-checkpoints/iam", {**policy, "version": 3, "bindings": bindings})
        project.storage("PATCH", "/b/acme-checkpoints", {"labels": {"team": "serving"}})
        before, made_before = theirs(project), Counter(project.calls())

        kills = killed(project, "unanswered")
        assert theirs(project) == before
        assert kills == [1] * len(OURS)
        assert Counter(project.calls()) - made_before == Counter(OURS)
        assert '"title": "evaluation"' in before["bindings"]
        assert project.policy("acme-checkpoints")["bindings"] != bindings
        assert project.storage("GET", "/b/acme-checkpoints")["softDeletePolicy"]["retentionDurationSeconds"] == str(
            14 * 24 * 60 * 60
        )
        assert project.state()["ready drivers"] == 2
        Ended(project, kills).check_that_a_further_run_changes_nothing()
    finally:
        project.command("down")


def theirs(project: ProvisionedProject) -> dict[str, str]:
    """What another team has made, as JSON to the byte."""
    cluster = project.google("GET", f"{CLUSTERS}/tokyo")
    bucket = project.storage("GET", "/b/acme-checkpoints")
    bindings = project.policy("acme-checkpoints")["bindings"]
    pools = [pool for pool in cluster["nodePools"] if pool["name"] in ("serving", "default-pool")]
    nodes = project.kubernetes("GET", "/api/v1/nodes")["items"]
    kept = {
        "labels": cluster["resourceLabels"],
        "fingerprint": cluster["labelFingerprint"],
        "addon": cluster["addonsConfig"]["dnsCacheConfig"],
        "pools": pools,
        "nodes": {
            node["metadata"]["name"]: [node["metadata"]["uid"], node["metadata"]["labels"], node["spec"].get("taints")]
            for node in nodes
            if "v6e" not in node["metadata"]["name"]
        },
        "bucket": [bucket["labels"], bucket["iamConfiguration"], bucket["location"], bucket["timeCreated"]],
        "bindings": [each for each in bindings if not _is_ours(each)],
    }
    return {name: json.dumps(value) for name, value in kept.items()}


def _is_ours(binding: Object) -> bool:
    return all("gke-managed-checkpointing" in member for member in binding["members"])

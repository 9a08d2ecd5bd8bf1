"""The operators of the cloud half by an Airflow connection: deferred, and killed at any moment."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable
from typing import Any

import pytest
import yaml
from airflow.exceptions import AirflowException
from airflow.providers.common.compat.sdk import TaskDeferred

from everstep.clients.google import GoogleCloud
from everstep.provision import cluster_operators
from everstep.provision.changes import Mode
from everstep.provision.triggers import ProvisioningTrigger
from everstep.spec.cluster import ClusterSpec

pytestmark = pytest.mark.sandbox

SpecOf = Callable[..., ClusterSpec]
PLACE = ("everstep-sandbox", "us-east5-a")
STAGES = (
    "EnsureApisOperator",
    "EnsureBucketOperator",
    "EnsureClusterOperator",
    "EnsureNodePoolsOperator",
    "EnsureBucketAccessOperator",
)


def carried_out(operator: Any) -> dict[str, Any]:
    """What the task returns, after as many deferrals as it takes; triggers are made of what they serialize to."""
    method, event = "execute", None
    for _ in range(20):
        try:
            result: dict[str, Any] = getattr(operator, method)({}, *([event] if event else []))
            return result
        except TaskDeferred as deferral:
            path, arguments = deferral.trigger.serialize()
            assert path.endswith(".ProvisioningTrigger")
            assert "private_key" not in json.dumps(arguments)
            trigger = ProvisioningTrigger(**{**json.loads(json.dumps(arguments)), "dwell": 0.0})
            event = asyncio.run(_first(trigger))
            method = deferral.method_name
    raise AssertionError("no end")


async def _first(trigger: ProvisioningTrigger) -> dict[str, Any]:
    async for event in trigger.run():
        payload: dict[str, Any] = event.payload
        return payload
    raise AssertionError("a trigger without an event")


def test_the_stages_one_after_the_other(
    cloud: Any, client: GoogleCloud, spec_of: SpecOf, connected: dict[str, Any]
) -> None:
    spec = spec_of(connected)
    done = []
    for name in STAGES:
        operator = getattr(cluster_operators, name)(task_id=name, cluster=spec, mode="apply")
        done += [f"{one['action']} {one['object']}" for one in carried_out(operator)["done"]]
    assert done == [
        "enable APIs of project everstep-sandbox",
        "create bucket acme-ckpt",
        "create cluster tokyo",
        "create node pool v6e-2x4-0",
        "create node pool v6e-2x4-1",
        "grant bucket acme-ckpt",
    ]
    before = cloud.mutations()
    assert all("airflow@" in call["caller"] for call in cloud.google.calls() if "setIamPolicy" not in call["path"])
    for name in STAGES:
        operator = getattr(cluster_operators, name)(task_id=name, cluster=spec, mode="apply")
        assert carried_out(operator)["done"] == []
    assert cloud.mutations() == before

    resize = cluster_operators.EnsureNodePoolsOperator(
        task_id="park", cluster=spec, mode="apply", pools="v6e-2x4", size="zero", force=True, deferrable=False
    )
    assert [one["wanted"] for one in carried_out(resize)["done"]] == ["0 nodes", "0 nodes"]
    delete = cluster_operators.DeleteNodePoolsOperator(
        task_id="delete", cluster=spec, mode="apply", pools=["v6e-2x4"], force=True
    )
    assert [one["action"] for one in carried_out(delete)["done"]] == ["delete", "delete"]


def test_a_failed_operation_fails_the_task_with_its_message(
    cloud: Any, spec_of: SpecOf, connected: dict[str, Any]
) -> None:
    spec = spec_of(connected)
    carried_out(cluster_operators.EnsureApisOperator(task_id="apis", cluster=spec, mode="apply"))
    cloud.google.command("failures", {"match": "CREATE_CLUSTER", "kind": "quota"})
    with pytest.raises(AirflowException, match="GCE_QUOTA_EXCEEDED"):
        carried_out(cluster_operators.EnsureClusterOperator(task_id="cluster", cluster=spec, mode="apply"))


@pytest.mark.parametrize(
    ("given", "names"),
    [(None, ()), ("", ()), ("None", ()), (["a"], ("a",)), ("a, b", ("a", "b")), ("['a', 'b']", ("a", "b"))],
)
def test_names_are_read_as_a_template_renders_them(given: Any, names: tuple[str, ...]) -> None:
    assert cluster_operators.as_names(given) == names


PROVISION = """
    import sys
    from pathlib import Path
    from everstep.provision.changes import Mode
    from everstep.provision.cloud.steps import cloud_steps
    from everstep.provision.everything import provision
    from everstep.provision.site import load_site
    with load_site(Path(sys.argv[1]), kubeconfig="/nowhere") as site:
        provision(site, cloud_steps(site), Mode.APPLY, lambda line: print(line, flush=True))
"""


# A line is printed before its change is asked for: milliseconds later it is made, sometimes, and not answered yet.
@pytest.mark.parametrize(
    ("killed_at", "later"),
    [
        ("buckets: create", 0.0),
        ("cluster: create", 0.005),
        ("cluster: waiting for", 0.0),
        ("node pools: create", 0.002),
        ("node pools: waiting for", 0.1),
        ("access to buckets: grant", 0.005),
    ],
)
def test_killed_anywhere_and_run_again_it_ends_in_the_same_state(
    cloud: Any, client: GoogleCloud, spec_of: SpecOf, killed_at: str, later: float
) -> None:
    spec = spec_of()
    file = cloud.folder / "clusters" / "tokyo.yaml"
    file.parent.mkdir()
    file.write_text(yaml.safe_dump(spec.model_dump(mode="json", exclude_unset=True)))
    process = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(PROVISION), str(file)], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    for line in process.stdout:
        if line.startswith(killed_at):
            time.sleep(later)
            process.send_signal(signal.SIGKILL)
            break
    assert process.wait() == -signal.SIGKILL
    process.stdout.close()

    cloud.run(spec, Mode.APPLY)
    assert not cloud.run(spec, Mode.CHECK).left
    made = [call["path"] for call in cloud.google.calls() if call["status"] == 200 and "services" not in call["path"]]
    assert sorted(path.rpartition("/")[2] for path in made) == ["clusters", "nodePools", "nodePools"], "nothing twice"
    members = [each for binding in client.bucket_policy("acme-ckpt")["bindings"] for each in binding["members"]]
    assert len([each for each in members if each.startswith("principal:")]) == 1

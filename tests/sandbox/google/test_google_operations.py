"""Long operations of the sandbox's GKE: their states, one at a time, failures, and a server that is killed."""

from __future__ import annotations

import time
from typing import Any

import pytest
from googleapiclient.errors import HttpError

from everstep_sandbox.google.testing import RunningGoogle, running_google


def test_one_operation_at_a_time(discovered: Any) -> None:
    operation = discovered.create()
    name = f"{discovered.parent}/clusters/tokyo"
    assert operation["status"] == "PENDING"
    with pytest.raises(HttpError, match="Already exists") as refused:
        discovered.create()
    assert refused.value.status_code == 409
    labels = {"resourceLabels": {"team": "a"}, "labelFingerprint": discovered.cluster()["labelFingerprint"]}
    with pytest.raises(HttpError, match=f"incompatible operation {operation['name']}") as refused:
        discovered.clusters.setResourceLabels(name=name, body=labels).execute()
    assert refused.value.status_code == 400
    listed = discovered.operations.list(parent=discovered.parent).execute()["operations"]
    assert [(one["name"], one["operationType"]) for one in listed] == [(operation["name"], "CREATE_CLUSTER")]
    discovered.done(operation)
    discovered.done(discovered.clusters.setResourceLabels(name=name, body=labels).execute())
    assert discovered.cluster()["resourceLabels"] == {"team": "a"}
    with pytest.raises(HttpError, match="fingerprint"):
        discovered.clusters.setResourceLabels(name=name, body=labels).execute()


def test_operation_goes_on_after_its_server_was_killed(google: RunningGoogle, discovered: Any) -> None:
    operation = discovered.create()
    google.kill()
    google.start()
    assert discovered.cluster()["status"] in ("PROVISIONING", "RUNNING")
    assert "error" not in discovered.done(operation)
    assert discovered.cluster()["status"] == "RUNNING"


def test_failed_operations_say_why(google: RunningGoogle, discovered: Any) -> None:
    discovered.done(discovered.create())
    pools = discovered.clusters.nodePools()
    parent = f"{discovered.parent}/clusters/tokyo"
    for kind, code in (("stockout", "GCE_STOCKOUT"), ("quota", "GCE_QUOTA_EXCEEDED")):
        google.command("failures", {"match": "CREATE_NODE_POOL", "kind": kind})
        body = {"nodePool": {"name": f"pool-{kind}", "initialNodeCount": 1}}
        ended = discovered.done(pools.create(parent=parent, body=body).execute())
        assert code in ended["error"]["message"] and ended["statusMessage"] == ended["error"]["message"]
        pool = pools.get(name=f"{parent}/nodePools/pool-{kind}").execute()
        assert pool["status"] == "ERROR" and pool["conditions"][0]["code"] == code
        assert discovered.cluster()["status"] == "RUNNING"
    google.command("failures", {"match": "CREATE_CLUSTER", "message": "No more clusters today."})
    discovered.done(discovered.create(name="osaka"))
    failed = discovered.cluster("osaka")
    assert (failed["status"], failed["statusMessage"]) == ("ERROR", "No more clusters today.")


def test_lost_answer_and_refusal_on_command(google: RunningGoogle, discovered: Any) -> None:
    google.command("faults", {"match": "POST .*/clusters", "status": 503, "after": True})
    with pytest.raises(HttpError) as refused:
        discovered.create()
    assert refused.value.status_code == 503
    assert discovered.cluster()["status"] in ("PROVISIONING", "RUNNING")
    google.command("faults", {"match": "GET .*/clusters/tokyo", "status": 429})
    with pytest.raises(HttpError) as refused:
        discovered.cluster()
    assert refused.value.status_code == 429
    assert discovered.cluster()["name"] == "tokyo"


def test_operations_take_their_time(tmp_path: Any) -> None:
    with running_google(tmp_path, speed=50) as google:
        from_conftest = pytest.importorskip("googleapiclient.discovery")
        container = from_conftest.build(
            "container", "v1", client_options={"api_endpoint": google.address}, credentials=_anonymous()
        )
        google.command("clusters", {"name": "tokyo", "location": "us-east5-a"})
        enable(google)
        began = time.monotonic()
        name = "projects/everstep-sandbox/locations/us-east5-a/clusters/tokyo"
        body = {"update": {"desiredAddonsConfig": {"highScaleCheckpointingConfig": {"enabled": True}}}}
        clusters = container.projects().locations().clusters()
        operation = clusters.update(name=name, body=body).execute()
        assert clusters.get(name=name).execute()["status"] == "RECONCILING"
        seen = {operation["status"]}
        while operation["status"] != "DONE":
            path = f"projects/everstep-sandbox/locations/us-east5-a/operations/{operation['name']}"
            operation = container.projects().locations().operations().get(name=path).execute()
            seen.add(operation["status"])
        assert seen == {"PENDING", "RUNNING", "DONE"}
        assert time.monotonic() - began > 35 / 50 - 0.1


def enable(google: RunningGoogle) -> None:
    from everstep_sandbox.stack.furnish import request

    url = f"{google.address}/v1/projects/everstep-sandbox/services/container.googleapis.com:enable"
    request("POST", url, {})


def _anonymous() -> Any:
    from google.auth.credentials import AnonymousCredentials

    return AnonymousCredentials()


def test_seeded_clusters_keep_what_they_are_given(google: RunningGoogle, discovered: Any) -> None:
    google.command(
        "clusters",
        {
            "name": "auto",
            "location": "us-east5",
            "autopilot": {"enabled": True},
            "resourceLabels": {"team": "other"},
            "status": "DEGRADED",
            "nodePools": [{"name": "theirs", "initialNodeCount": 1, "config": {"machineType": "a3-megagpu-8g"}}],
        },
    )
    name = "projects/everstep-sandbox/locations/us-east5/clusters/auto"
    found = discovered.clusters.get(name=name).execute()
    assert found["autopilot"] == {"enabled": True} and found["status"] == "DEGRADED"
    assert [pool["name"] for pool in found["nodePools"]] == ["theirs"]
    with pytest.raises(HttpError, match="Autopilot"):
        discovered.clusters.nodePools().create(parent=name, body={"nodePool": {"name": "more"}}).execute()

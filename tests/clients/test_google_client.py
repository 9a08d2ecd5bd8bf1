"""The client of Google's APIs on a real server: passing failures, refusals, credentials that are renewed."""

from __future__ import annotations

import asyncio
import json
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from everstep.clients import errors
from everstep.clients.access import GoogleAccess
from everstep.clients.google import name_of
from everstep.clients.google_requests import SERVICE_DISABLED, Endpoints
from everstep_sandbox.google.testing import RunningGoogle, running_google

pytestmark = pytest.mark.sandbox

PROJECT = "everstep-sandbox"
PLACE = (PROJECT, "us-east5-a")


@pytest.fixture
def google(tmp_path: Path) -> Iterator[RunningGoogle]:
    with running_google(tmp_path, speed=300) as server:
        yield server


@pytest.fixture
def access(google: RunningGoogle) -> GoogleAccess:
    return GoogleAccess(endpoint=google.address)


def test_addresses() -> None:
    assert Endpoints().url("container", "/v1/x") == "https://container.googleapis.com/v1/x"
    assert Endpoints().url("storage", "/storage/v1/b") == "https://storage.googleapis.com/storage/v1/b"
    own = Endpoints("http://g/", "http://s")
    assert (own.url("cloudkms", "/v1/x"), own.url("storage", "/x")) == ("http://g/v1/x", "http://s/x")


def test_projects_and_apis(access: GoogleAccess) -> None:
    with access.open() as client:
        assert client.project_number(PROJECT) == 415012345678
        with pytest.raises(errors.Forbidden):
            client.project_number("somebody-else")
        assert "container.googleapis.com" not in client.enabled_services(PROJECT)
        with pytest.raises(errors.Forbidden) as refusal:
            client.cluster(*PLACE, "tokyo")
        assert refusal.value.reason == SERVICE_DISABLED
        assert client.enable_services(PROJECT, ["container.googleapis.com"])["done"]
        assert "container.googleapis.com" in client.enabled_services(PROJECT)
        assert client.cluster(*PLACE, "tokyo") is None
        with pytest.raises(ValueError, match="at most 20"):
            client.enable_services(PROJECT, [f"s{number}.googleapis.com" for number in range(21)])


def test_an_api_that_was_enabled_a_moment_ago_may_refuse_changes_for_a_while(
    google: RunningGoogle, access: GoogleAccess
) -> None:
    timer = urllib.request.Request(
        f"{google.address}/v1/projects/{PROJECT}/services/container.googleapis.com:enable", b"{}", method="POST"
    )

    async def both() -> dict[str, object]:
        with access.open() as client:
            creating = asyncio.create_task(
                asyncio.to_thread(client.create_cluster, *PLACE, {"name": "tokyo", "initialNodeCount": 1})
            )
            await asyncio.sleep(0.2)
            await asyncio.to_thread(lambda: urllib.request.urlopen(timer).close())
            return await creating

    assert asyncio.run(both())["operationType"] == "CREATE_CLUSTER"


def test_passing_failures_are_tried_again_and_lasting_ones_told(google: RunningGoogle, access: GoogleAccess) -> None:
    with access.open() as client:
        client.enable_services(PROJECT, ["container.googleapis.com"])
        for fault in ({"status": 503}, {"status": 429}, {"disconnect": True}):
            google.command("faults", {"match": "serverConfig", **fault})
        assert client.server_config(*PLACE)["validMasterVersions"]
        with pytest.raises(errors.Invalid) as refusal:
            client.create_cluster(*PLACE, {"name": "tokyo", "nonsense": 1})
        assert 'Unknown name "nonsense"' in refusal.value.message and refusal.value.status == 400
        with pytest.raises(errors.NotFound):
            client.node_pools(*PLACE, "tokyo")
        assert client.delete_node_pool(*PLACE, "tokyo", "pool") is None
    google.command("faults", {"match": "serverConfig", "status": 503, "times": None})
    with access.open(patience=0.5) as client, pytest.raises(errors.Unavailable):
        client.server_config(*PLACE)


async def test_the_asynchronous_client_renews_its_token(
    google: RunningGoogle, access: GoogleAccess, monkeypatch: pytest.MonkeyPatch
) -> None:
    key_file = google.identity("watcher")
    email = json.loads(key_file.read_text())["client_email"]
    policy = {"policy": {"bindings": [{"role": "roles/viewer", "members": [f"serviceAccount:{email}"]}]}}
    url = f"{google.address}/v3/projects/{PROJECT}:setIamPolicy"
    with access.open() as owner:
        owner.enable_services(PROJECT, ["container.googleapis.com"])
        operation = owner.create_cluster(*PLACE, {"name": "tokyo", "initialNodeCount": 1})
    request = urllib.request.Request(url, json.dumps(policy).encode(), method="POST")
    await asyncio.to_thread(lambda: urllib.request.urlopen(request).close())
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(key_file))
    async with await access.open_async() as client:
        name = name_of(*PLACE, operation)
        assert (await client.get("container", f"/v1/{name}"))["operationType"] == "CREATE_CLUSTER"
        client._credentials.token = "stale"
        assert (await client.get("container", f"/v1/{name}"))["operationType"] == "CREATE_CLUSTER"
        assert client._credentials.token != "stale"
        with pytest.raises(errors.NotFound):
            await client.get("container", f"/v1/{name}x")


def test_a_connection_that_is_not_there() -> None:
    with pytest.raises(errors.NotConfigured, match="connection 'nobody' to Google Cloud"):
        GoogleAccess("nobody").open()

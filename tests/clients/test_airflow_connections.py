"""Clients through Airflow connections: a kubeconfig, GKE with tokens of Google's kind, and Cloud Storage."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from everstep.clients.access import ClusterAccess, StorageAccess
from everstep.clients.resources import PRIORITY_CLASSES

pytestmark = pytest.mark.sandbox


class TokenServer(ThreadingHTTPServer):
    """Stands for Google's token endpoint: every request gets a new token."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _TokenHandler)
        self.tokens = 0

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/token"


class _TokenHandler(BaseHTTPRequestHandler):
    server: TokenServer

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.server.tokens += 1
        body = json.dumps({"access_token": f"token-{self.server.tokens}", "expires_in": 3600, "token_type": "Bearer"})
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.end_headers()
        self.wfile.write(body.encode())

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def tokens() -> Iterator[TokenServer]:
    server = TokenServer()
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield server
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.fixture
def gke(bare_kubernetes: Any, tokens: TokenServer, monkeypatch: pytest.MonkeyPatch) -> ClusterAccess:
    """A Google Cloud connection whose extra names the API's address."""
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    pem = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    keyfile = {
        "type": "service_account",
        "project_id": "test",
        "private_key_id": "1",
        "private_key": pem.decode(),
        "client_email": "t@test.iam.gserviceaccount.com",
        "client_id": "1",
        "token_uri": tokens.address,
    }
    extra = {"keyfile_dict": json.dumps(keyfile), "project": "test", "gke_endpoint": bare_kubernetes.address}
    monkeypatch.setenv("AIRFLOW_CONN_GKE", json.dumps({"conn_type": "google_cloud_platform", "extra": extra}))
    return ClusterAccess(name="c", connection="gke", endpoint="dns", project="test", location="here")


def test_gke_tokens_are_asked_for_anew_after_a_401(gke: ClusterAccess, bare_kubernetes: Any, tokens: Any) -> None:
    with gke.open() as client:
        client.list_all(PRIORITY_CLASSES)
        before = tokens.tokens
        assert before >= 1
        bare_kubernetes.fault(match="priorityclasses", status=401, times=1)
        client.list_all(PRIORITY_CLASSES)
    assert tokens.tokens > before


async def test_gke_in_the_event_loop_does_the_same(gke: ClusterAccess, bare_kubernetes: Any, tokens: Any) -> None:
    async with gke.open_async() as client:
        await client.list_all(PRIORITY_CLASSES)
        before = tokens.tokens
        assert before >= 1
        bare_kubernetes.fault(match="priorityclasses", status=401, times=1)
        await client.list_all(PRIORITY_CLASSES)
    assert tokens.tokens > before


async def test_a_gke_watch_outlives_the_hour_of_its_token(
    gke: ClusterAccess, bare_kubernetes: Any, tokens: TokenServer
) -> None:
    async with gke.open_async() as client, asyncio.timeout(20):
        _, version = await client.list_all(PRIORITY_CLASSES)
        old = f"token-{tokens.tokens}"
        async with client.watch(PRIORITY_CLASSES, None, version, silence=10) as events:
            bare_kubernetes.fault(match="priorityclasses", status=401, token=old, times=10**9)
            await client.patch(PRIORITY_CLASSES, "system-node-critical", {"description": f"after {old}"})
            async for event in events:
                assert event["object"]["description"] == f"after {old}"
                break
        async with client.watch(PRIORITY_CLASSES, None, version, silence=10):
            pass
    assert f"token-{tokens.tokens}" != old


def test_what_a_trigger_carries_names_the_endpoint_and_no_secret(gke: ClusterAccess, bare_kubernetes: Any) -> None:
    carried = gke.resolved().as_dict()
    assert carried["url"] == bare_kubernetes.address
    assert "PRIVATE KEY" not in json.dumps(carried)
    assert ClusterAccess(**carried) == gke.resolved()


@pytest.mark.parametrize("as_text", [False, True], ids=["path", "content"])
async def test_a_kubeconfig_connection_serves_both_clients(
    bare_kubernetes: Any, monkeypatch: pytest.MonkeyPatch, as_text: bool
) -> None:
    import yaml

    path = bare_kubernetes.kubeconfig
    extra = (
        {"kube_config": json.dumps(yaml.safe_load(path.read_text()))} if as_text else {"kube_config_path": str(path)}
    )
    monkeypatch.setenv("AIRFLOW_CONN_CLUSTER", json.dumps({"conn_type": "kubernetes", "extra": extra}))
    access = ClusterAccess(name="c", connection="cluster")
    with access.open() as client:
        assert client.list_all(PRIORITY_CLASSES)
    async with access.open_async() as asynchronous:
        assert (await asynchronous.list_all(PRIORITY_CLASSES))[0]


@pytest.mark.parametrize("by", ["extra", "environment"])
async def test_storage_by_connection(
    cloud_storage: Any, new_bucket: str, monkeypatch: pytest.MonkeyPatch, by: str
) -> None:
    extra: dict[str, Any] = {"is_anonymous": True, "project": "test"}
    if by == "extra":
        extra["storage_endpoint"] = cloud_storage.address
    else:
        monkeypatch.setenv("STORAGE_EMULATOR_HOST", cloud_storage.address)
    monkeypatch.setenv("AIRFLOW_CONN_STORAGE", json.dumps({"conn_type": "google_cloud_platform", "extra": extra}))
    access = StorageAccess(connection="storage")
    access.open(new_bucket).write("a/b.json", {"n": 1}, generation=0)
    async with access.open_async(new_bucket) as client:
        stored = await client.read("a/b.json")
        assert stored is not None
        assert json.loads(stored.body) == {"n": 1}
        assert await client.read("a/c.json") is None

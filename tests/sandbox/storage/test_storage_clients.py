"""The server as a process, used through the clients that the product and training frameworks use."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import requests
from google.api_core import exceptions
from google.auth.credentials import AnonymousCredentials
from google.cloud import storage

from everstep_sandbox.checkpointing.testing import create_bucket
from everstep_sandbox.storage.process import running_storage, start_storage

pytestmark = pytest.mark.sandbox


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with running_storage(tmp_path_factory.mktemp("storage")) as address:
        create_bucket(address, "demo-bucket")
        yield address


@pytest.fixture
def bucket(url: str) -> Iterator[Any]:
    requests.delete(f"{url}/_sandbox/faults", timeout=10)
    yield client_of(url).bucket("demo-bucket")
    requests.delete(f"{url}/_sandbox/faults", timeout=10)


def client_of(url: str) -> Any:
    return storage.Client(project="p", credentials=AnonymousCredentials(), client_options={"api_endpoint": url})


def set_fault(url: str, **fault: Any) -> None:
    assert requests.post(f"{url}/_sandbox/faults", json=fault, timeout=10).status_code == 200


def test_a_counter_of_eight_threads_is_exact(url: str, bucket: Any) -> None:
    bucket.blob("counter").upload_from_string("0", if_generation_match=0)

    def count() -> None:
        own = client_of(url).bucket("demo-bucket")
        for _ in range(5):
            while True:
                try:
                    current = own.get_blob("counter")
                    number = int(current.download_as_bytes()) + 1
                    own.blob("counter").upload_from_string(str(number), if_generation_match=current.generation)
                    break
                except (exceptions.PreconditionFailed, exceptions.NotFound):
                    continue

    threads = [threading.Thread(target=count) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert bucket.get_blob("counter").download_as_bytes() == b"40"


def test_large_objects_go_up_in_pieces_and_come_down_whole(bucket: Any) -> None:
    data = os.urandom(9 << 20)
    blob = bucket.blob("large/object")
    blob.chunk_size = 1 << 20
    blob.upload_from_string(data)
    assert blob.download_as_bytes() == data
    assert bucket.get_blob("large/object").download_as_bytes(start=5, end=9) == data[5:10]
    with bucket.blob("written").open("wb") as file:
        file.write(data[: 3 << 20])
    assert bucket.blob("written").download_as_bytes() == data[: 3 << 20]


def test_listing_copying_moving_composing_and_batch(url: str, bucket: Any) -> None:
    client = client_of(url)
    for number in range(6):
        bucket.blob(f"list/{number % 2}/é{number}").upload_from_string(str(number))
    shallow = client.list_blobs("demo-bucket", prefix="list/", delimiter="/", page_size=1)
    assert [blob.name for blob in shallow] == []
    assert shallow.prefixes == {"list/0/", "list/1/"}
    bucket.copy_blob(bucket.blob("list/0/é0"), bucket, "list/copy")
    bucket.move_blob(bucket.blob("list/copy"), "list/moved")
    bucket.blob("list/both").compose([bucket.blob("list/moved"), bucket.blob("list/1/é1")])
    assert bucket.blob("list/both").download_as_bytes() == b"01"
    doomed = list(client.list_blobs("demo-bucket", prefix="list/0/"))
    with client.batch():
        for blob in doomed:
            blob.delete()
    left = [blob.name for blob in client.list_blobs("demo-bucket", prefix="list/")]
    assert left == ["list/1/é1", "list/1/é3", "list/1/é5", "list/both", "list/moved"]


def test_faults_are_met_as_often_as_asked_for(url: str, bucket: Any) -> None:
    set_fault(url, match="POST /upload", status=503, times=2)
    bucket.blob("retried").upload_from_string("x", if_generation_match=0)
    assert bucket.blob("retried").download_as_bytes() == b"x"
    set_fault(url, match="/o/retried", status=429, times=1, retry_after=7)
    answer = requests.get(f"{url}/storage/v1/b/demo-bucket/o/retried", timeout=10)
    assert (answer.status_code, answer.headers["Retry-After"]) == (429, "7")
    assert answer.json()["error"]["errors"][0]["reason"] == "rateLimitExceeded"


def test_a_lost_answer_leaves_the_write_done(url: str, bucket: Any) -> None:
    set_fault(url, match="POST /upload", disconnect=True, after=True)
    with pytest.raises(requests.ConnectionError):
        requests.post(f"{url}/upload/storage/v1/b/demo-bucket/o?uploadType=media&name=lost", data=b"x", timeout=10)
    assert bucket.blob("lost").download_as_bytes() == b"x"


async def test_the_asynchronous_client(url: str, bucket: Any) -> None:
    from gcloud.aio.storage import Storage

    data = os.urandom(300_000)
    async with aiohttp.ClientSession() as session:
        client = Storage(session=session, api_root=url)
        await client.upload("demo-bucket", "aio/small", b"small")
        await client.upload("demo-bucket", "aio/large", data, force_resumable_upload=True)
        assert await client.download("demo-bucket", "aio/large") == data
        listed = await client.list_objects("demo-bucket", params={"prefix": "aio/"})
        assert [item["name"] for item in listed["items"]] == ["aio/large", "aio/small"]
        await client.delete("demo-bucket", "aio/small")
    assert bucket.get_blob("aio/small") is None


def test_file_system_client(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT", "false")
    import gcsfs

    files = gcsfs.GCSFileSystem(token="anon", endpoint_url=url, use_listings_cache=False, skip_instance_cache=True)
    data = os.urandom(6 << 20)
    files.pipe("demo-bucket/fs/small", b"12345")
    with files.open("demo-bucket/fs/large", "wb") as file:
        file.write(data)
    assert files.cat("demo-bucket/fs/large") == data
    files.mv("demo-bucket/fs/small", "demo-bucket/fs/moved")
    assert files.find("demo-bucket/fs") == ["demo-bucket/fs/large", "demo-bucket/fs/moved"]
    files.rm("demo-bucket/fs", recursive=True)
    assert not files.exists("demo-bucket/fs/moved")


def test_what_was_stored_survives_a_kill(tmp_path: Path) -> None:
    process, url = start_storage(tmp_path)
    create_bucket(url, "kept-bucket")
    bucket = client_of(url).bucket("kept-bucket")
    for number in range(20):
        bucket.blob(f"a/{number}").upload_from_string(str(number))
    process.kill()
    process.wait()
    process, again = start_storage(tmp_path)
    try:
        assert again == url, "clients that know the address must find the server again"
        found = {blob.name: blob.download_as_bytes() for blob in client_of(url).list_blobs("kept-bucket")}
        assert found == {f"a/{number}": str(number).encode() for number in range(20)}
    finally:
        process.terminate()
        process.wait()


def test_orbax_saves_to_the_bucket_and_restores(url: str, bucket: Any) -> None:
    program = """
import jax.numpy as jnp, orbax.checkpoint as ocp
checkpointer = ocp.StandardCheckpointer()
checkpointer.save("gs://demo-bucket/run/checkpoints/5", {"a": jnp.arange(1000.0)})
checkpointer.wait_until_finished()
restored = checkpointer.restore("gs://demo-bucket/run/checkpoints/5")
assert float(restored["a"].sum()) == 499500.0
"""
    environment = {
        **os.environ,
        "STORAGE_EMULATOR_HOST": url,
        "TENSORSTORE_GCS_HTTP_URL": url,
        "GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT": "false",
        "JAX_PLATFORMS": "cpu",
    }
    subprocess.run([sys.executable, "-c", program], env=environment, check=True, timeout=120)
    assert bucket.get_blob("run/checkpoints/5/commit_success.txt") is not None

"""One contestant of the retention bench, in a process of its own so that its memory is its own.

    python -m tests.bench.retention_contestants plan ADDRESS DIRECTORY …

Prints one line of JSON: `seconds` of the work without imports, `peak_mb` of the process, and other figures.
"""

from __future__ import annotations

import json
import os
import resource
import sys
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

from tests.bench.retention_bucket import NEWEST
from tests.bench.retention_server import BUCKET

NOW = NEWEST + timedelta(days=3)


def plan(address: str, directory: str, kept: str) -> dict[str, Any]:
    """Plan each run, so many backups to stay (`name=count …`), and save the plans."""
    from everstep.clients.access import StorageAccess
    from everstep.retain.planning import plan_run
    from everstep.retain.policy import Policy

    bucket = StorageAccess(endpoint=address).open(BUCKET)
    bucket.metadata()
    started = time.perf_counter()
    swept = {}
    for run, count in (each.split("=") for each in kept.split()):
        made = plan_run(bucket, run, Policy({}, keep_last=int(count)), now=NOW)
        swept[run] = len(made.swept)
        Path(directory, f"{run}.json").write_text(made.to_json())
    return {"seconds": time.perf_counter() - started, "swept": swept}


def sweep(address: str, directory: str, rate: str) -> dict[str, Any]:
    """Apply the saved plans and empty their trash."""
    from everstep.clients.access import StorageAccess
    from everstep.retain import plan as plans
    from everstep.retain import sweep as sweeping
    from everstep.retain.sweep_report import SweepSettings

    bucket = StorageAccess(endpoint=address).open(BUCKET)
    bucket.metadata()
    started = time.perf_counter()
    swept = objects = 0
    for file in sorted(Path(directory).glob("*.json")):
        report = sweeping.apply(
            bucket,
            plans.verify(file.read_bytes()),
            settings=SweepSettings(now=lambda: NOW, empty_now=True),
            objects_per_second=float(rate),
        )
        assert not report.skipped and not report.left, report
        swept += len(report.swept)
        objects += report.objects_deleted
    return {"seconds": time.perf_counter() - started, "backups": swept, "objects": objects}


def listing(address: str) -> dict[str, Any]:
    """List every object by the standard client, and keep nothing."""
    client = _client(address)
    client.get_bucket(BUCKET)
    started = time.perf_counter()
    objects = sum(1 for _ in client.list_blobs(BUCKET))
    return {"seconds": time.perf_counter() - started, "objects": objects}


def server(address: str) -> dict[str, Any]:
    """List every object and look at no answer: what the server takes by itself."""
    import http.client

    host = address.removeprefix("http://")
    connection = http.client.HTTPConnection(host)
    started = time.perf_counter()
    token, pages = b"", 0
    while True:
        query = f"?pageToken={token.decode()}" if token else ""
        connection.request("GET", f"/storage/v1/b/{BUCKET}/o{query}")
        body = connection.getresponse().read()
        pages += 1
        place = body.rfind(b'"nextPageToken":"', -1000)
        if place < 0:
            return {"seconds": time.perf_counter() - started, "pages": pages}
        token = body[place + 17 : body.index(b'"', place + 17)]


def server_deletion(address: str, prefix: str) -> dict[str, Any]:
    """Delete all objects of one prefix by batches that were made before, over one connection: what the server takes."""
    import http.client

    from everstep.clients import batches
    from everstep.clients.bulk_requests import FoundObject

    names = [blob.name for blob in _client(address).list_blobs(BUCKET, prefix=prefix)]
    objects = [FoundObject(name, 7, 0, None) for name in names]
    bodies = [batches.deletions(BUCKET, objects[first : first + 100]) for first in range(0, len(objects), 100)]
    connection = http.client.HTTPConnection(address.removeprefix("http://"))
    started = time.perf_counter()
    for body in bodies:
        connection.request("POST", "/batch/storage/v1", body, {"Content-Type": batches.CONTENT_TYPE})
        connection.getresponse().read()
    return {"seconds": time.perf_counter() - started, "objects": len(names)}


def provider(address: str, prefix: str, limit: str) -> dict[str, Any]:
    """The Google provider's own operator, on as many objects of one prefix."""
    os.environ["STORAGE_EMULATOR_HOST"] = address
    os.environ["AIRFLOW_CONN_BENCH"] = json.dumps(
        {"conn_type": "google_cloud_platform", "extra": {"is_anonymous": True, "project": "bench"}}
    )
    from airflow.providers.google.cloud.operators.gcs import GCSDeleteObjectsOperator

    names = [blob.name for blob in _client(address).list_blobs(BUCKET, prefix=prefix, max_results=int(limit))]
    operator = GCSDeleteObjectsOperator(task_id="delete", bucket_name=BUCKET, objects=names, gcp_conn_id="bench")
    started = time.perf_counter()
    operator.execute({})
    return {"seconds": time.perf_counter() - started, "objects": len(names)}


def gcsfs_listing(address: str, prefix: str) -> dict[str, Any]:
    """`find` of gcsfs below a prefix."""
    system = _gcsfs(address)
    started = time.perf_counter()
    objects = len(system.find(f"{BUCKET}/{prefix}"))
    return {"seconds": time.perf_counter() - started, "objects": objects}


def gcsfs_deletion(address: str, prefix: str) -> dict[str, Any]:
    """`rm` of gcsfs, recursive, of one prefix; elsewhere than at Google it deletes one by one, a few at once."""
    system = _gcsfs(address)
    names = system.find(f"{BUCKET}/{prefix}")
    started = time.perf_counter()
    system.rm(names)
    return {"seconds": time.perf_counter() - started, "objects": len(names)}


def backup_warden(tree: str) -> dict[str, Any]:
    """What backup-warden would delete of a tree, which it does not look into; it also deletes nothing here."""
    import subprocess

    command = [
        str(Path(sys.executable).parent / "backup-warden"),
        *("-p", tree, "--utc", "--no-update-check", "--no-recency-check", "--print-deleted"),
        *("--hourly", "24", "--daily", "7", "--weekly", "5", "--monthly", "always", "--yearly", "always"),
        "--prefer-recent",
    ]
    started = time.perf_counter()
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return {"seconds": time.perf_counter() - started, "would_delete": len(done.stdout.splitlines())}


def _client(address: str) -> Any:
    from google.auth.credentials import AnonymousCredentials
    from google.cloud import storage

    return storage.Client(project="none", credentials=AnonymousCredentials(), client_options={"api_endpoint": address})


def _gcsfs(address: str) -> Any:
    os.environ["GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT"] = "false"
    import gcsfs

    return gcsfs.GCSFileSystem(endpoint_url=address, token="anon", use_listings_cache=False)


CONTESTANTS: dict[str, Callable[..., dict[str, Any]]] = {
    each.__name__: each
    for each in (plan, sweep, listing, server, server_deletion, provider, gcsfs_listing, gcsfs_deletion, backup_warden)
}

if __name__ == "__main__":
    figures = CONTESTANTS[sys.argv[1]](*sys.argv[2:])
    who = resource.RUSAGE_CHILDREN if sys.argv[1] == "backup_warden" else resource.RUSAGE_SELF
    print(json.dumps({**figures, "peak_mb": round(resource.getrusage(who).ru_maxrss / 1024, 1)}))

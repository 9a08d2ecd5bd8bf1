"""A machine whose clock is wrong plans and sweeps nothing: seen against a server whose own clock says otherwise."""

from __future__ import annotations

import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

import pytest
from tests.retain.real_bucket import RUN, RealBucket

from everstep.clients.access import StorageAccess
from everstep.clients.storage import BucketClient
from everstep.retain import sweep
from everstep.retain.plan import RetentionRefused
from everstep.retain.planning import plan_run
from everstep.retain.policy import Policy

pytestmark = pytest.mark.sandbox

LATER = datetime.now(UTC) + timedelta(days=2)


@contextmanager
def server_with_clock(address: str, *, ahead: timedelta) -> Iterator[str]:
    """Forward everything to a server, and date the answers otherwise."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def forward(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0)) or None
            headers = {key: value for key, value in self.headers.items() if key != "Host"}
            request = urllib.request.Request(address + self.path, body, headers, method=self.command)
            try:
                answer = urllib.request.urlopen(request, timeout=30)
            except urllib.error.HTTPError as refused:
                answer = refused
            content = answer.read()
            self.send_response_only(answer.status)
            for key, value in answer.headers.items():
                if key not in ("Date", "Content-Length", "Transfer-Encoding"):
                    self.send_header(key, value)
            self.send_header("Date", format_datetime(datetime.now(UTC) + ahead, usegmt=True))
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        do_GET = do_POST = do_PUT = do_DELETE = forward

        def log_message(self, format: str, *arguments: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.mark.parametrize(
    ("ahead", "said"), [(timedelta(days=1), "24 hours behind"), (timedelta(days=-1), "24 hours ahead of")]
)
def test_a_wrong_clock_is_refused_before_anything_is_changed(cloud_storage: Any, ahead: timedelta, said: str) -> None:
    bucket = RealBucket(cloud_storage.address)
    bucket.history()
    plan = bucket.plan()
    before = bucket.names()

    def client(address: str) -> BucketClient:
        return StorageAccess(endpoint=address).open(bucket.name)

    with server_with_clock(cloud_storage.address, ahead=ahead) as address:
        with pytest.raises(RetentionRefused, match=said):
            plan_run(client(address), RUN, Policy({}), now=LATER)
        with pytest.raises(RetentionRefused, match=said):
            sweep.apply(client(address), plan)
    assert bucket.names() == before
    with server_with_clock(cloud_storage.address, ahead=timedelta(minutes=1)) as address:
        assert len(sweep.apply(client(address), plan).swept) == 3
    with server_with_clock(cloud_storage.address, ahead=ahead) as address, pytest.raises(RetentionRefused, match=said):
        sweep.undo(client(address), RUN, plan.hash)
    assert len(bucket.dated()) == 2

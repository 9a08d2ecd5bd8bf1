"""The rank server: gives each node of a JobSet's attempt its rank and the address of JAX's coordinator.

It also keeps the registry of the replicators' coordinators. Plain HTTP with long polls:
``POST /ranks``, ``PUT | GET | DELETE /coordinators/<job>``.
"""

from __future__ import annotations

import contextlib
import json
import socket
import threading
import time
import zlib
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

from everstep_sandbox.checkpointing.ranks import NodeReport, assign
from everstep_sandbox.checkpointing.registry import Entry

_FIRST_PORT, _PORTS = 12000, 18000
_LONGEST_HOLD_SECONDS = 30.0
_KEPT_ATTEMPTS = 100


@dataclass(frozen=True)
class JobShape:
    """A JobSet that ranks are given to: one replicated job with the checkpoint volume."""

    uid: str
    slices: int
    slice_size: int


@dataclass(frozen=True)
class Report:
    """What the driver of a node tells of a pod that mounted the volume. `cached`: the node's `rank-data`."""

    node: str
    namespace: str
    jobset: str
    pod_uid: str
    pod_ip: str
    attempt: int
    job_index: int
    completion_index: int
    cached: dict[str, Any] | None = None


@dataclass
class _Attempt:
    shape: JobShape
    reports: dict[tuple[int, int], Report] = field(default_factory=dict)
    ranks: dict[str, int] = field(default_factory=dict)
    coordinator: str = ""


class RankServer:
    """Serves until `stop`. `shape_of(namespace, jobset)`: None when ranks are not given to that JobSet;
    `pool_of(node)`: None while the node's pool is not known. Both are called from the server's threads. `state`: a file
    that lets a restarted server go on in the middle of an attempt."""

    def __init__(
        self,
        shape_of: Callable[[str, str], JobShape | None],
        pool_of: Callable[[str], str | None],
        *,
        port: int = 0,
        state: Path | None = None,
        log: Callable[[str], None] = lambda line: None,
    ) -> None:
        self._shape_of = shape_of
        self._pool_of = pool_of
        self._log = log
        self._state = state
        self._attempts: dict[tuple[str, int], _Attempt] = {}
        self._coordinators: dict[str, Entry] = {}
        if state is not None and state.exists():
            self._load(json.loads(state.read_text()))
        self._changed = threading.Condition()
        server = self

        class Handler(_Handler):
            owner = server

        self._server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.1,), daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    def stir(self) -> None:
        """Makes those who wait look again, for instance when a node's pool became known."""
        with self._changed:
            self._changed.notify_all()

    def rank(self, report: Report, hold: float) -> tuple[int, dict[str, Any]]:
        """Status and document: 200 with the rank, 202 when not all pods have reported, 404 for other JobSets."""
        shape = self._shape_of(report.namespace, report.jobset)
        if shape is None:
            return 404, {"message": f"{report.namespace}/{report.jobset} is not a checkpointing job"}
        key = (shape.uid, report.attempt)
        with self._changed:
            for other in [one for one in self._attempts if one[0] == shape.uid and one[1] < report.attempt]:
                del self._attempts[other]
            attempt = self._attempts.setdefault(key, _Attempt(shape))
            index = (report.job_index, report.completion_index)
            known = attempt.reports.get(index)
            attempt.reports[index] = report
            if known is not None and known.pod_uid != report.pod_uid:
                attempt.ranks.clear()
            self._keep()
            self._changed.notify_all()
            deadline = time.monotonic() + hold
            while True:
                if self._attempts.get(key) is not attempt:
                    return 410, {"message": "A later attempt has begun."}
                self._assign(report, attempt)
                if report.node in attempt.ranks:
                    return 200, self._answer(report, attempt)
                left = deadline - time.monotonic()
                if left <= 0:
                    return 202, {"message": f"{len(attempt.reports)} pods have reported."}
                self._changed.wait(left)

    def register(self, job: str, entry: Entry) -> None:
        with self._changed:
            self._coordinators[job] = entry
            self._keep()
            self._changed.notify_all()

    def unregister(self, job: str) -> None:
        with self._changed:
            self._coordinators.pop(job, None)
            self._keep()

    def coordinator(self, job: str, other_than: str, hold: float) -> Entry | None:
        """The job's coordinator, waited for up to `hold` seconds."""

        def found() -> bool:
            entry = self._coordinators.get(job)
            return entry is not None and entry.identifier != other_than

        with self._changed:
            return self._coordinators[job] if self._changed.wait_for(found, hold) else None

    def _assign(self, latest: Report, attempt: _Attempt) -> None:
        shape = attempt.shape
        if attempt.ranks or len(attempt.reports) < shape.slices * shape.slice_size:
            return
        pools = {report.node: self._pool_of(report.node) for report in attempt.reports.values()}
        if None in pools.values():
            return
        reports = [
            NodeReport(
                report.node,
                pools[report.node] or "",
                _cached_rank(report, shape),
                report.job_index * shape.slice_size + report.completion_index,
            )
            for report in attempt.reports.values()
        ]
        assignment = assign(reports, shape.slices, shape.slice_size)
        name = f"{latest.namespace}/{latest.jobset}"
        if assignment.invalidates:
            self._log(f"{name}: all ranks are assigned anew; this will invalidate any local checkpoint")
        attempt.ranks = assignment.ranks
        first = next(one for one in attempt.reports.values() if assignment.ranks[one.node] == 0)
        port = _fresh_port(first.pod_ip, f"{shape.uid}/{latest.attempt}/{first.pod_uid}")
        attempt.coordinator = f"{first.pod_ip}:{port}"
        self._log(f"{name} attempt {latest.attempt}: {assignment.ranks}, coordinator {attempt.coordinator}")
        self._keep()
        self._changed.notify_all()

    def _keep(self) -> None:
        if self._state is None:
            return
        for key in list(self._attempts)[:-_KEPT_ATTEMPTS]:
            del self._attempts[key]
        document = {
            "attempts": [
                {
                    "number": number,
                    "shape": asdict(attempt.shape),
                    "reports": [asdict(report) for report in attempt.reports.values()],
                    "ranks": attempt.ranks,
                    "coordinator": attempt.coordinator,
                }
                for (_, number), attempt in self._attempts.items()
            ],
            "coordinators": {job: asdict(entry) for job, entry in self._coordinators.items()},
        }
        aside = self._state.with_name(self._state.name + ".tmp")
        aside.write_text(json.dumps(document))
        aside.rename(self._state)

    def _load(self, document: dict[str, Any]) -> None:
        self._coordinators = {job: Entry(**entry) for job, entry in document["coordinators"].items()}
        for kept in document["attempts"]:
            shape = JobShape(**kept["shape"])
            reports = [Report(**report) for report in kept["reports"]]
            by_index = {(report.job_index, report.completion_index): report for report in reports}
            attempt = _Attempt(shape, by_index, kept["ranks"], kept["coordinator"])
            self._attempts[shape.uid, kept["number"]] = attempt

    def _answer(self, report: Report, attempt: _Attempt) -> dict[str, Any]:
        return {
            "rank": attempt.ranks[report.node],
            "coordinator": attempt.coordinator,
            "slices": attempt.shape.slices,
            "slice_size": attempt.shape.slice_size,
        }


def _cached_rank(report: Report, shape: JobShape) -> int | None:
    """The rank that the node remembers, if it was a rank of this job in this shape."""
    cached = report.cached or {}
    same = (cached.get("job"), cached.get("slices"), cached.get("slice_size")) == (
        f"{report.namespace}/{report.jobset}",
        shape.slices,
        shape.slice_size,
    )
    return int(cached["rank"]) if same else None


def _fresh_port(address: str, seed: str) -> int:
    """A free port that another attempt is unlikely to have had; below the ports of outgoing connections."""
    start = zlib.crc32(seed.encode()) % _PORTS
    for offset in range(_PORTS):
        port = _FIRST_PORT + (start + offset) % _PORTS
        with socket.socket() as probe:
            try:
                probe.bind((address, port))
            except OSError:
                continue
            return port
    raise OSError(f"No free port on {address}.")


class _Handler(BaseHTTPRequestHandler):
    owner: RankServer
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        document = self._document()
        hold = min(float(document.pop("wait", 0)), _LONGEST_HOLD_SECONDS)
        self._send(*self.owner.rank(Report(**document), hold))

    def do_PUT(self) -> None:
        self.owner.register(self._job(), Entry(**self._document()))
        self._send(200, {})

    def do_DELETE(self) -> None:
        self.owner.unregister(self._job())
        self._send(200, {})

    def do_GET(self) -> None:
        query = parse_qs(urlsplit(self.path).query)
        hold = min(float(query.get("wait", ["0"])[0]), _LONGEST_HOLD_SECONDS)
        found = self.owner.coordinator(self._job(), query.get("other_than", [""])[0], hold)
        self._send(*((200, asdict(found)) if found else (404, {"message": "No coordinator has registered."})))

    def log_message(self, *arguments: object) -> None:
        """Requests are not worth a line each."""

    def _job(self) -> str:
        return unquote(urlsplit(self.path).path.rsplit("/", 1)[1])

    def _document(self) -> dict[str, Any]:
        document = json.loads(self.rfile.read(int(self.headers.get("Content-Length", 0))))
        if not isinstance(document, dict):
            raise ValueError("The body is no JSON object.")
        return document

    def _send(self, status: int, document: dict[str, Any]) -> None:
        body = json.dumps(document).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        with contextlib.suppress(ConnectionError):  # Who waited may have gone in the meantime.
            self.end_headers()
            self.wfile.write(body)

"""Where the nodes of a job find its coordinator: an entry by job name, there from registration to restore.

The entry is kept by the rank server, in place of the ConfigMap that the real controller keeps.
"""

from __future__ import annotations

import threading
import time
import uuid
from dataclasses import asdict, dataclass
from urllib.parse import quote

from everstep_sandbox.checkpointing.web import WebError, call, call_json

_HOLD_SECONDS = 5
_PAUSE_SECONDS = 0.3


@dataclass(frozen=True)
class Entry:
    """A coordinator; `identifier` tells one from the next on the same address."""

    ip: str
    port: int
    identifier: str


class Registry:
    """Calls of the rank server. All of them go on through its restarts."""

    def __init__(self, url: str) -> None:
        self._url = url

    def put(self, job: str, address: str, port: int) -> None:
        call("PUT", self._entry(job), document=asdict(Entry(address, port, uuid.uuid4().hex)))

    def remove(self, job: str) -> None:
        call("DELETE", self._entry(job))

    def wait(self, job: str, *, other_than: str = "", given_up: threading.Event | None = None) -> Entry | None:
        """The job's coordinator as soon as there is one, other than the one named; None when given up.

        There is no deadline, as in the real replicator.
        """
        while given_up is None or not given_up.is_set():
            query = f"?wait={_HOLD_SECONDS}&other_than={other_than}"
            try:
                found = call_json("GET", self._entry(job) + query, timeout=_HOLD_SECONDS + 10, tries=1)
                return Entry(**found)
            except WebError as problem:
                if problem.status != 404:
                    raise
            except OSError:
                time.sleep(_PAUSE_SECONDS)
        return None

    def _entry(self, job: str) -> str:
        return f"{self._url}/coordinators/{quote(job, safe='')}"

"""Sweeps and undos that are killed at every request: python -m tests.retain.killed_sweeps ADDRESS folders|flat|undo

Each try is a process of its own that ends itself by SIGKILL before its k-th request is sent, or after it was answered
and before anybody saw the answer. What is in the bucket then has to be whole for whoever reads it; the next start,
which is not killed, has to bring the sweep to its end. Prints how many kills there were.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import requests
from tests.retain.real_bucket import RUN, RealBucket

from everstep.clients import bulk_requests, storage_bulk
from everstep.retain import sweep
from everstep.retain.sweep_report import SweepSettings

LATER = datetime.now(UTC) + timedelta(days=2)
KEPT = 1
# One request after the other, and little in each, so that kills fall between the batches of a backup.
bulk_requests.LARGEST_BATCH = 2
storage_bulk.AT_ONCE = 1


def main() -> None:
    """Kill at each request, until a try comes to its end before it is killed."""
    address, mode = sys.argv[1:]
    kills = 0
    for answered in (False, True):
        number = 1
        while one_try(address, mode, number, answered):
            number += 1
        kills += number - 1
    print(kills)


def one_try(address: str, mode: str, number: int, answered: bool) -> bool:
    """Kill one try and let the next one end; return whether it lived to be killed."""
    bucket = RealBucket(address, hierarchical=mode != "flat")
    backups = 3 if mode == "folders" else 2
    bucket.history(backups)
    if mode == "flat":
        bucket.dcp(10)
        bucket.dcp(20)
    before = bucket.names()
    plan = bucket.plan(keep_last=KEPT, keep_complete=KEPT)
    settings = SweepSettings(now=lambda: LATER, together=1, empty_now=mode == "folders")

    def apply() -> None:
        sweep.apply(bucket.client(), plan, settings=settings, objects_per_second=1e6)

    def undo() -> None:
        sweep.undo(bucket.client(), RUN, plan.hash, settings=settings)

    if mode == "undo":
        in_child(apply, None, answered)
    work = undo if mode == "undo" else apply
    was_killed = in_child(work, number, answered)
    where = f"{mode}: killed {'after' if answered else 'before'} request {number}"
    assert bucket.torn() == [], f"{where}: torn {bucket.torn()} of {sorted(bucket.names())}"
    assert f"2026-03-0{backups}_00-00" in bucket.dated(), f"{where}: the newest is lost"
    assert not in_child(work, None, answered), f"{where}: the next start did not end"
    check_end(bucket, mode, before, f"2026-03-0{backups}_00-00", where)
    return was_killed


def check_end(bucket: RealBucket, mode: str, before: set[str], newest: str, where: str) -> None:
    """Everything is as after a sweep, or an undo, that nobody disturbed."""
    names = {name for name in bucket.names() if "/everstep/retention/" not in name and not name.endswith("lease.json")}
    expected = {
        name
        for name in before
        if mode == "undo"
        or not name.startswith((f"{RUN}/2026-", f"{RUN}/checkpoints/10/"))
        or name.startswith(f"{RUN}/{newest}/")
    }
    assert names == expected, f"{where}: {sorted(names ^ expected)}"
    if bucket.hierarchical:
        left = {name for name in bucket.folders() if ".trash" in name}
        assert not left, f"{where}: {left}"


def in_child(work: Callable[[], Any], kill_at: int | None, answered: bool) -> bool:
    """Do the work in a process of its own; return whether it was killed. Raises when it failed otherwise."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            if kill_at is not None:
                kill_at_request(kill_at, answered)
            work()
            code = 0
        except BaseException as failure:
            print(f"{type(failure).__name__}: {failure}", file=sys.stderr, flush=True)
        finally:
            os._exit(code)
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL:
        return True
    assert os.waitstatus_to_exitcode(status) == 0, f"the try failed: {status}"
    return False


def kill_at_request(number: int, answered: bool) -> None:
    """Let this process end itself at its k-th request, whichever thread makes it."""
    count = 0
    lock = threading.Lock()
    send = requests.Session.send

    def counted(session: requests.Session, *arguments: Any, **options: Any) -> requests.Response:
        nonlocal count
        with lock:
            count += 1
            is_last = count == number
        if is_last and not answered:
            os.kill(os.getpid(), signal.SIGKILL)
        response = send(session, *arguments, **options)
        if is_last:
            os.kill(os.getpid(), signal.SIGKILL)
        return response

    requests.Session.send = counted  # type: ignore[method-assign]


if __name__ == "__main__":
    main()

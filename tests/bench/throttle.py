"""Half a CPU for some processes: a control group where one can be made, else stopping and continuing them in turn."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

PERIOD_SECONDS = 0.1
GROUP = f"everstep-bench-{os.getpid()}"
V1, V2 = Path("/sys/fs/cgroup/cpu"), Path("/sys/fs/cgroup")


@contextmanager
def throttled(pids: Sequence[int], share: float) -> Iterator[str]:
    """Keep processes (and what they start) below a share of one CPU within the block; yields by what means.

    Processes that live when the block is left are free again.
    """
    group = _make_group(share)
    if group is None:
        with _duty_cycle(pids, share) as means:
            yield means
        return
    try:
        for pid in pids:
            (group / "cgroup.procs").write_text(str(pid))
        yield f"control group, {share:g} CPU in periods of {PERIOD_SECONDS * 1000:.0f} ms"
    finally:
        for pid in (group / "cgroup.procs").read_text().split():
            with suppress(OSError):
                (group.parent / "cgroup.procs").write_text(pid)
        with suppress(OSError):
            group.rmdir()


def _make_group(share: float) -> Path | None:
    period = int(PERIOD_SECONDS * 1_000_000)
    quota = int(share * period)
    for parent, name, text in ((V1, "cpu.cfs_quota_us", str(quota)), (V2, "cpu.max", f"{quota} {period}")):
        group = parent / GROUP
        try:
            group.mkdir(exist_ok=True)
            (group / name).write_text(text)
        except OSError:
            # Not this version of control groups, or not ours to change.
            with suppress(OSError):
                group.rmdir()
            continue
        return group
    return None


@contextmanager
def _duty_cycle(pids: Sequence[int], share: float) -> Iterator[str]:
    ended = threading.Event()

    def work() -> None:
        while True:
            _signal(pids, signal.SIGSTOP)
            stopped = ended.wait(PERIOD_SECONDS * (1 - share))
            _signal(pids, signal.SIGCONT)
            if stopped or ended.wait(PERIOD_SECONDS * share):
                return

    thread = threading.Thread(target=work, name="duty cycle")
    thread.start()
    try:
        yield f"stopped for {1 - share:.0%} of each {PERIOD_SECONDS * 1000:.0f} ms"
    finally:
        ended.set()
        thread.join()
        _signal(pids, signal.SIGCONT)


def _signal(pids: Sequence[int], number: signal.Signals) -> None:
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, number)

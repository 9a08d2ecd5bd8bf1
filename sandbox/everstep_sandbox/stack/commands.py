"""What `everstep sandbox` does: up, down, status and fault, on one state directory."""

from __future__ import annotations

import contextlib
import fcntl
import math
import os
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from everstep_sandbox import nodes
from everstep_sandbox.controlplane import programs
from everstep_sandbox.google import cluster_file
from everstep_sandbox.stack import furnish, record, supervisor, sweep
from everstep_sandbox.stack.parts import PART_MARKER, log_end
from everstep_sandbox.stack.record import Record
from everstep_sandbox.stack.supervisor import READY, Settings
from everstep_sandbox.stack.symptoms import NotPossible, Symptoms, said

Object = dict[str, Any]
Print = Callable[[str], None]

_REPAIR_SECONDS = 60.0
_STOP_SECONDS = 20.0


class SandboxError(Exception):
    """What was asked can't be done; the text says why and what would help."""


def up(settings: Settings, print_line: Print, *, foreground: bool = False) -> None:
    """Starts the sandbox, or what is missing of it; returns when it is ready. Raises SandboxError.

    In the foreground it returns when it is told to end.
    """
    if not (math.isfinite(settings.speed) and settings.speed > 0):
        raise SandboxError(f"Speed {settings.speed:g}: expected a number above 0, such as 10")
    with _locked(settings.directory) as unlock:
        known = record.read(settings.directory)
        if known and known.is_alive("supervisor"):
            _check_same(settings, known)
            _start_missing(settings.directory, known, print_line)
            return
        _check_programs(settings)
        # A supervisor that was killed may have left something; it would hold ports and files.
        sweep.kill_all(settings.directory)
        record.path(settings.directory).unlink(missing_ok=True)
        settings = _like_before(settings)
        print_line(f"starting a sandbox in {settings.directory}")
        print_line(f"long timers are {settings.speed:g} times as fast as real ones")
        if foreground:
            if supervisor.supervise(settings, print_line, finished=unlock):
                raise SandboxError(f"The sandbox in {settings.directory} did not start (see above)")
            return
        _daemonise(settings, print_line)


def down(directory: Path, print_line: Print, *, delete: bool = False) -> None:
    """Ends the sandbox with all that it has started; nothing to end is no error. Its state stays unless `delete`."""
    if not directory.exists():
        print_line(f"no sandbox in {directory}")
        return
    known = record.read(directory)
    ended = known is not None and known.is_alive("supervisor")
    if known and ended:
        os.kill(known.pids["supervisor"], signal.SIGTERM)
        deadline = time.monotonic() + _STOP_SECONDS
        while known.is_alive("supervisor") and time.monotonic() < deadline:
            time.sleep(0.02)
    swept = sweep.kill_all(directory)
    record.path(directory).unlink(missing_ok=True)
    if delete:
        shutil.rmtree(directory, ignore_errors=True)
    print_line(f"the sandbox in {directory} {'is down' if ended or swept else 'was not running'}")


def status(directory: Path) -> Object:
    """What runs and what the machines' state is; raises SandboxError where there is no sandbox."""
    known = _running(directory)
    machines = nodes.load(directory / "machines.json") if (directory / "machines.json").exists() else []
    now = time.time()
    return {
        "kubernetes": known.kubernetes,
        "storage": known.storage,
        "google": known.google,
        "kubeconfig": known.kubeconfig,
        "bucket": known.bucket,
        "speed": known.speed,
        "controlplane": known.controlplane,
        "parts": {name: "running" if known.is_alive(name) else "ended" for name in known.pids},
        "machines": [
            {
                "name": machine.name,
                "pool": machine.pool,
                "state": machine.state,
                "repaired_in": round(max(0.0, machine.repair_at - now), 1) if machine.repair_at else None,
            }
            for machine in machines
        ],
    }


def fault(directory: Path, kind: str, arguments: Object) -> Object:
    """Does a fault and returns what was done; raises SandboxError."""
    known = _running(directory)
    symptoms = Symptoms(directory, known)
    if kind in symptoms.kinds:
        try:
            return symptoms.kinds[kind](arguments)
        except furnish.RequestError as error:
            raise SandboxError(f"Fault {kind}: {said(error.said)}") from error
        except (NotPossible, OSError) as error:
            raise SandboxError(f"Fault {kind}: {error}") from error
    if not known.is_alive("kubelet"):
        raise SandboxError(f"The kubelet of the sandbox in {directory} has ended; everstep sandbox up starts it again")
    try:
        return furnish.request("POST", f"{known.kubelet}/faults/{kind}", arguments)
    except furnish.RequestError as error:
        raise SandboxError(f"Fault {kind}: {error.said}") from error
    except OSError as error:
        raise SandboxError(f"Fault {kind}: the kubelet at {known.kubelet} does not answer: {error}") from error


def _daemonise(settings: Settings, print_line: Print) -> None:
    reading, writing = os.pipe()
    log = settings.directory / "logs" / "supervisor.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("ab") as output:
        process = subprocess.Popen(
            [
                sys.executable,
                "-m",
                supervisor.__name__,
                "--directory",
                str(settings.directory),
                "--slices",
                str(settings.slices),
                "--hosts",
                str(settings.hosts),
                "--speed",
                f"{settings.speed:g}",
                "--bucket",
                settings.bucket,
                "--storage-port",
                str(settings.storage_port),
                "--controlplane",
                settings.controlplane,
                *(("--empty",) if settings.empty else ()),
                "--report",
                str(writing),
            ],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            pass_fds=(writing,),
            start_new_session=True,
            env={**os.environ, PART_MARKER: f"{settings.directory}|supervisor"},
        )
    os.close(writing)
    last = ""
    with os.fdopen(reading) as report:
        for line in report:
            last = line.rstrip("\n")
            if last != READY:
                print_line(last)
    if last != READY:
        process.wait()
        raise SandboxError(f"The sandbox did not start; {log} ends with:\n{log_end(log)}")
    if (settings.directory / "kubeconfig").exists():
        print_line("ready; commands find it by:")
    else:
        print_line(
            "ready: an empty project; a cluster that is created through the API starts here. Commands find it by:"
        )
    known = record.read(settings.directory)
    assert known is not None, "the supervisor reports that it is ready after it has written the record"
    print_line(_exports(settings.directory, known))


def _exports(directory: Path, known: Record) -> str:
    """Return the line for a shell that lets kubectl, everstep and Google's own clients find the sandbox."""
    places = {
        "KUBECONFIG": str(directory / "kubeconfig"),
        "STORAGE_EMULATOR_HOST": known.storage,
        "EVERSTEP_GOOGLE_ENDPOINT": known.google,
    }
    return "export " + " ".join(f"{name}={shlex.quote(place)}" for name, place in places.items())


def _start_missing(directory: Path, known: Record, print_line: Print) -> None:
    missing = known.missing()
    if not missing:
        print_line(
            f"the sandbox in {directory} is up already: Kubernetes at {known.kubernetes or '(no cluster yet)'}, "
            f"Cloud Storage at {known.storage}, Google Cloud at {known.google}"
        )
        return
    print_line(f"starting what has ended: {', '.join(missing)}")
    os.kill(known.pids["supervisor"], signal.SIGHUP)
    deadline = time.monotonic() + _REPAIR_SECONDS
    while (now := record.read(directory)) is None or now.missing():
        if time.monotonic() > deadline:
            raise SandboxError(
                f"{', '.join(missing)} did not start within {_REPAIR_SECONDS:.0f} s; see {directory / 'logs'}"
            )
        time.sleep(0.05)
    print_line("ready")


def _check_same(settings: Settings, known: Record) -> None:
    wanted = (settings.slices, settings.hosts, settings.speed, settings.bucket, settings.controlplane, settings.empty)
    found = (known.slices, known.hosts, known.speed, known.bucket, known.controlplane, known.empty)
    if wanted != found:
        raise SandboxError(
            f"The sandbox in {settings.directory} runs with {_described(*found)}; asked for were "
            f"{_described(*wanted)}. Take it down first (everstep sandbox down), or use another --directory"
        )


def _check_programs(settings: Settings) -> None:
    if settings.controlplane == "real":
        if settings.empty:
            raise SandboxError(
                "An empty project has the sandbox's own control plane: leave --controlplane real out. The JobSet "
                "controller of a real one runs beside it from the start, so that there would be none to install"
            )
        try:
            programs.find()
        except programs.ProgramsMissing as missing:
            raise SandboxError(str(missing)) from None


def _like_before(settings: Settings) -> Settings:
    """A sandbox that was down comes back with its machines; raises SandboxError when others are asked for."""
    machines = settings.directory / "machines.json"
    cluster = cluster_file.read(settings.directory)
    if settings.empty:
        if (cluster is not None and cluster.furnished) or (cluster is None and machines.exists()):
            raise SandboxError(
                f"The sandbox in {settings.directory} is no empty project: it has a cluster of its own. Delete it "
                "(everstep sandbox down --delete) or use another --directory"
            )
        return settings
    if cluster is not None and not cluster.furnished:
        raise SandboxError(
            f"The sandbox in {settings.directory} began as an empty project: start it with --empty, delete it "
            "(everstep sandbox down --delete) or use another --directory"
        )
    if machines.exists():
        known = [machine for machine in nodes.load(machines) if machine.kind is None]
        wanted = nodes.plan(settings.slices, settings.hosts)
        if {machine.name for machine in known} != {machine.name for machine in wanted}:
            raise SandboxError(
                f"The sandbox in {settings.directory} has {len(known)} machines; {settings.slices} slices of "
                f"{settings.hosts} hosts were asked for. Delete it (everstep sandbox down --delete) or use another "
                "--directory"
            )
    return settings


def _described(slices: int, hosts: int, speed: float, bucket: str, controlplane: str, empty: bool) -> str:
    what = "an empty project" if empty else f"{slices} slices of {hosts} hosts"
    return f"{what}, speed {speed:g}, bucket {bucket}, control plane {controlplane}"


def _running(directory: Path) -> Record:
    known = record.read(directory)
    if known is None or not known.is_alive("supervisor"):
        raise SandboxError(f"No sandbox runs in {directory}; start one (everstep sandbox up) or name its --directory")
    return known


@contextlib.contextmanager
def _locked(directory: Path) -> Iterator[Callable[[], None]]:
    """Of two `up`s at the same time the second waits for the first. Yields a function that ends the lock early."""
    try:
        directory.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(directory / ".lock", os.O_RDWR | os.O_CREAT, 0o644)
    except OSError as error:
        raise SandboxError(f"A sandbox can't be kept in {directory}: {error}. Name another --directory") from error
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield lambda: fcntl.flock(descriptor, fcntl.LOCK_UN)
    finally:
        os.close(descriptor)

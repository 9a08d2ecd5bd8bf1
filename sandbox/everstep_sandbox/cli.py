"""The verbs of `everstep sandbox`."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from argparse import _SubParsersAction

    SubParsers = _SubParsersAction[argparse.ArgumentParser]

DIRECTORY_VARIABLE = "EVERSTEP_SANDBOX_DIR"


def add_commands(subparsers: SubParsers) -> None:
    """Adds `sandbox` with its verbs; each parsed command carries `run`, which returns an exit code."""
    parser = subparsers.add_parser("sandbox", help="GKE, Cloud Storage and training nodes on this machine")
    verbs = parser.add_subparsers(dest="sandbox_verb", metavar="VERB", required=True)
    _add_up(verbs)
    _add_down(verbs)
    _add_status(verbs)
    _add_fault(verbs)


def _add_up(verbs: SubParsers) -> None:
    up = _verb(verbs, "up", "start a sandbox, or what is missing of one, and wait until it is ready", _up)
    up.add_argument("--slices", type=int, default=3, help="TPU slices, each a node pool (default: 3)")
    up.add_argument("--hosts", type=int, default=2, help="hosts of each slice (default: 2)")
    up.add_argument("--speed", type=float, default=10.0, help="divides the real system's long timers (default: 10)")
    up.add_argument("--bucket", default="everstep-demo", help="bucket of the checkpoints (default: everstep-demo)")
    up.add_argument("--storage-port", type=int, default=0, help="port of Cloud Storage (default: the last one, or any)")
    up.add_argument(
        "--controlplane",
        choices=("sandbox", "real"),
        default="sandbox",
        help="the sandbox's own Kubernetes, or the real one that `make controlplane` builds (default: sandbox)",
    )
    up.add_argument(
        "--empty",
        action="store_true",
        help="an empty project instead: Google's APIs and Cloud Storage, no bucket, no cluster until one is created",
    )
    up.add_argument("--foreground", action="store_true", help="stay, and take the sandbox down on Ctrl-C")


def _add_down(verbs: SubParsers) -> None:
    down = _verb(verbs, "down", "end a sandbox and everything that it runs; its state stays on disk", _down)
    down.add_argument("--delete", action="store_true", help="delete its state too")


def _add_status(verbs: SubParsers) -> None:
    status = _verb(verbs, "status", "what runs, where it answers, and the state of the machines", _status)
    status.add_argument("--json", action="store_true", help="as JSON")


def _add_fault(verbs: SubParsers) -> None:
    parser = verbs.add_parser("fault", help="break something, as the world does")
    kinds = parser.add_subparsers(dest="fault", metavar="FAULT", required=True)

    gone = _verb(kinds, "node-gone", "a host is lost, then the rest of its slice; the pool comes back empty", _fault)
    gone.add_argument("node")
    _add_repair(gone)
    silent = _verb(kinds, "node-silent", "a host is lost without a word: its Node stays and turns NotReady", _fault)
    silent.add_argument("node")
    _add_repair(silent)
    pool = _verb(kinds, "pool-gone", "all hosts of a slice are lost at once", _fault)
    pool.add_argument("pool")
    _add_repair(pool)
    wipe = _verb(kinds, "wipe-ram", "training and checkpoint drivers are killed, their RAM disks emptied", _fault)
    which = wipe.add_mutually_exclusive_group(required=True)
    which.add_argument("nodes", nargs="*", default=[], help="names of nodes")
    which.add_argument("--all", action="store_true", help="all nodes that are there")
    kill = _verb(kinds, "kill-pod", "a signal for the containers of one pod", _fault)
    kill.add_argument("pod", metavar="NAMESPACE/POD")
    kill.add_argument("--signal", type=int, default=9, help="its number (default: 9, SIGKILL)")
    _add_symptoms(kinds)


def _add_symptoms(kinds: SubParsers) -> None:
    denied = _verb(kinds, "driver-denied", "the checkpoint drivers lose their rights in Cloud Storage", _fault)
    token = _verb(kinds, "token-failure", "pods get no tokens: the metadata server does not answer", _fault)
    flat = _verb(kinds, "bucket-flat", "a bucket that has no hierarchical namespace", _fault)
    flat.add_argument("bucket")
    image = _verb(kinds, "image-missing", "images that no registry has, by a regular expression", _fault)
    image.add_argument("image", nargs="?", default="")
    stuck = _verb(kinds, "stuck-finalizer", "a CheckpointConfiguration that can't be deleted", _fault)
    stuck.add_argument("name")
    pool = _verb(kinds, "node-pool-fails", "node pools that can't be created or resized", _fault)
    pool.add_argument("kind", choices=("quota", "stockout", "internal"))
    webhook = _verb(kinds, "webhook-rejects", "JobSets that the controller's webhook denies", _fault)
    webhook.add_argument("--message", default="spec.replicatedJobs: Invalid value: a fault that was asked for")
    for parser in (pool, webhook):
        parser.add_argument("--times", type=int, default=1, help="how often (default: 1)")
    says = _verb(kinds, "replicator-says", "a line in a node's replicator.errors or replicator.failed", _fault)
    says.add_argument("node")
    says.add_argument("file", choices=("errors", "failed"))
    says.add_argument("message")
    off = _verb(kinds, "add-on-off", "the cluster's add-on HighScaleCheckpointing is switched off", _fault)
    for parser in (denied, token, image, stuck, pool, webhook, off):
        parser.add_argument("--undo", action="store_true", help="mend it again")


def _add_repair(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--repair-after",
        type=float,
        metavar="SECONDS",
        help="until the cloud has repaired it, in real time that the sandbox's speed divides (default: 600)",
    )


def _verb(verbs: SubParsers, name: str, text: str, run: Callable[[argparse.Namespace], int]) -> argparse.ArgumentParser:
    parser = verbs.add_parser(name, help=text, description=text[0].upper() + text[1:] + ".")
    parser.add_argument(
        "--directory", type=Path, help=f"state of the sandbox (default: ${DIRECTORY_VARIABLE}, else ./build/sandbox)"
    )
    parser.set_defaults(run=_reporting(run))
    return parser


def _reporting(run: Callable[[argparse.Namespace], int]) -> Callable[[argparse.Namespace], int]:
    """Turns the sandbox's errors into one sentence on standard error and exit code 1."""

    def reported(arguments: argparse.Namespace) -> int:
        from everstep_sandbox.stack.commands import SandboxError

        try:
            return run(arguments)
        except (SandboxError, ValueError) as error:
            print(f"everstep sandbox: {error}", file=sys.stderr)
            return 1

    return reported


def _directory(arguments: argparse.Namespace) -> Path:
    chosen = arguments.directory or os.environ.get(DIRECTORY_VARIABLE) or "build/sandbox"
    return Path(chosen).expanduser().resolve()


def _up(arguments: argparse.Namespace) -> int:
    from everstep_sandbox.stack import commands
    from everstep_sandbox.stack.supervisor import Settings

    settings = Settings(
        _directory(arguments),
        0 if arguments.empty else arguments.slices,
        0 if arguments.empty else arguments.hosts,
        arguments.speed,
        "" if arguments.empty else arguments.bucket,
        arguments.storage_port,
        arguments.controlplane,
        arguments.empty,
    )
    commands.up(settings, _print, foreground=arguments.foreground)
    return 0


def _down(arguments: argparse.Namespace) -> int:
    from everstep_sandbox.stack import commands

    commands.down(_directory(arguments), _print, delete=arguments.delete)
    return 0


def _status(arguments: argparse.Namespace) -> int:
    from everstep_sandbox.stack import commands

    found = commands.status(_directory(arguments))
    if arguments.json:
        _print(json.dumps(found, indent=1))
        return 0
    for key in ("kubernetes", "storage", "google", "kubeconfig", "bucket", "controlplane"):
        _print(f"{key:<14}{found[key]}")
    _print(f"{'speed':<14}long timers are {found['speed']:g} times as fast as real")
    for name, state in found["parts"].items():
        _print(f"{name:<16}{state}")
    for machine in found["machines"]:
        repaired = f", back in {machine['repaired_in']} s" if machine["repaired_in"] is not None else ""
        _print(f"{machine['name']:<32}{machine['pool']:<16}{machine['state']}{repaired}")
    return 0


def _fault(arguments: argparse.Namespace) -> int:
    from everstep_sandbox.stack import commands

    done = commands.fault(_directory(arguments), arguments.fault, _fault_arguments(arguments))
    _print(json.dumps(done))
    return 0


def _fault_arguments(arguments: argparse.Namespace) -> dict[str, Any]:
    if arguments.fault == "wipe-ram":
        return {"nodes": arguments.nodes}
    if arguments.fault == "kill-pod":
        namespace, slash, pod = arguments.pod.partition("/")
        if not slash:
            raise ValueError(f"{arguments.pod!r} is no pod: expected NAMESPACE/POD, such as default/{arguments.pod}")
        return {"namespace": namespace, "pod": pod, "signal": arguments.signal}
    if arguments.fault not in ("node-gone", "node-silent", "pool-gone"):
        names = ("bucket", "image", "name", "kind", "times", "message", "node", "file", "undo")
        return {name: getattr(arguments, name) for name in names if hasattr(arguments, name)}
    target = "pool" if arguments.fault == "pool-gone" else "node"
    return {target: getattr(arguments, target), "repair_after": arguments.repair_after}


def _print(line: str) -> None:
    print(line, flush=True)

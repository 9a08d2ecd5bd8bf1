"""``python -m everstep_sandbox.demo run|up|down``: what ``make demo``, ``make up`` and ``make down`` call."""

from __future__ import annotations

import argparse
import signal
import sys
from types import FrameType

from everstep_sandbox.airflow_stack import AirflowError
from everstep_sandbox.demo.play import play
from everstep_sandbox.demo.progress import Progress
from everstep_sandbox.demo.stack import REPOSITORY, DemoStack, StackError

DEMO = REPOSITORY / "build" / "demo"
STACK = REPOSITORY / "build" / "stack"


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m everstep_sandbox.demo", description=__doc__)
    parser.add_argument("command", choices=("run", "up", "down"))
    parser.add_argument("--controlplane", choices=("sandbox", "real"), default="sandbox")
    arguments = parser.parse_args()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _end_as_by_ctrl_c)
    try:
        if arguments.command == "down":
            return _down()
        return {"run": _run, "up": _up}[arguments.command](arguments.controlplane)
    except KeyboardInterrupt:
        print("interrupted; everything is stopped", file=sys.stderr)
        return 130
    except (StackError, AirflowError) as error:
        print(f"demo: {error}", file=sys.stderr)
        return 1


def _run(controlplane: str) -> int:
    progress = Progress()
    stack = DemoStack(DEMO, progress, controlplane=controlplane)
    try:
        summary = play(stack, progress)
    finally:
        progress("stopping everything")
        stack.stop()
    summary.write(DEMO / "summary.json")
    print(summary.as_text())
    print(f"\nThe same for programs: {(DEMO / 'summary.json').relative_to(REPOSITORY)}")
    return 1 if summary.problems else 0


def _up(controlplane: str) -> int:
    progress = Progress()
    stack = DemoStack(STACK, progress, controlplane=controlplane)
    ready = False
    try:
        stack.start_sandbox()
        stack.start_airflow()
        stack.airflow.wait_for_dag("train_resilient")
        ready = True
    finally:
        if not ready:
            stack.stop()
    print(
        f"\nAirflow: {stack.airflow.address}  (user admin, password {stack.airflow.password})\n"
        f"  Trigger the DAG train_resilient there; its form names the run.\n"
        f"kubectl:  export KUBECONFIG={stack.addresses['kubeconfig']}\n"
        f"Faults:   .venv/bin/everstep sandbox fault --help  (with --directory {stack.sandbox_directory})\n"
        f"Stop it:  make down"
    )
    return 0


def _down() -> int:
    progress = Progress()
    for directory in (STACK, DEMO):
        DemoStack(directory, progress).stop()
    progress("nothing is left running")
    return 0


def _end_as_by_ctrl_c(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


if __name__ == "__main__":
    sys.exit(main())

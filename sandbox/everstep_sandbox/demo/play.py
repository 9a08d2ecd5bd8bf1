"""The demo's plot: Airflow provisions an empty project and launches a training there; two faults hit it, and it ends as
if nothing had happened.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import Any

from everstep.checkpoints.catalogue import Shape
from everstep.spec.training import TrainingSpec
from everstep_sandbox.airflow_stack import FINISHED
from everstep_sandbox.demo.comparison import Comparison, Outcome, Pace
from everstep_sandbox.demo.interruptions import Interrupter, Interruption, RunEnded
from everstep_sandbox.demo.progress import Progress
from everstep_sandbox.demo.provisioning import Provisioned, provision
from everstep_sandbox.demo.run_view import RunView
from everstep_sandbox.demo.stack import FILLER, REPOSITORY, DemoStack
from everstep_sandbox.demo.summary import Summary

DAG_ID = "train_resilient"
RUN_FILE = REPOSITORY / "dags" / "runs" / "stdlib-lm.yaml"
FIRST_FAULT_AT = 30
"""Steps after which the first node is lost: late enough that there is a save everywhere to come back to."""
BACKUP_AFTER_STEPS = 100
"""Steps of an attempt after which the replicator makes a backup: well before the second attempt could reach its end."""


def play(stack: DemoStack, progress: Progress) -> Summary:
    """Runs the whole plot on a stack that is made anew; the caller stops the stack.

    Raises whatever part failed: a stack that does not start, a run that ends before its time, a task that fails.
    """
    spec = TrainingSpec.from_yaml(RUN_FILE)
    assert spec.final_step is not None
    # A project of the sandbox's is given its own control plane; a real one comes with the cluster furnished.
    furnished = stack.controlplane == "real"
    if furnished:
        stack.start_sandbox()
    else:
        stack.start_empty_project()
    os.environ.update(stack.client_environment())

    def compare(name: str, skip_batch: int | None = None) -> Comparison:
        return Comparison(
            stack.directory / f"{name}.json",
            slices=spec.slices.count,
            nodes_per_slice=spec.pool.nodes_per_slice,
            steps=spec.final_step or 0,
            skip_batch=skip_batch,
        )

    stack.start_airflow()
    stack.airflow.wait_for_dag(DAG_ID)
    # Not before Airflow has started: how fast it trains says how often to back up the one that is to come.
    progress("the same training without faults starts beside Airflow, in processes of its own")
    uninterrupted = compare("uninterrupted")
    control: Comparison | None = None
    try:
        provisioned = None if furnished else provision(stack, progress)
        if not furnished:
            stack.start_filler()
        view = _view(stack, spec)
        held_by_filler = _filler_nodes(view, progress)
        expected = uninterrupted.wait()
        progress(f"without faults it ended at step {expected.final_step} with loss {expected.loss:.6f}")
        interval = _backup_interval(uninterrupted.pace())
        run_file = RUN_FILE.relative_to(REPOSITORY / "dags").as_posix()
        overrides = {"checkpoints": {"backup": {"every_minutes": interval}}}
        run_id = stack.airflow.trigger(DAG_ID, {"run": run_file, "overrides": overrides})
        progress(f"Airflow: {DAG_ID} is triggered; at this machine's pace, a backup every {60 * interval:.0f} s")
        interruptions = _interrupt(stack, spec, view, held_by_filler, progress, _check(stack, run_id))
        _wait_for_end(stack, view, run_id, progress)
        control = compare("one-batch-skipped", skip_batch=spec.final_step // 2)
        progress("for control: the same training once more, with one batch skipped")
        return _summarise(stack, spec, view, run_id, expected, control.wait(), interruptions, provisioned, progress)
    finally:
        uninterrupted.stop()
        if control is not None:
            control.stop()


def _interrupt(
    stack: DemoStack,
    spec: TrainingSpec,
    view: RunView,
    held_by_filler: frozenset[str],
    progress: Progress,
    check: Callable[[], None],
) -> list[Interruption]:
    interrupter = Interrupter(view, nodes=spec.nodes, progress=progress, check=check)
    interrupter.wait_for("training", lambda: int(view.status().get("step") or 0) >= FIRST_FAULT_AT)

    victim = _node_of_slice(view, 0)
    progress(f"FAULT: node {victim} of slice 0 is lost")
    lost = interrupter.interrupt("node gone", lambda: stack.lose_node(victim), held_by_others=held_by_filler)
    _tell(lost, progress)

    interrupter.wait_for("waiting for a complete backup", lambda: bool(view.catalogue().complete))
    backup = view.catalogue().complete[0]
    progress(f"backup {backup.name} of step {backup.step} is complete in the bucket")
    progress("FAULT: the RAM disks of all nodes are wiped")
    wiped = interrupter.interrupt(
        "RAM disks wiped", lambda: stack.fault("wipe-ram", "--all"), held_by_others=frozenset()
    )
    _tell(wiped, progress)
    return [lost, wiped]


def _backup_interval(pace: Pace) -> float:
    """Minutes between backups, so that one falls into the second attempt, whatever the machine does beside it.

    The replicator counts from its handshake with the trainer, which lies in the second half of the processes' start;
    and a step that is saved, beside an Airflow, takes about 1.2 times as long as one that is not.
    """
    return round((0.45 * pace.start + BACKUP_AFTER_STEPS * 1.2 * pace.step) / 60, 3)


def _wait_for_end(stack: DemoStack, view: RunView, run_id: str, progress: Progress) -> None:
    shown = ""
    interrupter = Interrupter(view, nodes=0, progress=progress, check=lambda: None)

    def ended() -> bool:
        nonlocal shown
        time.sleep(1)
        running = [task for task, state in _tasks(stack, run_id).items() if state not in (None, "success")]
        if running and running[0] != shown:
            shown = running[0]
            progress(f"Airflow: task {shown}")
        return stack.airflow.run_state(DAG_ID, run_id) in FINISHED

    interrupter.wait_for("training", ended)
    _check_success(stack, run_id)
    progress(f"Airflow: {DAG_ID} succeeded")


def _summarise(
    stack: DemoStack,
    spec: TrainingSpec,
    view: RunView,
    run_id: str,
    expected: Outcome,
    control: Outcome,
    interruptions: list[Interruption],
    provisioned: Provisioned | None,
    progress: Progress,
) -> Summary:
    status = view.status()
    launched = stack.airflow.result(DAG_ID, run_id, "launch")
    gate = stack.airflow.result(DAG_ID, run_id, "gate")
    return Summary(
        run=spec.name,
        provisioned=provisioned,
        verdict=launched["verdict"],
        result=launched,
        interrupted=Outcome(int(status["step"]), float(status["loss"]), str(status["weights_sha256"])),
        uninterrupted=expected,
        control=control,
        interruptions=interruptions,
        backups=view.catalogue(),
        retention_plan=stack.airflow.result(DAG_ID, run_id, "plan_retention"),
        final_tier=gate["tier"],
        seconds=progress.seconds,
        speed=float(stack.addresses["speed"]),
    )


def _view(stack: DemoStack, spec: TrainingSpec) -> RunView:
    return RunView(
        kubeconfig=str(stack.addresses["kubeconfig"]),
        namespace=spec.cluster_spec.namespace,
        bucket=spec.bucket,
        run=spec.name,
        shape=Shape(spec.nodes, 1, spec.data_parallelism),
    )


def _filler_nodes(view: RunView, progress: Progress) -> frozenset[str]:
    nodes: set[str] = set()

    def placed() -> bool:
        nodes.update(pod.spec.node_name for pod in view.pods(FILLER) if pod.status.phase == "Running")
        return len(nodes) == 2

    Interrupter(view, nodes=0, progress=progress, check=lambda: None).wait_for(f"placing {FILLER}", placed, timeout=60)
    return frozenset(nodes)


def _node_of_slice(view: RunView, slice_index: int) -> str:
    for pod in view.pods():
        if pod.metadata.labels["jobset.sigs.k8s.io/job-index"] == str(slice_index) and pod.spec.node_name:
            name: str = pod.spec.node_name
            return name
    raise RunEnded(f"{view.run}: slice {slice_index} has no pod on a node")


def _tell(interruption: Interruption, progress: Progress) -> None:
    progress(
        f"stepping again after {interruption.seconds_to_next_step:.1f} s: step {interruption.restored_step} restored "
        f"from tier {interruption.restored_tier} (by rank: {', '.join(interruption.restored_tiers)}), "
        f"{interruption.lost_steps} steps lost"
    )


def _check(stack: DemoStack, run_id: str) -> Callable[[], None]:
    asked = 0.0

    def check() -> None:
        nonlocal asked
        # The API server shares two cores with the training: it is not asked more often than it helps.
        if time.monotonic() - asked < 3:
            return
        asked = time.monotonic()
        if stack.airflow.run_state(DAG_ID, run_id) in FINISHED:
            _check_success(stack, run_id)
            raise RunEnded(f"{DAG_ID} ended before the demo had caused its faults; the run is too short")

    return check


def _check_success(stack: DemoStack, run_id: str) -> None:
    failed = [task for task, state in _tasks(stack, run_id).items() if state == "failed"]
    if failed:
        log = stack.airflow.task_log(DAG_ID, run_id, failed[0])
        raise RunEnded(f"task {failed[0]} of {DAG_ID} failed:\n{log[-4000:]}")


def _tasks(stack: DemoStack, run_id: str) -> dict[str, Any]:
    return stack.airflow.task_states(DAG_ID, run_id)

"""The operator that launches a run, waits for its end and says what it came to."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

from airflow.providers.common.compat.sdk import AirflowException, AirflowFailException, conf

from everstep.run_operator import RunOperator
from everstep.spec.findings import Severity, raise_on_errors

if TYPE_CHECKING:
    from airflow.providers.common.compat.sdk import Context

    from everstep.launch.launcher import Launcher
    from everstep.spec.training import TrainingSpec
    from everstep.watch.run_state import RunState
    from everstep.watch.triggers import TrainingTrigger
    from everstep.watch.verdict import Verdict


class Wait(NamedTuple):
    """What a wait was for (a JobSet's uid, and the time in seconds since the epoch at which it gives up), and how it
    ended: a WaitEnd with its message, both empty where nothing had to be waited for. It is the trigger's event, since
    `dag.test()` drops any other argument of `execute_complete`."""

    uid: str
    deadline: float
    kind: str = ""
    message: str = ""


class LaunchTrainingOperator(RunOperator):
    """Launch a training run once, wait for its end without a worker, and take the verdict from the cluster.

    A retry attaches to the run's JobSet if it lives, takes the verdict of one that has completed, and replaces one
    that has failed by a new JobSet, which resumes from the last known good step. The lease of the run keeps any other
    launch of it out, also from another Airflow.

    Returns a dictionary: run, jobset, namespace, uid, launch, verdict, restarts, last_known_good, attempts.

    :param run: a spec, or the path of a run file beside the DAG file (templated)
    :param overrides: settings that win over the run file (templated)
    :param replace_changed: replace a live JobSet whose spec is not today's; otherwise that is an error (templated)
    :param deferrable: wait in the triggerer; False waits in the worker, where a kill never touches the run, since it
        looks the same as the loss of the worker
    """

    template_fields: Sequence[str] = (*RunOperator.template_fields, "replace_changed")

    def __init__(self, *, replace_changed: bool = False, deferrable: bool = True, **kwargs: Any) -> None:
        if "retries" not in (kwargs.get("default_args") or {}):
            # Tries are needed to attach after a lost worker; how many JobSets there may be, recovery.attempts says.
            kwargs.setdefault("retries", 9)
        if "retry_delay" not in (kwargs.get("default_args") or {}):
            kwargs.setdefault("retry_delay", timedelta(seconds=30))
        super().__init__(**kwargs)
        self.replace_changed = replace_changed
        self.deferrable = deferrable

    def execute(self, context: Context) -> dict[str, Any]:
        """Launch or attach, then wait."""
        from everstep.launch.decision import Action

        spec = self.spec()
        self.show_links(context, spec)
        with self.cluster_client(spec) as cluster:
            launcher = self._launcher(context, spec, cluster)
            launched = self.told(launcher.launch)
            state = launched.state
            self.log.info("%s", state)
            if launched.action is Action.TAKE_VERDICT:
                return self._conclude(context, spec, launcher, Wait(state.uid, 0.0))
        trigger = self._trigger(spec, state, time.time() + spec.recovery.deadline_hours * 3600)
        if self.deferrable:
            self.defer(trigger=trigger, method_name="execute_complete")
        return self.execute_complete(context, asyncio.run(trigger.wait()))

    def execute_complete(self, context: Context, event: Mapping[str, Any]) -> dict[str, Any]:
        """Take the verdict after the wait, from a fresh read."""
        spec = self.spec()
        with self.cluster_client(spec) as cluster:
            return self._conclude(context, spec, self._launcher(context, spec, cluster), Wait(**event))

    def _trigger(self, spec: TrainingSpec, state: RunState, deadline: float) -> TrainingTrigger:
        from everstep.clients.access import ClusterAccess, StorageAccess
        from everstep.watch.triggers import TrainingTrigger

        return TrainingTrigger(
            cluster=ClusterAccess.of(spec.cluster_spec).resolved().as_dict(),
            storage=StorageAccess.of(spec.cluster_spec).as_dict(),
            bucket=spec.bucket,
            run_name=spec.name,
            namespace=state.namespace,
            uid=state.uid,
            launch=state.launch or 0,
            deadline=deadline,
            on_kill_policy=spec.recovery.on_kill,
        )

    def _launcher(self, context: Context, spec: TrainingSpec, cluster: Any) -> Launcher:
        from everstep.launch.launcher import Launcher
        from everstep.provision import preflight

        bucket = self.bucket_client(spec)

        def before_create() -> None:
            findings = preflight.essentials(preflight.Subject(spec, cluster, bucket))
            self.log_findings([each for each in findings if each.severity is not Severity.NOTE])
            raise_on_errors(f"run {spec.name!r} can't be launched", findings)

        return Launcher(
            spec,
            cluster,
            bucket,
            holder_of(context),
            replace_changed=bool(self.replace_changed),
            before_create=before_create,
        )

    def _conclude(self, context: Context, spec: TrainingSpec, launcher: Launcher, wait: Wait) -> dict[str, Any]:
        from everstep.launch.outcome import conclude
        from everstep.watch.follower import WaitEnd
        from everstep.watch.verdict import Outcome

        conclusion = self.told(lambda: conclude(launcher, wait.uid))
        for line in conclusion.story:
            self.log.info("%s", line)
        verdict = conclusion.verdict
        if verdict is None:
            self._go_on(spec, launcher, conclusion.state, wait)
        self.log.info("Run %s %s", spec.name, verdict)
        launcher.release()
        if verdict.outcome is Outcome.COMPLETED:
            return conclusion.summary
        context["ti"].xcom_push(key="failure", value=conclusion.summary)
        stuck = conclusion.no_progress or wait.kind == WaitEnd.NO_PROGRESS
        attempt = conclusion.state.attempt if conclusion.state is not None else 1
        failure = self._failure(spec, verdict, conclusion.next_step, stuck, attempt)
        if verdict.outcome is Outcome.CANCELLED:
            raise failure
        raise type(failure)(self.explained(spec, str(failure)))

    def _go_on(self, spec: TrainingSpec, launcher: Launcher, state: RunState | None, wait: Wait) -> NoReturn:
        """Deal with a JobSet that lives although the wait is over. Always raises."""
        from everstep.watch.follower import WaitEnd

        assert state is not None, "a JobSet that is gone has a verdict"
        kind, message = wait.kind, wait.message
        if kind in (WaitEnd.NO_PROGRESS, WaitEnd.NEVER_STARTS):
            told = (
                f"run {spec.name!r} was stopped: {message}. JobSet {state.namespace}/{state.name} is suspended and "
                "kept for a look at it; the next launch replaces it."
            )
            # Before the suspension takes the pods away, which say why.
            told = self.explained(spec, told)
            launcher.stop(state, message)
            launcher.release()
            raise AirflowFailException(told)
        if kind == WaitEnd.DEADLINE:
            told = (
                f"run {spec.name!r} has not ended within recovery.deadline_hours = {spec.recovery.deadline_hours:g}; "
                f"it goes on ({state}). Clear the task to wait for it again."
            )
            raise AirflowFailException(self.explained(spec, told))
        if kind == WaitEnd.ERROR:
            raise AirflowException(f"the wait for run {spec.name!r} broke, the run goes on: {message}")
        self.log.info("The run goes on: waiting again.")
        self.defer(trigger=self._trigger(spec, state, wait.deadline), method_name="execute_complete")
        raise AssertionError("defer always raises")

    def _failure(
        self, spec: TrainingSpec, verdict: Verdict, next_step: str, no_progress: bool, attempt: int
    ) -> AirflowException:
        from everstep.watch.classifier import USELESS_TO_REPEAT
        from everstep.watch.verdict import Outcome

        text = f"run {spec.name!r} {verdict}"
        if verdict.outcome is Outcome.CANCELLED:
            return AirflowFailException(f"{text}. No retry: somebody wanted it to end.")
        if no_progress or (verdict.cause is not None and verdict.cause.kind in USELESS_TO_REPEAT):
            return AirflowFailException(f"{text}. No retry: it would end in the same way.")
        if attempt >= spec.recovery.attempts:
            return AirflowFailException(f"{text}. No retry: recovery.attempts = {spec.recovery.attempts} are used up.")
        return AirflowException(f"{text}. {next_step}")


def holder_of(context: Context) -> str:
    """Return the name under which a task holds a run's lease: the same over its tries, unique over Airflows."""
    ti = context["ti"]
    run = context.get("dag_run")
    after = getattr(run, "run_after", None) or getattr(run, "logical_date", None) or ""
    return "|".join([_airflow_address(), ti.dag_id, ti.run_id, ti.task_id, str(ti.map_index), str(after)])


def _airflow_address() -> str:
    """Return what tells this Airflow from others: its address, or the machine's name where none is configured."""
    from airflow import __version__

    places = [("webserver", "base_url")] if __version__.startswith("2.") else []
    for section, option in places or [("api", "base_url"), ("core", "execution_api_server_url")]:
        address = str(conf.get(section, option, fallback="") or "").rstrip("/")
        if address and "localhost" not in address:
            return address
    return socket.gethostname()

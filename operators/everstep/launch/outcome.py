"""What a launched run came to, with its story: fresh reads of the cluster and of the run's folder. Knows no Airflow."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from everstep.clients import run_folder
from everstep.clients.resources import PODS
from everstep.clients.run_folder import RunContents
from everstep.launch.launcher import resume_lines
from everstep.watch import pending, progress, story, verdict
from everstep.watch import pods as pod_states
from everstep.watch.classifier import Cause, CauseKind
from everstep.watch.progress import cause_in
from everstep.watch.run_state import RunState
from everstep.watch.verdict import Outcome, Verdict

if TYPE_CHECKING:
    from everstep.launch.launcher import Launcher


@dataclass(frozen=True)
class Conclusion:
    """`verdict` is None while the run goes on. `next_step` says what another launch would resume from, `no_progress`
    that the run has failed twice in the same way without getting further."""

    state: RunState | None
    verdict: Verdict | None
    story: list[str]
    summary: dict[str, Any]
    next_step: str
    no_progress: bool


def conclude(launcher: Launcher, uid: str) -> Conclusion:
    """Read everything afresh and return what the JobSet with that uid came to."""
    state = launcher.state()
    pods = []
    if state is not None and state.uid == uid:
        found = launcher.cluster.list_all(PODS, state.namespace, labels=pending.selector(state.name))
        pods = [pod_states.of_pod(pod) for pod in found]
    judged = verdict.judge(state, uid, pods)
    contents = launcher.contents()
    launch = _launch(state, uid, contents)
    # With the launch before, to see whether this one failed in the same way.
    attempts = launcher.bucket.run(run_folder.attempts(contents.folder, launch - 1))
    judged = _with_reported_cause(judged, state, launch, attempts)
    good = contents.last_known_good
    stories = story.of_attempts(attempts)
    own = state if state is not None and state.uid == uid else None
    summary = {
        "run": launcher.spec.name,
        "jobset": launcher.spec.name,
        "namespace": launcher.spec.cluster_spec.namespace,
        "uid": uid,
        "launch": launch,
        "verdict": judged.outcome.value if judged else "running",
        "message": judged.message if judged else str(state),
        "cause": judged.cause.kind.value if judged and judged.cause else None,
        "restarts": own.restarts if own else None,
        "final_step": launcher.spec.final_step,
        "last_known_good": None if good is None else asdict(good),
        "attempts": [each.as_dict() for each in stories],
    }
    return Conclusion(
        state,
        judged,
        story.tell(attempts),
        summary,
        " ".join(resume_lines(contents, None)),
        judged is not None and judged.outcome is Outcome.FAILED and _is_stuck(attempts, judged.cause),
    )


def _is_stuck(attempts: story.Attempts, cause: Cause | None) -> bool:
    keys = sorted(attempts)
    ends = [progress.end_of(*key, attempts[key], cause if key == keys[-1] else None) for key in keys[-2:]]
    return progress.is_stuck(ends)


def _launch(state: RunState | None, uid: str, contents: RunContents) -> int:
    if state is not None and state.uid == uid and state.launch is not None:
        return state.launch
    return int((contents.run_record or {}).get("launch", 0))


def _with_reported_cause(
    judged: Verdict | None, state: RunState | None, launch: int, attempts: story.Attempts
) -> Verdict | None:
    """Return the verdict with the sentence that the trainer itself reported, where it says more than an exit code."""
    if judged is None or judged.outcome is not Outcome.FAILED or state is None:
        return judged
    reported = cause_in(attempts.get((launch, state.restarts), ()))
    cause = judged.cause
    nothing_seen = cause is None or (cause.kind is CauseKind.UNKNOWN and cause.exit_code is None)
    if reported is not None and (nothing_seen or (cause is not None and cause.exit_code == reported.exit_code)):
        return Verdict(judged.outcome, str(reported), reported)
    return judged

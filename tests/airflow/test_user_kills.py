"""What a user does to a waiting task reaches the run by `recovery.on_kill`; what befalls Airflow itself never does."""

from __future__ import annotations

from typing import Any

import pytest

from everstep.watch.run_state import STOPPED
from everstep_sandbox.demo.stack import DemoStack

pytestmark = [pytest.mark.airflow, pytest.mark.timeout(420)]


def test_delete_on_mark_failed_but_not_when_the_triggerer_restarts(stack: DemoStack, new_run: Any) -> None:
    run = new_run("kill-delete", steps=100_000, recovery={"on_kill": "delete"}).trigger()
    run.wait_until_trained()
    uid = run.uid
    # Asked to go, and killed: neither is a user's wish about the run.
    for number, end in enumerate((stack.airflow.stop_component, stack.airflow.kill_component), start=2):
        end("triggerer")
        stack.airflow.start_component("triggerer")
        run.wait_for(lambda seen=number: run.triggerers() == seen, 90)
    assert run.tasks["launch"] == "deferred"
    assert (run.uid, run.changes()) == (uid, [])

    run.mark_launch_failed()
    run.wait_for(lambda: run.uid is None, 60)
    assert run.end() == "failed"
    assert run.changes() == [("delete", uid)]
    assert len(run.jobsets_created()) == 1


def test_suspend_on_mark_failed_and_a_clear_launches_anew(new_run: Any) -> None:
    run = new_run("kill-suspend", steps=100_000, recovery={"on_kill": "suspend"}).trigger()
    run.wait_until_trained()
    uid = run.uid
    run.mark_launch_failed()
    run.wait_for(lambda: run.view.jobset()["spec"].get("suspend") is True, 60)
    assert run.view.jobset()["metadata"]["annotations"][STOPPED] == "a user killed the task"
    assert (run.end(), run.uid) == ("failed", uid)

    run.clear_launch()
    run.wait_for(lambda: len(run.jobsets_created()) == 2, 90)
    assert run.uid != uid
    run.discard()


def test_clearing_a_wait_attaches_again_by_default(stack: DemoStack, new_run: Any) -> None:
    run = new_run("kill-detach", steps=100_000).trigger()
    run.wait_until_trained()
    uid, before = run.uid, run.waits()
    run.clear_launch()
    run.wait_for(lambda: max(run.waits()) > max(before), 90)
    assert "is live (running): attach" in run.log("launch", attempt=max(run.waits())[0])
    assert (run.uid, len(run.jobsets_created()), run.changes()) == (uid, 1, [])
    run.discard()


def test_clearing_a_wait_with_delete_launches_anew(new_run: Any) -> None:
    run = new_run("clear-delete", steps=100_000, recovery={"on_kill": "delete"}).trigger()
    run.wait_until_trained()
    uid = run.uid
    run.clear_launch()
    run.wait_for(lambda: len(run.jobsets_created()) == 2, 90)
    assert run.uid != uid
    assert run.changes() == [("delete", uid)]
    run.discard()

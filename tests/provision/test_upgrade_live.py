"""The upgrade procedure on a whole sandbox: save, suspend, remove, make anew, resume; killed after any change."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from tests.provision.test_in_cluster_live import (
    Place,
    carry_out,
    client_of,
    data,
    done,
    eventually,
    place,
    using_jobset,
)

from everstep.clients.access import StorageAccess
from everstep.clients.resources import CHECKPOINT_CONFIGURATIONS, JOBSETS, PODS
from everstep.provision import upgrade
from everstep.provision.changes import Mode, Step
from everstep.provision.everything import provision
from everstep.provision.in_cluster import waits
from everstep.provision.in_cluster.steps import checkpointing_steps
from everstep.provision.site import Site
from everstep.provision.steps import survey
from everstep.spec.findings import FindingsError, errors_of

pytestmark = pytest.mark.sandbox
__all__ = ["data", "place"]


@pytest.fixture(autouse=True)
def quick_polls(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waits, "POLL_SECONDS", 0.1)


@pytest.fixture
def storage(place: Place, monkeypatch: pytest.MonkeyPatch) -> StorageAccess:
    record = json.loads((place.directory / "sandbox" / "sandbox.json").read_text())
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", record["storage"])
    return StorageAccess()


@pytest.fixture
def trainer(place: Place, storage: StorageAccess) -> Iterator[list[str]]:
    """Answers requests for saves as the trainer does: marker of the durable step, then the status."""
    stop, answered = threading.Event(), []

    def play() -> None:
        client, bucket = client_of(place), storage.open("demo-bucket")
        while not stop.wait(0.1):
            for pod in client.list_all(PODS, "default"):
                asked = (pod["metadata"].get("annotations") or {}).get("everstep.dev/save-requested")
                if asked is not None and asked not in answered:
                    bucket.write_text("lm/checkpoints/40/commit_success.txt", "", generation=None)
                    status = {"step": 40, "save_answered": asked, "save_step": 40}
                    bucket.write("lm/everstep/status.json", status, generation=None)
                    answered.append(asked)

    player = threading.Thread(target=play)
    player.start()
    try:
        yield answered
    finally:
        stop.set()
        player.join()


def run_jobset() -> dict[str, Any]:
    body = using_jobset("lm")
    body["metadata"]["labels"] = {"everstep.dev/run": "lm"}
    return body


def before(site: Site) -> list[Step]:
    return upgrade.before_upgrade(site, "1.35")


def after(site: Site) -> list[Step]:
    return upgrade.after_upgrade(site, "1.35")


class Killed(Exception):
    """Stands for the end of the process right after a change."""


def test_runs_are_saved_suspended_and_resumed_whatever_is_killed(
    place: Place, data: dict[str, Any], trainer: list[str]
) -> None:
    client = client_of(place)
    carry_out(place, data, checkpointing_steps)
    old = client.get(CHECKPOINT_CONFIGURATIONS, "everstep")["metadata"]["uid"]
    client.create(JOBSETS, run_jobset(), "default")
    other = using_jobset("other")
    other["spec"]["suspend"] = True
    client.create(JOBSETS, other, "default")
    eventually(lambda: any(pod["status"].get("phase") == "Running" for pod in client.list_all(PODS, "default")))
    with place.site(data) as site:
        checked = survey(before(site), Mode.CHECK)
        asked, deletion = checked.left
        assert (asked.action, asked.object) == ("save", "JobSet default/lm")
        # Nothing hinders the upgrade: the run would be suspended before. But until it is, nothing is deleted.
        assert errors_of(checked.findings) == []
        with pytest.raises(FindingsError, match="used by JobSet default/lm"):
            deletion.act()
        assert "kubectl annotate pods" in asked.commands[0]

    changes = []
    for procedure in (before, after):
        for _ in range(10):
            kills: list[str] = []

            def tell(line: str, kills: list[str] = kills) -> None:
                # The engine tells of the wait that follows a change: that is where this process "dies".
                if ": waiting for " in line and kills:
                    raise Killed
                kills += [line] if " -> " in line else []

            try:
                with place.site(data) as site:
                    provision(site, procedure(site), Mode.APPLY, tell)
            except Killed:
                changes.append(kills[0])
            else:
                changes += kills
                break
        else:
            raise AssertionError("it does not end")
    assert [line.split(": ")[1].split()[0] for line in changes] == ["save", "suspend", "delete", "create", "resume"]
    assert len(trainer) == 1
    made = client.get(CHECKPOINT_CONFIGURATIONS, "everstep")
    assert made["metadata"]["uid"] != old
    assert made["metadata"]["annotations"] == {"everstep.dev/upgrade": "1.35"}
    resumed = client.get(JOBSETS, "lm", "default")
    assert not resumed["spec"]["suspend"]
    assert "everstep.dev/suspended-for-upgrade" not in (resumed["metadata"].get("annotations") or {})
    assert client.get(JOBSETS, "other", "default")["spec"]["suspend"]
    # Done: the same upgrade changes nothing any more, whichever half is run again.
    for procedure in (before, after):
        assert done(carry_out(place, data, procedure)) == []
    client.delete(JOBSETS, "lm", "default")
    client.delete(JOBSETS, "other", "default")


def test_a_run_that_cannot_save_is_left_alone_unless_told(place: Place, data: dict[str, Any], storage: Any) -> None:
    client = client_of(place)
    carry_out(place, data, checkpointing_steps)
    foreign = using_jobset("foreign")
    client.create(JOBSETS, foreign, "default")
    eventually(lambda: any(pod["status"].get("phase") == "Running" for pod in client.list_all(PODS, "default")))

    def third(site: Site) -> list[Step]:
        return upgrade.before_upgrade(site, "third")

    with pytest.raises(FindingsError, match="foreign: can't be asked for a save"):
        carry_out(place, data, third)
    assert not client.get(JOBSETS, "foreign", "default")["spec"].get("suspend")
    report = carry_out(place, data, lambda site: upgrade.before_upgrade(site, "third", unsaved=True))
    assert [action for action, _ in done(report)] == ["suspend", "delete"]
    assert "its RAM disks go" in report.done[0]["note"]
    assert [
        action for action, _ in done(carry_out(place, data, lambda site: upgrade.after_upgrade(site, "third")))
    ] == [
        "create",
        "resume",
    ]
    client.delete(JOBSETS, "foreign", "default")


@pytest.mark.parametrize("name", ["", "a b", "x" * 64, "a/b"])
def test_an_upgrade_needs_a_name(place: Place, data: dict[str, Any], name: str) -> None:
    with place.site(data) as site, pytest.raises(FindingsError, match="letters, digits"):
        upgrade.before_upgrade(site, name)

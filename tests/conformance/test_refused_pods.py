"""Pods that can't be made: a Job whose status says nothing, and the events that do."""

from __future__ import annotations

import pytest
from tests.conformance.bodies import jobset
from tests.conformance.place import Place, holding

CASES = {
    "priority class": (
        {"priority": "nope"},
        'pods "lm-slice-0-0-" is forbidden: no PriorityClass with name nope was found',
    ),
    "service account": (
        {"serviceAccountName": "nope"},
        'pods "lm-slice-0-0-" is forbidden: error looking up service account NS/nope: serviceaccount "nope" not found',
    ),
    "quota": (
        {},
        'pods "lm-slice-0-0-*" is forbidden: exceeded quota: none, requested: pods=1, used: pods=0, limited: pods=0',
    ),
}


@pytest.mark.parametrize("missing", CASES)
def test_the_reason_is_told_by_an_event(place: Place, missing: str) -> None:
    wishes, text = CASES[missing]
    if missing == "quota":
        place.create("resourcequotas", {"metadata": {"name": "none"}, "spec": {"hard": {"pods": "0"}}})
        place.wait_for("resourcequotas", "none", lambda found: bool((found.get("status") or {}).get("hard")))
    place.create("jobsets", jobset("lm", slices=1, hosts=1, **wishes))  # type: ignore[arg-type]
    event = place.wait_for_event("FailedCreate", "lm-slice-0")
    assert (event["type"], event["involvedObject"]["kind"]) == ("Warning", "Job")
    assert place.generic(event["message"]) == f"Error creating: {text}"
    assert place.list("pods") == []
    job = place.get("jobs", "lm-slice-0")
    assert not holding(job) & {"Failed", "Complete"}
    assert not holding(place.get("jobsets", "lm")) & {"Failed", "Completed"}

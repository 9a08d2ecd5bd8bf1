"""Pods that can't be made: a Job whose status says nothing, and the events that do."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tests.conformance.api import Object
from tests.conformance.bodies import jobset
from tests.conformance.place import Place, holding


def no_priority_class(place: Place) -> Object:
    return jobset("lm", slices=1, hosts=1, priority="nope")


def no_service_account(place: Place) -> Object:
    return jobset("lm", slices=1, hosts=1, serviceAccountName="nope")


def no_quota(place: Place) -> Object:
    place.create("resourcequotas", {"metadata": {"name": "none"}, "spec": {"hard": {"pods": "0"}}})
    place.wait_for("resourcequotas", "none", lambda found: bool((found.get("status") or {}).get("hard")))
    return jobset("lm", slices=1, hosts=1)


@pytest.mark.parametrize(
    ("cause", "text"),
    [
        (no_priority_class, 'pods "POD" is forbidden: no PriorityClass with name nope was found'),
        (
            no_service_account,
            'pods "POD" is forbidden: error looking up service account NS/nope: serviceaccount "nope" not found',
        ),
        (no_quota, 'pods "POD" is forbidden: exceeded quota: none, requested: pods=1, used: pods=0, limited: pods=0'),
    ],
    ids=["priority class", "service account", "quota"],
)
def test_the_reason_is_told_by_an_event(place: Place, cause: Callable[[Place], Object], text: str) -> None:
    place.create("jobsets", cause(place))
    event = place.wait_for_event("FailedCreate", "lm-slice-0")
    assert (event["type"], event["involvedObject"]["kind"]) == ("Warning", "Job")
    assert event["message"].startswith("Error creating: ")
    found = place.generic(event["message"].removeprefix("Error creating: "))
    assert found == text.replace("POD", "lm-slice-0-0-*")
    assert place.list("pods") == []
    job = place.get("jobs", "lm-slice-0")
    assert not holding(job) & {"Failed", "Complete"}
    assert not holding(place.get("jobsets", "lm")) & {"Failed", "Completed"}

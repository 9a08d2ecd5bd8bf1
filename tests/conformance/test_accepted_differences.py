"""Each difference that is declared is there on both planes, and stands in the documentation."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.conformance.api import APPLY, Api, Object, Refusal, path_of
from tests.conformance.bodies import config_map, jobset, pod
from tests.conformance.differences import DIFFERENCES, table
from tests.conformance.place import Place, phase

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "conformance.md"


def answer(request: Callable[[], Object]) -> tuple[int, str]:
    """HTTP status and message: 200 and nothing where it is granted."""
    try:
        request()
    except Refusal as refusal:
        return refusal.code, refusal.message
    return 200, ""


def test_rights(place: Place) -> None:
    nobody = Api(place.plane.kubeconfig, Impersonate_User="nobody")
    code, message = answer(lambda: nobody.get(place.path("jobsets")))
    nobody.close()
    assert code == DIFFERENCES["rights"].expected(place.plane.id)
    if message:
        assert message == (
            'jobsets.jobset.x-k8s.io is forbidden: User "nobody" cannot list resource "jobsets" in API group '
            f'"jobset.x-k8s.io" in the namespace "{place.name}"'
        )


def test_apply_conflict(place: Place) -> None:
    place.create("configmaps", config_map("a", {"x": "1"}), fieldManager="one")
    code, _ = answer(lambda: place.patch("configmaps", "a", config_map("a", {"x": "2"}), APPLY, fieldManager="two"))
    assert code == DIFFERENCES["apply conflict"].expected(place.plane.id)


def test_managed_fields(place: Place) -> None:
    created = place.create("configmaps", config_map("a", {"x": "1"}))
    found = bool(created["metadata"].get("managedFields"))
    assert found is DIFFERENCES["managed fields"].expected(place.plane.id)


def test_wrong_type(place: Place) -> None:
    body = jobset("a")
    body["spec"]["suspend"] = "yes"
    code, message = answer(lambda: place.create("jobsets", body))
    assert code == DIFFERENCES["wrong type"].expected(place.plane.id)
    assert "spec.suspend" in message


def test_probe_times(place: Place) -> None:
    place.create("pods", pod("a", nodeSelector=place.only_here))
    found = place.wait_for("pods", "a", lambda item: bool(item["status"].get("conditions")))
    (condition,) = found["status"]["conditions"]
    has = {"lastProbeTime", "observedGeneration"} <= set(condition)
    assert has is DIFFERENCES["probe times"].expected(place.plane.id)


def test_field_selectors(place: Place) -> None:
    code, message = answer(lambda: place.api.get(place.path("configmaps"), fieldSelector="spec.x=1"))
    assert code == 400
    assert message.startswith(DIFFERENCES["field selectors"].expected(place.plane.id))


def test_tolerated_time(place: Place) -> None:
    node = place.add_nodes(1)[0]
    key = "conformance.everstep.dev/out"
    tolerated = {"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 3}
    place.create("pods", pod("a", nodeSelector=place.only_here, tolerations=[tolerated]))
    place.wait_for("pods", "a", lambda item: phase(item) == "Running")
    began = time.monotonic()
    place.api.patch(path_of("nodes", None, node), {"spec": {"taints": [{"key": key, "effect": "NoExecute"}]}})
    place.wait_gone("pods", "a")
    # A lower bound only: how much longer it takes is up to the machine.
    assert time.monotonic() - began >= DIFFERENCES["tolerated time"].expected(place.plane.id)


def test_namespaces(place: Place) -> None:
    gone = place.api.delete(path_of("namespaces", None, place.name))
    assert gone["kind"] == DIFFERENCES["namespaces"].expected(place.plane.id)


def test_each_has_its_test() -> None:
    tests = {name.removeprefix("test_").replace("_", " ") for name in globals() if name.startswith("test_")}
    assert set(DIFFERENCES) <= tests


def test_the_documentation_has_the_table() -> None:
    assert table() in PAGE.read_text(), f"{PAGE.name}: put in what `python -m tests.conformance.differences` prints"


def test_the_documentation_names_no_difference_twice() -> None:
    text = PAGE.read_text()
    assert [each.what for each in DIFFERENCES.values() if text.count(f"| {each.what} |") != 1] == []


@pytest.mark.parametrize("key", DIFFERENCES)
def test_the_two_planes_are_told_apart(key: str) -> None:
    observed = DIFFERENCES[key].observed
    assert observed["sandbox"] != observed["real"]

"""Label and field selectors."""

from __future__ import annotations

import pytest

from everstep_sandbox.kubernetes.errors import ApiError
from everstep_sandbox.kubernetes.selectors import field_predicate, label_predicate, matches_label_selector, parse_labels

LABELS = {"app": "x", "tier": "backend", "n": "5", "example.com/role": ""}


@pytest.mark.parametrize(
    ("selector", "matches"),
    [
        ("app=x", True),
        ("app==x", True),
        ("app=y", False),
        ("app!=y", True),
        ("missing!=y", True),
        ("app in (x, y)", True),
        ("app in (y)", False),
        ("app notin (y)", True),
        ("missing notin (y)", True),
        ("app", True),
        ("!app", False),
        ("!missing", True),
        ("n>4", True),
        ("n<5", False),
        ("app>4", False),
        ("app=x,tier in (backend,frontend),!missing", True),
        ("app=x,tier=frontend", False),
        ("example.com/role=", True),
        ("example.com/role", True),
        ("", True),
    ],
)
def test_label_selectors(selector: str, matches: bool) -> None:
    assert parse_labels(selector)(LABELS) is matches


@pytest.mark.parametrize("selector", ["app=x=y", "app in x", "in (x", "a b", "=x"])
def test_a_label_selector_that_is_not_understood_is_refused(selector: str) -> None:
    with pytest.raises(ApiError, match="unable to parse requirement") as refused:
        parse_labels(selector)
    assert refused.value.code == 400


def test_exact_labels_match_subsets() -> None:
    predicate = label_predicate({"app": "x", "n": "5"})
    assert predicate is not None
    assert predicate({"metadata": {"labels": LABELS}})
    assert not predicate({"metadata": {"labels": {"app": "x"}}})
    assert not predicate({"metadata": {}})


def test_label_selector_objects() -> None:
    assert matches_label_selector({}, LABELS)
    assert not matches_label_selector(None, LABELS)
    expressions = [
        {"key": "app", "operator": "In", "values": ["x"]},
        {"key": "gone", "operator": "DoesNotExist"},
        {"key": "n", "operator": "Gt", "values": ["4"]},
    ]
    assert matches_label_selector({"matchLabels": {"tier": "backend"}, "matchExpressions": expressions}, LABELS)
    not_x = {"key": "app", "operator": "NotIn", "values": ["x"]}
    assert not matches_label_selector({"matchExpressions": [not_x]}, LABELS)


def test_field_selectors_read_paths_and_refuse_fields_that_are_not_served() -> None:
    pod = {"metadata": {"name": "a"}, "spec": {"nodeName": "n1"}, "status": {"phase": "Running"}}
    predicate = field_predicate("status.phase=Running,spec.nodeName!=n2", frozenset({"status.phase", "spec.nodeName"}))
    assert predicate is not None and predicate(pod)
    absent = field_predicate("spec.nodeName=")
    assert absent is not None and not absent(pod) and absent({"metadata": {}, "spec": {}})
    with pytest.raises(ApiError, match=r"field label not supported: spec\.foo"):
        field_predicate("spec.foo=1", frozenset({"metadata.name"}))

"""Label and field selectors: parsing and matching.

Label selectors take the whole grammar (`a=b`, `a!=b`, `a in (x,y)`, `a notin (x)`, `a`, `!a`, `a>1`, `a<1`);
field selectors take `path=value` and `path!=value`, joined by commas.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

from everstep_sandbox.kubernetes.errors import bad_request
from everstep_sandbox.kubernetes.objects import Object

Predicate = Callable[[Object], bool]
LabelTest = Callable[[Mapping[str, str]], bool]

_SET_TERM = re.compile(r"^(?P<key>\S+)\s+(?P<operator>in|notin)\s*\((?P<values>[^)]*)\)$")
_ORDER_TERM = re.compile(r"^(?P<key>[^\s<>=!]+)\s*(?P<operator>[<>])\s*(?P<value>-?\d+)$")
_EQUALITY_TERM = re.compile(r"^(?P<key>[^\s=!]+)\s*(?P<operator>==|!=|=)\s*(?P<value>[^\s=!]*)$")
_EXISTENCE_TERM = re.compile(r"^(?P<absent>!?)\s*(?P<key>[^\s=!<>()]+)$")
_OUTER_COMMA = re.compile(r",(?![^(]*\))")


@lru_cache(maxsize=1024)
def parse_labels(selector: str) -> LabelTest:
    """Compiles a label selector; raises ApiError 400 with the text that was not understood."""
    tests = [_label_test(term.strip(), selector) for term in _OUTER_COMMA.split(selector) if term.strip()]
    return lambda labels: all(test(labels) for test in tests)


def _label_test(term: str, selector: str) -> LabelTest:
    if found := _SET_TERM.match(term):
        key = found["key"]
        values = {value.strip() for value in found["values"].split(",")}
        if found["operator"] == "in":
            return lambda labels: labels.get(key) in values
        return lambda labels: labels.get(key) not in values
    if found := _ORDER_TERM.match(term):
        return _order_test(found["key"], found["operator"], int(found["value"]))
    if found := _EQUALITY_TERM.match(term):
        key, value = found["key"], found["value"]
        if found["operator"] == "!=":
            return lambda labels: labels.get(key) != value
        return lambda labels: labels.get(key) == value
    if found := _EXISTENCE_TERM.match(term):
        key, absent = found["key"], bool(found["absent"])
        return lambda labels: (key in labels) != absent
    raise bad_request(f"unable to parse requirement: found {term!r} in label selector {selector!r}")


def _order_test(key: str, operator: str, bound: int) -> LabelTest:
    def test(labels: Mapping[str, str]) -> bool:
        try:
            value = int(labels[key])
        except (KeyError, ValueError):
            return False
        return value > bound if operator == ">" else value < bound

    return test


def label_predicate(selector: Mapping[str, str] | str | None) -> Predicate | None:
    """A test of whole objects for a selector given as text or as exact labels; None where all match."""
    if not selector:
        return None
    if isinstance(selector, str):
        test = parse_labels(selector)
        return lambda obj: test(obj["metadata"].get("labels") or {})
    wanted = dict(selector)
    return lambda obj: wanted.items() <= (obj["metadata"].get("labels") or {}).items()


def matches_label_selector(selector: Mapping[str, Any] | None, labels: Mapping[str, str]) -> bool:
    """metav1.LabelSelector (matchLabels, matchExpressions) against labels; None matches nothing, {} everything."""
    if selector is None:
        return False
    if any(labels.get(key) != value for key, value in (selector.get("matchLabels") or {}).items()):
        return False
    return all(_matches_expression(item, labels) for item in selector.get("matchExpressions") or ())


def _matches_expression(expression: Mapping[str, Any], labels: Mapping[str, str]) -> bool:
    key, operator = expression["key"], expression["operator"]
    values = expression.get("values") or ()
    if operator == "In":
        return labels.get(key) in values
    if operator == "NotIn":
        return labels.get(key) not in values
    if operator == "Exists":
        return key in labels
    if operator == "DoesNotExist":
        return key not in labels
    return _order_test(key, ">" if operator == "Gt" else "<", int(next(iter(values))))(labels)


def field_predicate(selector: str | None, supported: frozenset[str] | None = None) -> Predicate | None:
    """Compiles a field selector; raises ApiError 400 for bad syntax or a field outside `supported`."""
    if not selector:
        return None
    tests: list[Predicate] = []
    for term in selector.split(","):
        if not term:
            continue
        found = re.match(r"^(?P<path>[^=!]+?)(?P<operator>==|!=|=)(?P<value>.*)$", term)
        if not found:
            raise bad_request(f"invalid field selector: {term!r} in {selector!r}; expected path=value")
        path = found["path"].strip()
        if supported is not None and path not in supported:
            raise bad_request(f"field label not supported: {path}")
        tests.append(_field_test(path, found["value"], found["operator"] == "!="))
    return lambda obj: all(test(obj) for test in tests)


def _field_test(path: str, value: str, differs: bool) -> Predicate:
    steps = path.split(".")

    def test(obj: Object) -> bool:
        found: Any = obj
        for step in steps:
            found = found.get(step) if isinstance(found, dict) else None
        text = "" if found is None else str(found).lower() if isinstance(found, bool) else str(found)
        return (text == value) != differs

    return test

"""IAM policies: what is missing is added, and everything else is kept byte for byte."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as some

from everstep.clients.errors import Conflict
from everstep.provision.cloud.policies import (
    OBJECT_USER,
    OBJECT_VIEWER,
    TRIES,
    Condition,
    Grant,
    make_grants,
    missing,
    run_folders,
    run_reading,
    with_grants,
)

DRIVER = Grant(OBJECT_USER, "principal://driver")
RUN = Grant(OBJECT_USER, "principal://default", run_folders("acme", "lm"))
OTHERS = {
    "role": OBJECT_USER,
    "members": ["user:them@example.com"],
    "condition": {"title": "until spring", "description": "x", "expression": 'request.time < timestamp("2027-03-21")'},
}


def policy(*bindings: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"kind": "storage#policy", "etag": "CAE=", "version": 1, "bindings": list(bindings), **more}


@pytest.mark.parametrize(
    ("found", "grant", "is_missing"),
    [
        (policy(), DRIVER, True),
        ({"etag": "CAE="}, DRIVER, True),
        (policy({"role": OBJECT_USER, "members": [DRIVER.member]}), DRIVER, False),
        (policy({"role": OBJECT_USER, "members": ["user:a@b.c", DRIVER.member]}), DRIVER, False),
        (policy({"role": OBJECT_VIEWER, "members": [DRIVER.member]}), DRIVER, True),
        # A role under somebody's condition is not the role.
        (policy({**OTHERS, "members": [DRIVER.member]}), DRIVER, True),
        (policy({"role": OBJECT_USER, "members": [RUN.member]}), RUN, False),
        (policy({"role": OBJECT_USER, "members": [RUN.member], "condition": RUN.condition.as_dict()}), RUN, False),
        (policy({"role": OBJECT_USER, "members": ["x"], "condition": RUN.condition.as_dict()}), RUN, True),
        (
            policy({"role": OBJECT_USER, "members": [RUN.member], "condition": run_folders("acme", "lm2").as_dict()}),
            RUN,
            True,
        ),
        # Somebody else's title for the same expression.
        (
            policy(
                {"role": OBJECT_USER, "members": [RUN.member], "condition": {**RUN.condition.as_dict(), "title": "t"}}
            ),
            RUN,
            False,
        ),
    ],
)
def test_what_is_missing(found: dict[str, Any], grant: Grant, is_missing: bool) -> None:
    assert missing(found, [grant]) == ((grant,) if is_missing else ())
    assert missing(with_grants(found, [grant]), [grant]) == ()


def test_a_member_joins_a_binding_of_the_same_role_and_condition_only() -> None:
    changed = with_grants(policy(OTHERS, {"role": OBJECT_USER, "members": ["user:a@b.c"]}), [DRIVER, RUN])
    assert changed["bindings"] == [
        OTHERS,
        {"role": OBJECT_USER, "members": ["user:a@b.c", DRIVER.member]},
        {"role": OBJECT_USER, "members": [RUN.member], "condition": RUN.condition.as_dict()},
    ]
    assert changed["version"] == 3 and changed["etag"] == "CAE="


def test_a_policy_without_conditions_keeps_its_version() -> None:
    assert with_grants(policy(), [DRIVER])["version"] == 1


members = some.lists(some.sampled_from(["user:a", "group:b", DRIVER.member, RUN.member]), min_size=1, unique=True)
conditions = some.none() | some.fixed_dictionaries(
    {"title": some.text(max_size=3), "expression": some.text(max_size=3)}
)
bindings = some.lists(
    some.builds(
        lambda role, who, condition: {"role": role, "members": who, **({"condition": condition} if condition else {})},
        some.sampled_from([OBJECT_USER, OBJECT_VIEWER, "roles/storage.admin"]),
        members,
        conditions,
    ),
    max_size=6,
)


@given(bindings)
def test_what_others_have_is_kept_byte_for_byte(there: list[dict[str, Any]]) -> None:
    before = policy(*there, auditConfigs=[{"service": "x"}])
    text = json.dumps(before)
    after = with_grants(before, [DRIVER, RUN])
    assert json.dumps(before) == text, "the policy that was read is not changed"
    assert {key: value for key, value in after.items() if key not in ("bindings", "version")} == {
        key: value for key, value in before.items() if key not in ("bindings", "version")
    }
    for old, new in zip(there, after["bindings"], strict=False):
        added = [member for member in new["members"] if member not in old["members"]]
        assert json.dumps({**new, "members": new["members"][: len(new["members"]) - len(added)]}) == json.dumps(old)
        assert set(added) <= {DRIVER.member, RUN.member}
    assert missing(after, [DRIVER, RUN]) == ()
    assert with_grants(after, [DRIVER, RUN]) == after


class Store:
    """A policy that somebody else changes between the first readings and writings."""

    def __init__(self, rivals: int) -> None:
        self.policy = policy()
        self.rivals = rivals
        self.written = 0

    def read(self) -> dict[str, Any]:
        found = json.loads(json.dumps(self.policy))
        if self.rivals:
            self.rivals -= 1
            self.policy["bindings"].append({"role": OBJECT_VIEWER, "members": [f"user:rival-{self.rivals}@b.c"]})
            self.policy["etag"] += "x"
        return found

    def write(self, wanted: dict[str, Any]) -> None:
        if wanted["etag"] != self.policy["etag"]:
            raise Conflict("etag", status=412)
        self.policy = {**wanted, "etag": wanted["etag"] + "y"}
        self.written += 1


def test_a_rival_costs_a_fresh_reading_and_loses_nothing() -> None:
    store = Store(rivals=3)
    assert make_grants(store.read, store.write, [DRIVER]) == (DRIVER,)
    assert store.written == 1 and len(store.policy["bindings"]) == 4
    assert make_grants(store.read, store.write, [DRIVER]) == ()
    assert store.written == 1, "nothing is written when nothing is missing"


def test_rivals_without_end_are_told() -> None:
    with pytest.raises(Conflict):
        make_grants(*(lambda store: (store.read, store.write))(Store(rivals=TRIES + 1)), [DRIVER])


def test_the_condition_of_a_run_covers_its_two_folders_and_no_neighbour() -> None:
    condition = run_folders("acme", "lm")
    assert isinstance(condition, Condition)
    for folder in ("everstep", "checkpoints"):
        assert f'resource.name.startsWith("projects/_/buckets/acme/objects/lm/{folder}/")' in condition.expression
        assert f'resource.name.startsWith("projects/_/buckets/acme/folders/lm/{folder}/")' in condition.expression
        assert f'"storage.googleapis.com/objectListPrefix", "").startsWith("lm/{folder}/")' in condition.expression
    # IAM takes at most 12 logical operators.
    assert condition.expression.count("||") == 5


def test_a_run_reads_its_whole_folder_and_no_neighbour() -> None:
    condition = run_reading("acme", "lm")
    assert condition.title != run_folders("acme", "lm").title
    assert 'objects/lm/")' in condition.expression
    assert '"storage.googleapis.com/objectListPrefix", "").startsWith("lm/")' in condition.expression

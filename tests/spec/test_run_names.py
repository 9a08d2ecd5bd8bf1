"""Names that fit, whatever they are made of."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from everstep.spec.names import check_run_name, longest_run_name, sanitise


def test_the_limit_is_the_one_of_pod_names() -> None:
    # 47 fit and 48 do not: reported for replicas 3, completions 2 and the job name "slice".
    assert longest_run_name(3, 2) == 47
    assert not check_run_name("a" * 47, 3, 2)
    assert check_run_name("a" * 48, 3, 2)
    assert longest_run_name(11, 101) == 44


def test_a_real_name_that_is_too_long_is_refused_with_one_that_fits() -> None:
    name = "max-mtc-resume-gcs-mtc-2x-tpu-v5p-16-2025-10-22-08-36"
    (finding,) = check_run_name(name, 2, 4)
    assert "has 53 characters" in finding.found
    assert sanitise(name, 2, 4) in finding.remedy


@pytest.mark.parametrize(
    "text", ["manual__2025-10-22T08:36:00+00:00", "", "---", "Ünïcode", "9lives", "a" * 200, "-x-"]
)
def test_any_text_becomes_a_name_that_is_taken(text: str) -> None:
    assert not check_run_name(sanitise(text, 3, 2), 3, 2)


@given(st.text(), st.text(), st.integers(1, 200), st.integers(1, 1000))
def test_sanitising_is_valid_stable_and_keeps_texts_apart(one: str, other: str, slices: int, nodes: int) -> None:
    name = sanitise(one, slices, nodes)
    assert re.fullmatch(r"[a-z]([-a-z0-9]*[a-z0-9])?", name)
    assert len(name) <= longest_run_name(slices, nodes)
    assert sanitise(one, slices, nodes) == name
    if one != other:
        assert sanitise(other, slices, nodes) != name


def test_a_valid_name_stays_as_it_is() -> None:
    assert sanitise("stdlib-lm", 3, 2) == "stdlib-lm"

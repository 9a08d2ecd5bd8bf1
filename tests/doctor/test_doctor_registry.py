"""Every symptom has a test that produces it and a row in the documentation; nothing explains itself."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from everstep.doctor.diagnose import SYMPTOMS, blind_spots, diagnose, fold
from everstep.doctor.diagnosis import Confidence, Diagnosis
from everstep.doctor.evidence import Evidence, Target
from everstep.spec.findings import Severity

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "doctor.md"


def test_every_symptom_is_produced_by_a_test() -> None:
    from tests.doctor import test_live_symptoms, test_written_symptoms  # noqa: F401
    from tests.doctor.clinic import SHOWN

    assert sorted(set(SYMPTOMS) - set(SHOWN)) == []
    assert sorted(set(SHOWN) - set(SYMPTOMS)) == []


def test_every_symptom_has_a_row_in_the_page() -> None:
    rows = re.findall(r"^\| `([a-z-]+)` \|", PAGE.read_text(), re.MULTILINE)
    assert rows == list(SYMPTOMS)


def test_every_failing_wait_of_the_page_has_its_test_and_known_symptoms() -> None:
    from tests.doctor import test_live_symptoms

    page = PAGE.read_text()
    table = page[page.index("## When a wait fails") : page.index("## All symptoms")]
    rows = [line.split("|")[1:-1] for line in table.splitlines() if line.startswith("| ")][1:]
    assert len(rows) >= 12
    for what, *_, symptoms, tests in rows:
        for test in re.findall(r"`(test_\w+)`", tests):
            assert callable(getattr(test_live_symptoms, test, None)), (what, test)
        first = re.findall(r"`([a-z][a-z-]+)`", symptoms)[0]
        assert first in SYMPTOMS, (what, first)


def test_what_follows_is_known_and_never_goes_round() -> None:
    def follow(symptom: str, seen: tuple[str, ...]) -> None:
        for following in SYMPTOMS[symptom].explains:
            assert following in SYMPTOMS and following not in seen, (*seen, following)
            follow(following, (*seen, following))

    for symptom in SYMPTOMS:
        follow(symptom, (symptom,))


def diagnosis(symptom: str, severity: Severity = Severity.ERROR, sure: Confidence = Confidence.CERTAIN) -> Diagnosis:
    return Diagnosis(symptom, symptom, "why", severity=severity, confidence=sure)


def test_causes_come_first_and_what_follows_stands_below_them() -> None:
    given = [diagnosis("volume-not-mounted"), diagnosis("driver-not-ready"), diagnosis("driver-denied")]
    (cause,) = fold(given)
    assert cause.symptom == "driver-denied"
    assert [each.symptom for each in cause.consequences] == ["driver-not-ready", "volume-not-mounted"]


@pytest.mark.parametrize(
    "weak", [diagnosis("driver-denied", Severity.NOTE), diagnosis("driver-denied", sure=Confidence.POSSIBLE)]
)
def test_a_note_or_a_mere_possibility_explains_nothing(weak: Diagnosis) -> None:
    assert len(fold([weak, diagnosis("driver-not-ready")])) == 2


def test_nothing_seen_is_not_healthy() -> None:
    from everstep.doctor.live import report

    evidence = Evidence(Target(run="lm"), unread={"version": "no way to the cluster"})
    assert blind_spots(evidence) == ["the cluster's API server: no way to the cluster"]
    assert "not everything could be looked at" in report(evidence, [])[-1]
    assert diagnose(evidence)[0].symptom == "cluster-unreachable"

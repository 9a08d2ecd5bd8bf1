"""GKE versions are compared as GKE counts, not as text."""

from __future__ import annotations

import pytest

from everstep.spec.gke_versions import LEAST_FOR_NEW, TOO_OLD, GkeVersion


@pytest.mark.parametrize(
    ("older", "newer"),
    [
        ("1.32.3-gke.1170000", "1.32.3-gke.1170001"),
        ("1.32.3-gke.1170000", "1.32.4-gke.1"),
        ("1.32.4-gke.999999", "1.32.4-gke.1415000"),
        ("1.9.11-gke.5", "1.32.4-gke.5"),
        ("1.32.10-gke.1", "1.33.0-gke.1"),
        ("1.32.9-gke.1", "1.32.10-gke.1"),
    ],
)
def test_order(older: str, newer: str) -> None:
    assert GkeVersion.of(older) < GkeVersion.of(newer)
    assert str(GkeVersion.of(newer)) == newer


def test_limits_of_the_documentation() -> None:
    assert str(LEAST_FOR_NEW) == "1.32.4-gke.1415000"
    assert str(TOO_OLD) == "1.32.3-gke.1170000"


@pytest.mark.parametrize("text", ["1.32", "1.32.4", "v1.32.4-gke.1", "1.32.4-gke.", "latest", "", "1.32.4-gke.1-beta"])
def test_what_is_no_version_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="a GKE version such as"):
        GkeVersion.of(text)

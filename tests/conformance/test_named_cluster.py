"""The cluster that EVERSTEP_TEST_KUBECONFIG names takes the place of the one that is built."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.conformance.planes import KUBECONFIG_VARIABLE, real


def test_its_kubeconfig_is_used_as_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "config").touch()
    monkeypatch.setenv(KUBECONFIG_VARIABLE, str(tmp_path / "config"))
    with real(tmp_path / "state") as plane:
        assert plane.kubeconfig == tmp_path / "config"
    assert not (tmp_path / "state").exists()


def test_a_kubeconfig_that_is_not_there_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(KUBECONFIG_VARIABLE, str(tmp_path / "none"))
    named = pytest.raises(pytest.fail.Exception, match=f"{KUBECONFIG_VARIABLE} names {tmp_path}/none")
    with named, real(tmp_path / "state"):
        raise AssertionError("no cluster was to be had")

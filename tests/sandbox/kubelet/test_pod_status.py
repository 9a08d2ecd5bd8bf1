"""The phase that containers add up to."""

from __future__ import annotations

import datetime

import pytest

from everstep_sandbox.kubelet.pod_status import ContainerState, phase

NOW = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)


def state(what: str | int) -> ContainerState:
    made = ContainerState("c")
    if what != "waiting":
        made.start("id", NOW)
    if isinstance(what, int):
        made.terminate(what, NOW)
    return made


@pytest.mark.parametrize(
    ("policy", "codes", "ended", "expected"),
    [
        ("Never", ["waiting"], False, "Pending"),
        ("Never", ["running"], False, "Running"),
        ("Never", [0, "running"], False, "Running"),
        ("Never", [0, 0], False, "Succeeded"),
        ("Never", [0, 1], False, "Failed"),
        ("OnFailure", [1], False, "Running"),
        ("OnFailure", [0], False, "Succeeded"),
        ("Always", [0], False, "Running"),
        ("Always", [0], True, "Succeeded"),
        ("Always", [143], True, "Failed"),
        ("Never", ["waiting"], True, "Failed"),
    ],
)
def test_main_containers(policy: str, codes: list[str | int], ended: bool, expected: str) -> None:
    main = {str(number): state(code) for number, code in enumerate(codes)}
    assert phase({"spec": {"restartPolicy": policy}}, {}, main, ended=ended) == expected


@pytest.mark.parametrize(
    ("init", "restart", "main", "expected"),
    [
        ("running", None, "waiting", "Pending"),
        (1, None, "waiting", "Failed"),
        (0, None, "running", "Running"),
        ("running", "Always", "running", "Running"),
        ("running", "Always", 0, "Running"),
        (0, "Always", 0, "Succeeded"),
        (143, "Always", 0, "Succeeded"),
    ],
)
def test_init_containers_and_sidecars(init: str | int, restart: str | None, main: str | int, expected: str) -> None:
    container = {"name": "i", **({"restartPolicy": restart} if restart else {})}
    pod = {"spec": {"restartPolicy": "Never", "initContainers": [container]}}
    assert phase(pod, {"i": state(init)}, {"m": state(main)}, ended=False) == expected

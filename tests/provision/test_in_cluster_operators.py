"""The operators inside a cluster: their flags come as templates render them, and lead to the right steps."""

from __future__ import annotations

from pathlib import Path

import pytest

from everstep.provision import in_cluster_operators as operators
from everstep.provision.site import Site, load_site

CLUSTER = Path(__file__).parents[2] / "dags" / "clusters" / "sandbox.yaml"


@pytest.fixture
def site() -> Site:
    return load_site(CLUSTER, kubeconfig="/nowhere")


@pytest.mark.parametrize(
    ("name", "arguments", "titles"),
    [
        ("EnsureJobSetOperator", {}, ["JobSet controller"]),
        ("EnsurePriorityClassesOperator", {}, ["priority classes"]),
        ("EnsureCheckpointingOperator", {"recreate": "True"}, ["checkpoint configurations"]),
        ("RemoveCheckpointingOperator", {"force": "False"}, ["removal of checkpoint configurations"]),
        (
            "PrepareUpgradeOperator",
            {"upgrade": "1.35"},
            ["runs suspended for the upgrade", "checkpoint configurations removed for the upgrade"],
        ),
        (
            "PrepareUpgradeOperator",
            {"upgrade": "1.35", "version": "1.35.0-gke.2398000"},
            [
                "version of the upgrade",
                "runs suspended for the upgrade",
                "checkpoint configurations removed for the upgrade",
            ],
        ),
        ("FinishUpgradeOperator", {"upgrade": "1.35"}, ["checkpoint configurations", "runs resumed after the upgrade"]),
    ],
)
def test_every_operator_has_its_steps(site: Site, name: str, arguments: dict[str, str], titles: list[str]) -> None:
    operator = getattr(operators, name)(task_id="task", cluster=str(CLUSTER), **arguments)
    assert [step.title for step in operator.steps(site)] == ["way into the cluster", *titles]
    assert set(arguments) <= set(operator.template_fields)


@pytest.mark.parametrize(
    ("given", "meant"), [(True, True), ("True", True), ("true", True), ("False", False), ("", False), ("None", False)]
)
def test_a_flag_is_read_as_a_template_renders_it(given: bool | str, meant: bool) -> None:
    assert operators.as_flag(given) is meant

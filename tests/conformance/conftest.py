"""One body of tests, once for each control plane: `sandbox`, and `real` where one can be had."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.conformance.api import Api
from tests.conformance.departed_node import DepartedNode
from tests.conformance.hollow_kubelet import HollowKubelet
from tests.conformance.place import Place
from tests.conformance.planes import PLANES, Plane

_PARAMETERS = [
    pytest.param("sandbox", id="sandbox", marks=pytest.mark.sandbox),
    pytest.param("real", id="real", marks=pytest.mark.controlplane),
]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Puts the suite last, so that its control planes end with it instead of running beside all other tests."""
    here = Path(__file__).parent
    items.sort(key=lambda item: here in item.path.parents)


@pytest.fixture(scope="session", params=_PARAMETERS)
def plane(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Plane]:
    """A control plane, started once for all its tests."""
    with PLANES[request.param](tmp_path_factory.mktemp(request.param)) as running:
        yield running


@pytest.fixture(scope="session")
def api(plane: Plane) -> Iterator[Api]:
    opened = Api(plane.kubeconfig)
    yield opened
    opened.close()


@pytest.fixture(scope="session")
def kubelet(plane: Plane, api: Api) -> Iterator[HollowKubelet]:
    """Plays every node of the suite."""
    started = HollowKubelet(api)
    started.start()
    yield started
    started.stop()


@pytest.fixture(scope="session")
def begun(
    request: pytest.FixtureRequest, plane: Plane, api: Api, kubelet: HollowKubelet
) -> Iterator[DepartedNode | None]:
    """What takes so long that it begins before all tests, if one of them asks for it."""
    if not any("departed_node" in getattr(item, "fixturenames", ()) for item in request.session.items):
        yield None
        return
    begun = DepartedNode(plane, api, kubelet)
    yield begun
    begun.close()


@pytest.fixture
def departed_node(begun: DepartedNode | None) -> DepartedNode:
    """A run that has lost a node."""
    assert begun is not None
    return begun


@pytest.fixture
def place(begun: object, plane: Plane, api: Api, kubelet: HollowKubelet) -> Iterator[Place]:
    """A namespace of the test's own, without nodes at first; what is in it ends with the test."""
    made = Place(plane, api, kubelet)
    yield made
    made.clear()

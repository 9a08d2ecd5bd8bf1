"""One body of tests, once for each control plane: `sandbox`, and `real` where one can be had."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.conformance.api import Api
from tests.conformance.hollow_kubelet import HollowKubelet
from tests.conformance.place import Place
from tests.conformance.planes import PLANES, Plane

_PARAMETERS = [
    pytest.param("sandbox", id="sandbox", marks=pytest.mark.sandbox),
    pytest.param("real", id="real", marks=pytest.mark.controlplane),
]


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


@pytest.fixture
def place(plane: Plane, api: Api, kubelet: HollowKubelet) -> Iterator[Place]:
    """A namespace of the test's own, without nodes at first; what is in it ends with the test."""
    made = Place(plane, api, kubelet)
    yield made
    made.clear()

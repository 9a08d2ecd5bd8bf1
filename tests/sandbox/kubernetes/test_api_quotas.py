"""ResourceQuotas: what is counted, and how a refusal reads."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from everstep_sandbox.kubernetes.errors import ApiError
from everstep_sandbox.kubernetes.store import Store

Make = Callable[..., dict[str, Any]]


def with_requests(pod: dict[str, Any], **amounts: str) -> dict[str, Any]:
    pod["spec"]["containers"][0]["resources"] = {
        "limits": {name.replace("tpu", "google.com/tpu"): text for name, text in amounts.items()}
    }
    return pod


def test_pods_and_requests_are_counted_as_long_as_pods_have_not_ended(store: Store, make_pod: Make) -> None:
    bounds = {"pods": "3", "requests.google.com/tpu": "8", "requests.cpu": "1500m", "limits.memory": "0"}
    store.create("resourcequotas", "default", {"metadata": {"name": "team"}, "spec": {"hard": bounds}})
    store.create("pods", "default", with_requests(make_pod("a"), tpu="4"))
    store.create("pods", "default", with_requests(make_pod("b"), tpu="4", cpu="1"))
    with pytest.raises(ApiError) as refused:
        store.create("pods", "default", with_requests(make_pod("c"), tpu="4", cpu="750m", memory="1Gi"))
    assert refused.value.code == 403
    assert refused.value.message == (
        'pods "c" is forbidden: exceeded quota: team, requested: requests.cpu=750m,requests.google.com/tpu=4, '
        "used: requests.cpu=1,requests.google.com/tpu=8, limited: requests.cpu=1500m,requests.google.com/tpu=8"
    )
    store.patch("pods", "default", "b", {"status": {"phase": "Failed"}}, subresource="status")
    store.create("pods", "default", with_requests(make_pod("c"), tpu="4"))
    store.create("pods", "default", make_pod("d"))
    with pytest.raises(ApiError, match="requested: pods=1, used: pods=3, limited: pods=3"):
        store.create("pods", "default", make_pod("e"))
    store.create("pods", "kube-system", make_pod("elsewhere"))

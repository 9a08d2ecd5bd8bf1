"""What GKE's description tells of the endpoint that a cluster file names, and a try from here."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from everstep.clients.access import ClusterAccess
from everstep.provision.cloud import reachability as reachability_module
from everstep.provision.cloud.reachability import reachability, tried
from everstep.spec.cluster import ClusterSpec

SpecOf = Callable[..., ClusterSpec]
OPEN = {
    "controlPlaneEndpointsConfig": {
        "dnsEndpointConfig": {"endpoint": "gke-x.us-east5.gke.goog", "allowExternalTraffic": True},
        "ipEndpointsConfig": {"enabled": True, "enablePublicEndpoint": True, "privateEndpoint": "10.0.0.2"},
    }
}


def closed(**endpoints: Any) -> dict[str, Any]:
    return {"controlPlaneEndpointsConfig": endpoints}


@pytest.mark.parametrize("endpoint", ["kubeconfig", "dns", "private", "public"])
def test_an_open_control_plane(spec_of: SpecOf, endpoint: str) -> None:
    assert reachability(OPEN, spec_of({"endpoint": endpoint})) == []


NETWORKS = {"enabled": True, "cidrBlocks": [{"cidrBlock": "203.0.113.0/24"}]}


@pytest.mark.parametrize(
    ("endpoint", "cluster", "severity", "found", "remedy"),
    [
        ("dns", {}, "error", "no DNS endpoint", "--enable-dns-access"),
        ("dns", closed(dnsEndpointConfig={"endpoint": "x"}), "error", "x is off", "--enable-dns-access"),
        ("private", {}, "error", "no private address", "endpoint: dns"),
        (
            "private",
            closed(ipEndpointsConfig={"enabled": False}),
            "error",
            "IP endpoints are off",
            "--enable-ip-access",
        ),
        (
            "private",
            closed(ipEndpointsConfig={"enabled": True, "privateEndpoint": "10.0.0.2", "globalAccess": False}),
            "note",
            "10.0.0.2 answers within us-east5 only",
            "--enable-master-global-access",
        ),
        (
            "public",
            closed(ipEndpointsConfig={"enabled": True, "enablePublicEndpoint": False}),
            "error",
            "no public",
            "",
        ),
        ("public", {"privateClusterConfig": {"enablePrivateEndpoint": True}}, "error", "no public address", "dns"),
        (
            "public",
            closed(ipEndpointsConfig={"enabled": True, "authorizedNetworksConfig": NETWORKS}),
            "note",
            "authorised networks only: 203.0.113.0/24",
            "--master-authorized-networks=203.0.113.0/24,NETWORK",
        ),
        ("public", {"masterAuthorizedNetworksConfig": {"enabled": True}}, "note", "networks only: none", ""),
    ],
)
def test_what_hinders(
    spec_of: SpecOf, endpoint: str, cluster: dict[str, Any], severity: str, found: str, remedy: str
) -> None:
    (finding,) = reachability(cluster, spec_of({"endpoint": endpoint}))
    assert finding.severity == severity and found in finding.found and remedy in finding.remedy


@pytest.mark.parametrize(
    ("endpoint", "remedy"),
    [("private", "in the cluster's network"), ("public", "authorised networks"), ("dns", "*.gke.goog")],
)
async def test_a_try_that_nobody_answers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, endpoint: str, remedy: str
) -> None:
    monkeypatch.setattr(reachability_module, "TRY_SECONDS", 1.0)
    access = replace(ClusterAccess.of_kubeconfig(kubeconfig(tmp_path, "http://127.0.0.1:9"), "c"), endpoint=endpoint)
    (finding,) = await tried(access, "from the triggerer")
    assert finding.severity == "error" and "no answer from the triggerer" in finding.found
    assert remedy in finding.remedy


@pytest.mark.sandbox
async def test_a_try_that_is_answered_and_one_that_is_refused(bare_kubernetes: Any) -> None:
    access = ClusterAccess.of_kubeconfig(bare_kubernetes.kubeconfig, "c")
    assert await tried(access, "from here") == []
    bare_kubernetes.fault(match="/version", status=403, times=1)
    (finding,) = await tried(access, "from here")
    assert "refused from here" in finding.found and "container.clusters.connect" in finding.remedy


def kubeconfig(folder: Path, server: str) -> Path:
    path = folder / "kubeconfig"
    path.write_text(
        "{apiVersion: v1, kind: Config, current-context: x, "
        f"clusters: [{{name: x, cluster: {{server: '{server}'}}}}], "
        "users: [{name: x, user: {}}], contexts: [{name: x, context: {cluster: x, user: x}}]}"
    )
    return path

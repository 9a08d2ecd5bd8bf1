"""Nodes are never made anew under somebody who runs on them, unless that is forced."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from everstep.clients.access import ClusterAccess
from everstep.clients.kubernetes import KubernetesClient
from everstep.clients.resources import NODES, PODS
from everstep.launch import labels
from everstep.provision.changes import Look
from everstep.provision.cloud import bodies
from everstep.provision.cloud.steps import node_pool_deletion_steps, node_pool_steps
from everstep.provision.site import Site
from everstep.spec.cluster import ClusterSpec
from everstep.spec.findings import errors_of

pytestmark = pytest.mark.sandbox

SpecOf = Callable[..., ClusterSpec]
NODE = "in-use-0"


@pytest.fixture
def kubernetes(bare_kubernetes: Any) -> Iterator[KubernetesClient]:
    """A node of the pool, on which a training and a node's own pod run."""
    with ClusterAccess.of_kubeconfig(bare_kubernetes.kubeconfig).open() as client:
        client.create(NODES, {"metadata": {"name": NODE, "labels": {labels.NODE_POOL: "v6e-2x4-0"}}})
        owner = {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "agent", "uid": "u"}
        pods = {
            "in-use-lm": {"labels": {labels.JOBSET_NAME: "lm"}},
            "in-use-agent": {"ownerReferences": [owner]},
        }
        for name, metadata in pods.items():
            spec = {"nodeName": NODE, "terminationGracePeriodSeconds": 0, "containers": [{"name": "x", "image": "x"}]}
            client.create(PODS, {"metadata": {"name": name, **metadata}, "spec": spec}, "default")
        yield client
        for name in pods:
            if client.find(PODS, name, "default") is not None:
                client.delete(PODS, name, "default")
        client.delete(NODES, NODE)


def seed(cloud: Any, spec: ClusterSpec, endpoint: str) -> None:
    """A cluster with a node pool that is as it should be but for the metadata server."""
    with cloud.site(spec) as site:
        site.google().enable_services("everstep-sandbox", ["container.googleapis.com", "compute.googleapis.com"])
    pool = copy.deepcopy(bodies.node_pool(spec, spec.pools["v6e-2x4"], "v6e-2x4-0", nodes=2))
    del pool["config"]["workloadMetadataConfig"]
    base = {"name": "tokyo", "location": "us-east5-a", "initialClusterVersion": "1.34.1-gke.1829001"}
    cloud.google.command("clusters", {**base, "nodePools": [pool], "endpoint": endpoint})


def look(cloud: Any, spec: ClusterSpec, kubeconfig: str, *, force: bool = False) -> Look:
    with Site(spec, folder=cloud.folder, kubeconfig=kubeconfig) as site:
        return node_pool_steps(site, force=force)[1].look()


def test_a_training_that_runs_there_is_named(
    cloud: Any, spec_of: SpecOf, bare_kubernetes: Any, kubernetes: KubernetesClient
) -> None:
    spec, kubeconfig = spec_of({"pools.v6e-2x4.slices": 1}), str(bare_kubernetes.kubeconfig)
    seed(cloud, spec, bare_kubernetes.address.removeprefix("http://"))
    (finding,) = errors_of(look(cloud, spec, kubeconfig).findings)
    assert (finding.object, finding.found) == ("node pool v6e-2x4-0", "JobSet default/lm runs on its nodes")
    with Site(spec, folder=cloud.folder, kubeconfig=kubeconfig) as site:
        for steps in (node_pool_steps(site, size="zero"), node_pool_deletion_steps(site, ("v6e-2x4",))):
            (told,) = errors_of(steps[-1].look().findings)
            assert told.found == finding.found and "ends every pod" in told.expected
        assert not node_pool_deletion_steps(site, ("v6e-2x4",), force=True)[0].look().findings
    forced = look(cloud, spec, kubeconfig, force=True)
    assert not forced.findings and [change.wanted for change in forced.changes] == ["GKE_METADATA"]
    kubernetes.delete(PODS, "in-use-lm", "default")
    assert not look(cloud, spec, kubeconfig).findings


def test_another_cluster_tells_nothing_of_who_runs_there(
    cloud: Any, spec_of: SpecOf, bare_kubernetes: Any, kubernetes: KubernetesClient
) -> None:
    spec = spec_of({"pools.v6e-2x4.slices": 1})
    seed(cloud, spec, "203.0.113.9")
    (finding,) = errors_of(look(cloud, spec, str(bare_kubernetes.kubeconfig)).findings)
    assert "can't be seen" in finding.found and "get-credentials" in finding.remedy

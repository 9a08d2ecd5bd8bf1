"""The way into a cluster: a kubeconfig or a connection that leads to another one is told before anything is changed."""

from __future__ import annotations

import base64
import json
import os
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from airflow.providers.common.compat.sdk import AirflowFailException

from everstep.clients.errors import NotConfigured
from everstep.clients.resources import PRIORITY_CLASSES
from everstep.provision.changes import Mode
from everstep.provision.cloud.endpoints import address, addresses
from everstep.provision.everything import all_steps, provision
from everstep.provision.in_cluster.steps import in_cluster_steps
from everstep.provision.in_cluster_operators import EnsurePriorityClassesOperator
from everstep.provision.site import Site
from everstep.provision.steps import survey
from everstep.provision.way_in import WayInStep
from everstep.spec.cluster import ClusterSpec
from everstep.spec.findings import FindingsError, Severity

pytestmark = pytest.mark.sandbox

SpecOf = Callable[..., ClusterSpec]
GET_CREDENTIALS = (
    "gcloud container clusters get-credentials tokyo --project=everstep-sandbox --location=us-east5-a --dns-endpoint"
)
AUTHORITY = "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n"


def seed(cloud: Any, **fields: Any) -> None:
    """A cluster that is there already."""
    with cloud.site(ClusterSpec.model_validate(cloud_file())) as site:
        site.google().enable_services("everstep-sandbox", ["container.googleapis.com"])
    base = {"name": "tokyo", "location": "us-east5-a", "initialClusterVersion": "1.34.1-gke.1829001"}
    cloud.google.command("clusters", {**base, **fields})


def cloud_file() -> dict[str, Any]:
    from tests.provision.cloud.conftest import BASE

    return BASE


def kubeconfig(folder: Path, server: str, authority: str = "") -> str:
    """A kubeconfig whose current context leads to a server."""
    cluster = {"server": server}
    if authority:
        cluster["certificate-authority-data"] = base64.b64encode(authority.encode()).decode()
    path = folder / "config"
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "x",
        "clusters": [{"name": "x", "cluster": cluster}],
        "users": [{"name": "x", "user": {}}],
        "contexts": [{"name": "x", "context": {"cluster": "x", "user": "x"}}],
    }
    path.write_text(yaml.safe_dump(document))
    return str(path)


@pytest.mark.parametrize(
    ("cluster", "known"),
    [
        ({"endpoint": "203.0.113.9"}, "203.0.113.9:443"),
        ({"controlPlaneEndpointsConfig": {"dnsEndpointConfig": {"endpoint": "gke-x.gke.goog"}}}, "gke-x.gke.goog:443"),
        ({"controlPlaneEndpointsConfig": {"ipEndpointsConfig": {"privateEndpoint": "10.0.0.2"}}}, "10.0.0.2:443"),
        ({"controlPlaneEndpointsConfig": {"ipEndpointsConfig": {"publicEndpoint": "203.0.113.9"}}}, "203.0.113.9:443"),
        ({"privateClusterConfig": {"privateEndpoint": "10.0.0.3"}}, "10.0.0.3:443"),
        ({"status": "PROVISIONING"}, None),
    ],
)
def test_every_address_that_gke_reports_counts(cluster: dict[str, Any], known: str | None) -> None:
    assert list(addresses(cluster)) == ([known] if known else [])


@pytest.mark.parametrize(
    ("url", "read"),
    [("https://203.0.113.9", "203.0.113.9:443"), ("https://X.gke.goog/", "x.gke.goog:443"), ("http://h", "h:80")],
)
def test_an_address_is_read_from_a_url(url: str, read: str) -> None:
    assert address(url) == read


def test_a_kubeconfig_of_the_cluster_passes(cloud: Any, spec_of: SpecOf, bare_kubernetes: Any) -> None:
    seed(cloud, endpoint=bare_kubernetes.address.removeprefix("http://"))
    with Site(spec_of(), folder=cloud.folder, kubeconfig=str(bare_kubernetes.kubeconfig)) as site:
        assert WayInStep(site).look().findings == ()
        assert site.kubernetes().version()


@pytest.mark.parametrize(("authority", "passes"), [(AUTHORITY, True), (AUTHORITY.replace("MIIB", "MIIC"), False)])
def test_a_tunnel_passes_that_trusts_the_clusters_own_authority(
    cloud: Any, spec_of: SpecOf, tmp_path: Path, authority: str, passes: bool
) -> None:
    own = base64.b64encode(AUTHORITY.encode()).decode()
    seed(cloud, endpoint="203.0.113.9", masterAuth={"clusterCaCertificate": own})
    config = kubeconfig(tmp_path, "https://127.0.0.1:8443", authority)
    with Site(spec_of(), folder=cloud.folder, kubeconfig=config) as site:
        assert (WayInStep(site).look().findings == ()) is passes


def test_another_cluster_is_refused_before_anything_in_it_is_changed(
    cloud: Any, spec_of: SpecOf, bare_kubernetes: Any
) -> None:
    seed(cloud, endpoint="203.0.113.9")
    spec = spec_of({"endpoint": "dns", "priorities": {"never-to-be-made": 7}})
    config = str(bare_kubernetes.kubeconfig)
    with Site(spec, folder=cloud.folder, kubeconfig=config) as site:
        with pytest.raises(FindingsError) as refusal:
            provision(site, all_steps(site), Mode.APPLY, print)
        (finding,) = refusal.value.findings
        assert finding.object == f"kubeconfig {config}"
        assert finding.found == f"it leads to {bare_kubernetes.address}"
        assert "203.0.113.9:443" in finding.expected and ".us-east5.gke.goog:443" in finding.expected
        assert finding.remedy == f"KUBECONFIG={shlex.quote(config)} {GET_CREDENTIALS}"
        with pytest.raises(NotConfigured, match="not to cluster tokyo"):
            site.kubernetes()
    assert "never-to-be-made" not in bare_kubernetes_classes(bare_kubernetes)


def test_a_check_tells_it_and_takes_nothing_for_there_that_is_elsewhere(
    cloud: Any, spec_of: SpecOf, bare_kubernetes: Any
) -> None:
    seed(cloud, endpoint="203.0.113.9")
    spec = spec_of({"priorities": {"some-class": 7}})
    with Site(spec, folder=cloud.folder, kubeconfig=str(bare_kubernetes.kubeconfig)) as site:
        report = survey([WayInStep(site), *in_cluster_steps(site)], Mode.CHECK)
    assert [each.severity for each in report.findings if "leads to" in each.found] == [Severity.ERROR]
    assert ("create", "CheckpointConfiguration v6e") in [(each.action, each.object) for each in report.left]


def test_a_cluster_that_is_not_made_yet_is_no_error_in_a_check(
    cloud: Any, spec_of: SpecOf, bare_kubernetes: Any, tmp_path: Path
) -> None:
    spec = spec_of({"endpoint": "dns", "priorities": {"never-to-be-made": 7}})
    with Site(spec, folder=cloud.folder, kubeconfig=str(bare_kubernetes.kubeconfig)) as site:
        (finding,) = WayInStep(site).look().findings
        assert finding.severity is Severity.WARNING
        assert finding.remedy.startswith("once there is one: ") and GET_CREDENTIALS in finding.remedy
        with pytest.raises(FindingsError, match="it leads to"):
            provision(site, in_cluster_steps(site)[1:], Mode.APPLY, print)
    assert "never-to-be-made" not in bare_kubernetes_classes(bare_kubernetes)
    with Site(spec, folder=cloud.folder, kubeconfig=str(tmp_path / "none")) as site:
        assert WayInStep(site).look().findings == ()


def test_a_kubeconfig_that_is_missing_is_told_with_the_command_that_writes_it(
    cloud: Any, spec_of: SpecOf, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seed(cloud, endpoint="203.0.113.9")
    monkeypatch.setenv("HOME", str(tmp_path))
    with Site(spec_of({"endpoint": "dns"}), folder=cloud.folder, kubeconfig=str(tmp_path / ".kube" / "config")) as site:
        (finding,) = WayInStep(site).look().findings
    assert finding.severity is Severity.ERROR and "no way there" in finding.found
    assert finding.remedy == GET_CREDENTIALS


@pytest.fixture
def elsewhere(cloud: Any) -> None:
    """A cluster at an address where nobody is."""
    seed(cloud, endpoint="203.0.113.9")


def test_operators_refuse_a_connection_to_another_cluster(
    elsewhere: None, connected: dict[str, Any], spec_of: SpecOf, bare_kubernetes: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    extra = {"kube_config_path": str(bare_kubernetes.kubeconfig)}
    monkeypatch.setenv("AIRFLOW_CONN_TOKYO", json.dumps({"conn_type": "kubernetes", "extra": extra}))
    spec = spec_of({**connected, "priorities": {"never-to-be-made": 7}})
    operator = EnsurePriorityClassesOperator(task_id="classes", cluster=spec, mode="apply")
    with pytest.raises(AirflowFailException, match="it leads to http") as refusal:
        operator.execute({})
    assert "put that context's part of the kubeconfig into the connection" in str(refusal.value)
    assert "never-to-be-made" not in bare_kubernetes_classes(bare_kubernetes)


@pytest.mark.parametrize("ours", [True, False])
def test_an_address_that_a_connection_names_is_compared_too(
    cloud: Any, spec_of: SpecOf, bare_kubernetes: Any, request: pytest.FixtureRequest, monkeypatch: Any, ours: bool
) -> None:
    seed(cloud, endpoint=bare_kubernetes.address.removeprefix("http://") if ours else "203.0.113.9")
    changes = request.getfixturevalue("connected")
    connection = json.loads(os.environ["AIRFLOW_CONN_PROVISIONER"])
    connection["extra"]["gke_endpoint"] = bare_kubernetes.address
    monkeypatch.setenv("AIRFLOW_CONN_TOKYO", json.dumps(connection))
    with Site(spec_of({**changes, "endpoint": "dns"}), folder=cloud.folder) as site:
        findings = WayInStep(site).look().findings
    assert [each.found for each in findings] == ([] if ours else [f"it leads to {bare_kubernetes.address}"])


def bare_kubernetes_classes(server: Any) -> list[str]:
    with Site(ClusterSpec.model_validate(cloud_file()), folder=Path(), kubeconfig=str(server.kubeconfig)) as site:
        return [each["metadata"]["name"] for each in site.kubernetes().list_all(PRIORITY_CLASSES)]

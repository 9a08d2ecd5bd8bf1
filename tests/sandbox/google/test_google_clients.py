"""The clients that people use against the sandbox's GKE: google-cloud-container, discovery, and the provider's hook."""

from __future__ import annotations

import time
from typing import Any

import pytest
import requests
from google.api_core import exceptions
from google.auth.credentials import AnonymousCredentials
from google.cloud import container_v1
from googleapiclient.errors import HttpError

from everstep_sandbox.google.state import NUMBER, PROJECT
from everstep_sandbox.google.testing import RunningGoogle

PARENT = f"projects/{PROJECT}/locations/us-east5-a"


def manager(google: RunningGoogle) -> container_v1.ClusterManagerClient:
    return container_v1.ClusterManagerClient(
        transport="rest", client_options={"api_endpoint": google.address}, credentials=AnonymousCredentials()
    )


def test_life_of_a_cluster_through_the_official_client(google: RunningGoogle, discovered: Any) -> None:
    client = manager(google)
    cluster = container_v1.Cluster(
        name="tokyo",
        initial_node_count=2,
        node_config={"machine_type": "e2-standard-4"},
        addons_config={"high_scale_checkpointing_config": {"enabled": True}},
        workload_identity_config={"workload_pool": f"{PROJECT}.svc.id.goog"},
        release_channel={"channel": container_v1.ReleaseChannel.Channel.REGULAR},
    )
    operation = client.create_cluster(parent=PARENT, cluster=cluster)
    assert operation.operation_type == container_v1.Operation.Type.CREATE_CLUSTER
    assert client.get_cluster(name=f"{PARENT}/clusters/tokyo").status == container_v1.Cluster.Status.PROVISIONING
    wait(client, operation)
    found = client.get_cluster(name=f"{PARENT}/clusters/tokyo")
    assert found.status == container_v1.Cluster.Status.RUNNING
    assert found.addons_config.high_scale_checkpointing_config.enabled
    assert found.release_channel.channel == container_v1.ReleaseChannel.Channel.REGULAR
    assert [(pool.name, pool.initial_node_count) for pool in found.node_pools] == [("default-pool", 2)]

    pool = container_v1.NodePool(
        name="v6e-0",
        initial_node_count=4,
        config={"machine_type": "ct6e-standard-4t", "spot": True},
        placement_policy={"type_": "COMPACT", "tpu_topology": "4x4"},
    )
    wait(client, client.create_node_pool(parent=f"{PARENT}/clusters/tokyo", node_pool=pool))
    name = f"{PARENT}/clusters/tokyo/nodePools/v6e-0"
    made = client.get_node_pool(name=name)
    assert made.config.spot and made.placement_policy.tpu_topology == "4x4"
    # A pool of a cluster with Workload Identity has the metadata server without being told.
    assert made.config.workload_metadata_config.mode == container_v1.WorkloadMetadataConfig.Mode.GKE_METADATA
    with pytest.raises(exceptions.BadRequest, match="0 or 4 nodes"):
        client.set_node_pool_size(request={"name": name, "node_count": 3})
    wait(client, client.set_node_pool_size(request={"name": name, "node_count": 0}))
    assert client.get_node_pool(name=name).initial_node_count == 0
    wait(client, client.delete_node_pool(name=name))
    with pytest.raises(exceptions.NotFound, match="v6e-0"):
        client.get_node_pool(name=name)

    update = container_v1.ClusterUpdate(desired_addons_config={"gcs_fuse_csi_driver_config": {"enabled": True}})
    wait(client, client.update_cluster(request={"name": f"{PARENT}/clusters/tokyo", "update": update}))
    changed = client.get_cluster(name=f"{PARENT}/clusters/tokyo").addons_config
    assert changed.gcs_fuse_csi_driver_config.enabled and changed.high_scale_checkpointing_config.enabled
    wait(client, client.delete_cluster(name=f"{PARENT}/clusters/tokyo"))
    assert list(client.list_clusters(parent=f"projects/{PROJECT}/locations/-").clusters) == []
    assert [call["status"] for call in google.calls() if call["status"] != 400] == [200] * 7


def wait(client: container_v1.ClusterManagerClient, operation: container_v1.Operation) -> None:
    deadline = time.monotonic() + 20
    while operation.status != container_v1.Operation.Status.DONE:
        assert time.monotonic() < deadline, operation
        time.sleep(0.02)
        operation = client.get_operation(name=f"{PARENT}/operations/{operation.name}")
    assert not operation.error.message


def test_hook_of_the_provider(google: RunningGoogle, discovered: Any) -> None:
    from airflow.providers.google.cloud.hooks.kubernetes_engine import GKEHook

    hook = GKEHook.__new__(GKEHook)
    hook.location = "us-east5-a"
    hook._client = manager(google)
    operation = hook.create_cluster(
        cluster={"name": "tokyo", "initial_node_count": 1}, project_id=PROJECT, wait_to_complete=False
    )
    discovered.done({"name": operation.name, "status": "PENDING"})
    assert hook.get_operation(operation.name, project_id=PROJECT).status == container_v1.Operation.Status.DONE
    found = hook.get_cluster(name="tokyo", project_id=PROJECT)
    assert found.status == container_v1.Cluster.Status.RUNNING and "airflow-version" in found.resource_labels


def test_unknown_fields_and_wrong_types_are_refused_as_google_does(discovered: Any) -> None:
    for cluster, told in (
        ({"color": "red"}, "Unknown name \"color\" at 'cluster': Cannot find field."),
        ({"addonsConfig": {"hyperScale": {}}}, "Unknown name \"hyperScale\" at 'cluster.addonsConfig'"),
        ({"initialNodeCount": "many"}, "Invalid value at 'cluster.initialNodeCount'"),
        ({"releaseChannel": {"channel": "SLOW"}}, "Invalid value at 'cluster.releaseChannel.channel'"),
    ):
        with pytest.raises(HttpError) as refused:
            discovered.create(**cluster)
        assert refused.value.status_code == 400 and told in str(refused.value), str(refused.value)


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({"initialClusterVersion": "1.99.0-gke.1"}, 'Master version "1.99.0-gke.1" is unsupported'),
        ({"initialClusterVersion": "1.12"}, 'No valid versions with the prefix "1.12"'),
        ({"name": "Tokyo"}, "cluster.name"),
        ({"initialNodeCount": 0}, "greater than zero"),
        ({"workloadIdentityConfig": {"workloadPool": "other.svc.id.goog"}}, f"{PROJECT}.svc.id.goog"),
    ],
)
def test_bad_clusters_are_refused(discovered: Any, fields: dict[str, Any], told: str) -> None:
    with pytest.raises(HttpError, match=told) as refused:
        discovered.create(**fields)
    assert refused.value.status_code == 400
    assert (
        "clusters" not in discovered.clusters.list(parent=discovered.parent).execute()
        or not (discovered.clusters.list(parent=discovered.parent).execute()["clusters"])
    )


def test_apis_are_refused_until_they_are_enabled(google: RunningGoogle, discovered: Any) -> None:
    usage = discovered.build("serviceusage", "v1").services()
    keys = discovered.build("cloudkms", "v1").projects().locations().keyRings().cryptoKeys()
    google.command("keys", {"name": KEY})
    with pytest.raises(HttpError) as refused:
        keys.getIamPolicy(resource=KEY).execute()
    assert refused.value.status_code == 403
    reasons = [detail.get("reason") for detail in refused.value.error_details]
    assert "SERVICE_DISABLED" in reasons
    assert usage.get(name=f"projects/{PROJECT}/services/cloudkms.googleapis.com").execute()["state"] == "DISABLED"
    answer = discovered.enable("cloudkms.googleapis.com")
    assert answer["done"] and answer["response"]["services"][0]["state"] == "ENABLED"
    enabled = usage.list(parent=f"projects/{PROJECT}", filter="state:ENABLED").execute()["services"]
    assert {"cloudkms.googleapis.com", "container.googleapis.com", "compute.googleapis.com"} <= {
        service["config"]["name"] for service in enabled
    }


KEY = f"projects/{PROJECT}/locations/us-east5/keyRings/ring/cryptoKeys/key"


def test_policy_of_a_key_is_changed_only_by_who_has_read_it(google: RunningGoogle, discovered: Any) -> None:
    discovered.enable("cloudkms.googleapis.com")
    google.command("keys", {"name": KEY})
    keys = discovered.build("cloudkms", "v1").projects().locations().keyRings().cryptoKeys()
    read = keys.getIamPolicy(resource=KEY).execute()
    binding = {"role": "roles/cloudkms.cryptoKeyEncrypterDecrypter", "members": ["serviceAccount:a@b.iam"]}
    changed = keys.setIamPolicy(resource=KEY, body={"policy": {**read, "bindings": [binding]}}).execute()
    assert changed["bindings"] == [binding] and changed["etag"] != read["etag"]
    with pytest.raises(HttpError) as refused:
        keys.setIamPolicy(resource=KEY, body={"policy": {**read, "bindings": []}}).execute()
    assert refused.value.status_code == 409
    assert keys.getIamPolicy(resource=KEY).execute() == changed


def test_number_of_a_project(discovered: Any) -> None:
    projects = discovered.build("cloudresourcemanager", "v3").projects()
    found = projects.get(name=f"projects/{PROJECT}").execute()
    assert (found["name"], found["projectId"]) == (f"projects/{NUMBER}", PROJECT)
    assert projects.get(name=f"projects/{NUMBER}").execute() == found
    with pytest.raises(HttpError, match="it may not exist"):
        projects.get(name="projects/somebody-elses").execute()


def test_callers_are_known_by_their_key_files(google: RunningGoogle, discovered: Any) -> None:
    from google.auth.transport.requests import AuthorizedSession
    from google.oauth2 import service_account

    credentials = service_account.Credentials.from_service_account_file(
        str(google.identity("reader-of-all")), scopes=["https://www.googleapis.com/auth/cloud-platform"]
    )
    session = AuthorizedSession(credentials)
    url = f"{google.address}/v1/{PARENT}/clusters"
    assert session.get(url).status_code == 403
    projects = discovered.build("cloudresourcemanager", "v3").projects()
    read = projects.getIamPolicy(resource=f"projects/{PROJECT}", body={}).execute()
    member = f"serviceAccount:reader-of-all@{PROJECT}.iam.gserviceaccount.com"
    bindings = [{"role": "roles/container.viewer", "members": [member]}]
    projects.setIamPolicy(resource=f"projects/{PROJECT}", body={"policy": {**read, "bindings": bindings}}).execute()
    assert session.get(url).status_code == 200
    assert session.post(url, json={"cluster": {"name": "tokyo", "initialNodeCount": 1}}).status_code == 403
    last = google.calls()[-1]
    assert (last["caller"], last["status"]) == (member.partition(":")[2], 403)
    assert requests.get(url, headers={"Authorization": "Bearer made-up"}, timeout=10).status_code == 401

    # A key that somebody has made up proves nothing.
    forged = google.identity("forged-one").read_text().replace("forged-one", "reader-of-all")
    file = google.directory / "forged.json"
    file.write_text(forged)
    liar = service_account.Credentials.from_service_account_file(str(file), scopes=["x"])
    with pytest.raises(Exception, match="invalid_grant"):
        AuthorizedSession(liar).get(url)

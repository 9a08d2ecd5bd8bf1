"""Commands survive a shell, Terraform survives a parser, and both say what would be sent."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from typing import Any

import hcl2
import pytest

from everstep.provision.cloud import bodies, gcloud, hcl, terraform
from everstep.provision.cloud.policies import OBJECT_USER, Grant, run_folders
from everstep.spec.cluster import ClusterSpec
from everstep.spec.provisioning import BucketSpec

SpecOf = Callable[..., ClusterSpec]
GPU = {
    "accelerator": "nvidia-h100-80gb",
    "machine_type": "a3-highgpu-8g",
    "chips_per_node": 8,
    "nodes_per_slice": 2,
    "slices": 1,
}
TPU_HOST = {"topology": "2x2", "nodes_per_slice": 1}


def flags(command: str) -> dict[str, str]:
    """The flags of a command as the shell hands them over."""
    words = shlex.split(command)
    assert words[0] == "gcloud" and shlex.join(words) == command
    found = (word[2:].partition("=") for word in words if word.startswith("--"))
    return {name: value for name, _, value in found}


def declared(text: str) -> dict[str, Any]:
    """The values of the one resource in a text, without the parser's own marks."""
    (entry,) = hcl2.loads(text)["resource"]
    ((_, named),) = entry.items()
    ((_, values),) = named.items()
    plain: dict[str, Any] = _plain(values)
    return plain


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        kept = {_plain(key): _plain(each) for key, each in value.items() if not key.startswith("__")}
        return {
            key: each[0] if isinstance(each, list) and len(each) == 1 and isinstance(each[0], dict) else each
            for key, each in kept.items()
        }
    if isinstance(value, list):
        return [_plain(each) for each in value]
    if isinstance(value, str) and len(value) > 1 and value[0] == value[-1] == '"':
        return value[1:-1]
    return value


def test_a_new_cluster(spec_of: SpecOf) -> None:
    spec = spec_of(
        {
            "location": "us-east5",
            "gke.version": "1.34.1-gke.1829001",
            "gke.node_locations": ["us-east5-a", "us-east5-b"],
            "gke.system_nodes.count": 3,
            "gke.network": "training",
            "endpoint": "dns",
        }
    )
    said = flags(gcloud.create_cluster(spec))
    assert said["addons"] == "HighScaleCheckpointing,GcsFuseCsiDriver"
    assert said["workload-pool"] == "everstep-sandbox.svc.id.goog"
    assert (said["cluster-version"], said["node-locations"]) == ("1.34.1-gke.1829001", "us-east5-a,us-east5-b")
    assert (said["machine-type"], said["num-nodes"], said["network"]) == ("e2-standard-4", "3", "training")
    assert "enable-dns-access" in said and "subnetwork" not in said

    body = bodies.cluster(spec)
    assert body["addonsConfig"] == {
        "highScaleCheckpointingConfig": {"enabled": True},
        "gcsFuseCsiDriverConfig": {"enabled": True},
    }
    assert body["nodePools"][0]["config"]["workloadMetadataConfig"] == {"mode": "GKE_METADATA"}
    assert body["controlPlaneEndpointsConfig"]["dnsEndpointConfig"]["allowExternalTraffic"] is True

    values = declared(terraform.cluster(spec))
    assert values["addons_config"]["high_scale_checkpointing_config"]["enabled"] is True
    assert values["workload_identity_config"]["workload_pool"] == said["workload-pool"]
    assert values["control_plane_endpoints_config"]["dns_endpoint_config"]["allow_external_traffic"] is True
    assert values["min_master_version"] == "1.34.1-gke.1829001"


@pytest.mark.parametrize(
    ("changes", "body", "command", "declaration"),
    [
        pytest.param(
            {},
            {"placementPolicy": {"type": "COMPACT", "tpuTopology": "2x4"}, "initialNodeCount": 2},
            {"tpu-topology": "2x4", "placement-type": "COMPACT", "num-nodes": "2", "node-locations": "us-east5-a"},
            {"placement_policy": {"type": "COMPACT", "tpu_topology": "2x4"}, "node_count": 2},
            id="a slice of several hosts",
        ),
        pytest.param(
            TPU_HOST,
            {"placementPolicy": None, "initialNodeCount": 1},
            {"tpu-topology": None, "placement-type": None, "num-nodes": "1"},
            {"placement_policy": None, "node_count": 1},
            id="a slice of one host has no topology",
        ),
        pytest.param(
            {"spot": True},
            {"config.spot": True},
            {"spot": ""},
            {"node_config.spot": True},
            id="spot",
        ),
        pytest.param(
            {"reservation": "res-1"},
            {
                "config.reservationAffinity": {
                    "consumeReservationType": "SPECIFIC_RESERVATION",
                    "key": "compute.googleapis.com/reservation-name",
                    "values": ["res-1"],
                }
            },
            {"reservation-affinity": "specific", "reservation": "res-1"},
            {"node_config.reservation_affinity.values": ["res-1"]},
            id="reservation",
        ),
        pytest.param(
            {"flex_start": True},
            {
                "initialNodeCount": 0,
                "config.flexStart": True,
                "config.maxRunDuration": "604800s",
                "autoscaling.totalMaxNodeCount": 2,
                "queuedProvisioning": None,
            },
            {"flex-start": "", "num-nodes": "0", "enable-autoscaling": "", "enable-queued-provisioning": None},
            {"node_config.flex_start": True, "autoscaling.total_max_node_count": 2, "queued_provisioning": None},
            id="flex-start",
        ),
    ],
)
def test_node_pools(
    spec_of: SpecOf,
    changes: dict[str, Any],
    body: dict[str, Any],
    command: dict[str, str | None],
    declaration: dict[str, Any],
) -> None:
    spec = spec_of({f"pools.v6e-2x4.{key}": value for key, value in changes.items()})
    pool = spec.pools["v6e-2x4"]
    sent = bodies.node_pool(spec, pool, "v6e-2x4-0", nodes=0 if pool.flex_start else pool.nodes_per_slice)
    nodes = sent["initialNodeCount"]
    assert {path: at(sent, path) for path in body} == body
    assert sent["config"]["workloadMetadataConfig"] == {"mode": "GKE_METADATA"}
    said = flags(gcloud.create_node_pool(spec, pool, "v6e-2x4-0", nodes=nodes))
    assert {flag: said.get(flag) for flag in command} == command
    assert said["workload-metadata"] == "GKE_METADATA"
    values = declared(terraform.node_pool(spec, pool, "v6e-2x4-0", nodes=nodes))
    assert {path: at(values, path) for path in declaration} == declaration


def at(document: Any, path: str) -> Any:
    for part in path.split("."):
        document = (document or {}).get(part)
    return document


def test_flex_start_is_queued_where_there_is_a_queue(spec_of: SpecOf) -> None:
    spec = spec_of({"pools.v6e-2x4.flex_start": True, "queue": "training"})
    pool = spec.pools["v6e-2x4"]
    assert bodies.node_pool(spec, pool, "x-0", nodes=0)["queuedProvisioning"] == {"enabled": True}
    assert "enable-queued-provisioning" in flags(gcloud.create_node_pool(spec, pool, "x-0", nodes=0))
    assert declared(terraform.node_pool(spec, pool, "x-0", nodes=0))["queued_provisioning"] == {"enabled": True}


def test_gpu_nodes(spec_of: SpecOf) -> None:
    spec = spec_of({"pools": {"h100": GPU}})
    pool = spec.pools["h100"]
    sent = bodies.node_pool(spec, pool, "h100-0", nodes=2)
    assert sent["config"]["accelerators"][0]["acceleratorCount"] == "8" and "placementPolicy" not in sent
    said = flags(gcloud.create_node_pool(spec, pool, "h100-0", nodes=2))
    assert said["accelerator"] == "type=nvidia-h100-80gb,count=8,gpu-driver-version=default"
    values = declared(terraform.node_pool(spec, pool, "h100-0", nodes=2))
    assert values["node_config"]["guest_accelerator"]["type"] == "nvidia-h100-80gb"


def test_buckets() -> None:
    spec = BucketSpec(soft_delete_days=7, kms_key="projects/p/locations/us-east5/keyRings/r/cryptoKeys/k")
    said = flags(gcloud.create_bucket("acme", "p", "us-east5", spec, hierarchical=True))
    assert said["soft-delete-duration"] == "7d" and said["default-encryption-key"] == spec.kms_key
    assert "enable-hierarchical-namespace" in said and "uniform-bucket-level-access" in said
    values = declared(terraform.bucket("acme", "p", "us-east5", spec, hierarchical=True))
    assert values["hierarchical_namespace"]["enabled"] is True
    assert values["soft_delete_policy"]["retention_duration_seconds"] == 604800
    assert values["public_access_prevention"] == "enforced"
    flat = gcloud.create_bucket("acme", "p", "us-east5", BucketSpec(), hierarchical=False)
    assert "enable-hierarchical-namespace" not in flags(flat) and flags(flat)["soft-delete-duration"] == "0"
    assert "clear-soft-delete" in flags(gcloud.soft_delete("acme", 0))


def test_grants_with_conditions_survive_shell_and_parser() -> None:
    grant = Grant(OBJECT_USER, "principal://x/subject/ns/default/sa/default", run_folders("acme", "lm"))
    assert grant.condition is not None
    said = flags(gcloud.grant_on_bucket("acme", grant))
    delimiter, _, pairs = said["condition"][1:].partition("^")
    assert dict(pair.split("=", 1) for pair in pairs.split(delimiter)) == grant.condition.as_dict()
    assert flags(gcloud.grant_on_bucket("acme", Grant(OBJECT_USER, "user:a@b.c")))["condition"] == "None"
    values = declared(terraform.bucket_member("acme", grant, "default/sa/default run lm"))
    assert values["member"] == grant.member
    assert values["condition"]["expression"].replace('\\"', '"') == grant.condition.expression


@pytest.mark.parametrize(
    "text", ["plain", 'a "quoted" one', "a\\b", "line\nbreak", "${not.a.template}", "%{ if x }", "ü"]
)
def test_strings_are_quoted(text: str) -> None:
    values = declared(hcl.resource("kind", "name", {"value": text, "absent": None}))
    # The parser undoes what JSON has in common with HCL, and leaves the signs that keep templates from being read.
    assert values == {"value": text.replace("${", "$${").replace("%{", "%%{")}


@pytest.mark.parametrize("parts", [("acme-ckpt", "default/sa/x run lm"), ("0day",), ("a.b:c",)])
def test_names_in_terraform(parts: tuple[str, ...]) -> None:
    assert hcl2.loads(hcl.resource("kind", hcl.identifier(*parts), {"x": 1}))


def test_shell_signs_stay_in_their_word() -> None:
    assert flags(gcloud.default_key("acme", "projects/x; rm -rf ~"))["default-encryption-key"] == "projects/x; rm -rf ~"

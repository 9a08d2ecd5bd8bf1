"""Cluster files that Google Cloud or Kubernetes would refuse half-way are refused before any call, in plain words."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from everstep.provision.cloud.checks import cloud_findings
from everstep.spec import ClusterSpec, FindingsError
from everstep.spec.findings import errors_of
from everstep.spec.parsing import parse

POOL = {
    "accelerator": "tpu-v6e-slice",
    "topology": "2x4",
    "machine_type": "ct6e-standard-4t",
    "chips_per_node": 4,
    "nodes_per_slice": 2,
    "slices": 2,
}
CONFIGURATION = {"bucket": "acme-checkpoints", "machine_type": "ct6e-standard-4t", "in_memory_volume_size": "200Gi"}
FILE: dict[str, Any] = {
    "name": "tokyo",
    "project": "acme-training",
    "location": "us-east5-a",
    "kubernetes_connection": "tokyo",
    "pools": {"v6e": POOL},
    "checkpoint_configurations": {"v6e": CONFIGURATION},
    "priorities": {"training-high": 2000000},
}
RAM = "checkpoint_configurations.v6e.in_memory_volume_size"
OPTIONS = "checkpoint_configurations.v6e.mount_options"
TOLERATIONS = "checkpoint_configurations.v6e.tolerations"
BUCKET = "checkpoint_configurations.v6e.bucket"

# Key, value, what is said of it.
REFUSED = [
    ("project", "Acme Training", "6 to 30 lower-case letters"),
    ("project", "acme_training", "6 to 30 lower-case letters"),
    ("project", "415012345678", "not its number"),
    ("project", 415012345678, "text (in quotes, if it looks like a number)"),
    ("name", "Tokyo", "beginning with a letter"),
    ("gke.node_locations", "us-east5-a", "a list"),
    ("gke.version", "1.34", "a GKE version such as"),
    ("gke.version", 1.34, "text (in quotes, if it looks like a number)"),
    ("gke.version", "latest", "a GKE version such as"),
    ("gke.version", "v1.34.1-gke.1829001", "a GKE version such as"),
    ("gke.version", "1.32.4-gke.1414999", "at least 1.32.4-gke.1415000"),
    ("gke.system_nodes.machine_type", "", "a machine type"),
    ("gke.autopilot", True, "one of version"),
    ("pools.v6e.machine_type", "ct6e-standard-8t", "chips_per_node 8 on ct6e-standard-8t"),
    ("pools.v6e.machine_type", "ct5p-hightpu-4t", "accelerator tpu-v5p-slice"),
    ("pools.v6e.accelerator", "TPU-v6e-slice", "accelerator tpu-v6e-slice"),
    ("pools.v6e.topology", "4x2", "the smaller side of a topology first, as in 2x4"),
    ("pools.v6e.topology", "2X4", "a topology such as 2x4"),
    ("pools.v6e.zone", "", "some text"),
    ("pools.v6e.reservation", "", "some text"),
    ("pools", {"V6E": POOL}, "called V6E-0"),
    ("pools", {"v6e_2x4": POOL}, "called v6e_2x4-0"),
    ("checkpoint_configurations", {}, "at least one entry"),
    (BUCKET, "gs://acme", "no gs://"),
    (BUCKET, "goog-checkpoints", "does not begin with goog"),
    (BUCKET, "a" * 64, "at most 63 characters"),
    (BUCKET, "acme..checkpoints", "at most 63 characters"),
    (BUCKET, "192.168.5.4", "no IP address"),
    (RAM, "200", "a number and a unit"),
    (RAM, "0Gi", "a RAM disk that holds checkpoints"),
    (RAM, "200k", "a RAM disk that holds checkpoints"),
    (RAM, "-5Gi", "a size such as"),
    (RAM, "200gi", "a size such as"),
    (OPTIONS, ["implicit-dirs,read_ahead_kb=1024"], "one option"),
    (OPTIONS, [""], "one option"),
    (TOLERATIONS, [{"key": "a", "value": "x"}], "no value with operator Exists"),
    (TOLERATIONS, [{"operator": "Equal", "value": "x"}], "a key with operator Equal"),
    (TOLERATIONS, [{"key": "a b"}], "a taint's key"),
    ("checkpoint_configurations", {"V6e": CONFIGURATION}, "a name that Kubernetes takes"),
    ("priorities", {"training_high": 1}, "a name that Kubernetes takes"),
    ("priorities", {"a": True}, "a whole number"),
    ("queue", "Team Queue", "a name that Kubernetes takes"),
    ("kubernetes_connection", "", "some text"),
    ("scratch_bucket", "gs://scratch", "no gs://"),
    ("scratch_bucket", "acme-checkpoints", "takes no backups"),
    ("buckets", {"acme-checkpoints": {"project": "Acme"}}, "6 to 30 lower-case letters"),
    ("jobset.manifest", "https://example.com/jobset.yaml", "a file, so that what is installed can't change"),
    ("jobset.manager_cpu", "one", "text of the form"),
    ("jobset.manager_memory", "1", "a number and a unit"),
    ("jobset.manager_memory_limit", "512Mi", "1Gi, its manager_memory, or more"),
]

# Key, value, what is found where; these take a whole file that is valid.
FOUND = [
    ("location", "US-EAST5-A", "location", "a region such as us-east5"),
    ("location", "us-east5-ab", "location", "a region such as us-east5"),
    ("gke.node_locations", ["us-east4-a"], "gke.node_locations", "zones of the cluster's region"),
    ("gke.node_locations", ["us-east5"], "gke.node_locations", "zones of the cluster's region"),
    ("gke.node_locations", ["us-east5-b"], "gke.node_locations", "us-east5-a among them"),
    ("gke.node_locations", ["us-east5-a", "us-east5-a"], "gke.node_locations", "each zone once"),
    ("pools.v6e.zone", "us-east5", "pools.v6e.zone", "a zone of the cluster's region"),
    ("buckets", {"acme-checkpoints": {"location": "us-east5-a"}}, "bucket acme-checkpoints", "no zone"),
]


def changed(key: str, value: Any) -> dict[str, Any]:
    data = copy.deepcopy(FILE)
    *path, last = key.split(".")
    place = data
    for part in path:
        place = place.setdefault(part, {})
    place[last] = value
    return data


def test_the_file_that_the_others_are_made_of_is_right() -> None:
    assert cloud_findings(parse(ClusterSpec, FILE, "tokyo.yaml")) == []


@pytest.mark.parametrize(("key", "value", "said"), REFUSED)
def test_a_file_is_refused_in_plain_words(key: str, value: Any, said: str) -> None:
    with pytest.raises(FindingsError) as refused:
        parse(ClusterSpec, changed(key, value), "tokyo.yaml")
    told = [f"{finding.expected}" for finding in refused.value.findings]
    assert any(said in each for each in told), told
    # A whole mapping in one line tells nobody anything.
    assert all("{" not in finding.found or finding.found == "{}" for finding in refused.value.findings)


@pytest.mark.parametrize(("key", "value", "where", "said"), FOUND)
def test_places_are_checked_before_anybody_is_asked(key: str, value: Any, where: str, said: str) -> None:
    findings = errors_of(cloud_findings(parse(ClusterSpec, changed(key, value), "tokyo.yaml")))
    assert any(finding.object == where and said in finding.expected for finding in findings), findings


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (RAM, "1.5Gi"),
        ("pools", {}),
        (RAM, "200 GiB"),
        ("project", "example.com:training"),
        ("pools", {"V6E": {**POOL, "node_pools": "v6e"}}),
        ("checkpoint_configurations.v6e.machine_type", "ct5e-hightpu-4t"),
        ("gke.version", "1.32.4-gke.1415000"),
        ("buckets", {"acme-checkpoints": {"location": "NAM4"}}),
        (TOLERATIONS, [{"operator": "Exists", "effect": None}]),
    ],
)
def test_odd_but_right_files_are_taken(key: str, value: Any) -> None:
    assert parse(ClusterSpec, changed(key, value), "tokyo.yaml")

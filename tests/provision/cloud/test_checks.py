"""What is wrong with the cloud half of a cluster file is told before anybody is asked."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from everstep.provision.cloud.checks import cloud_findings, is_near
from everstep.provision.cloud.principals import driver_principal
from everstep.spec.cluster import ClusterSpec
from everstep.spec.findings import FindingsError
from everstep.spec.parsing import parse

SpecOf = Callable[..., ClusterSpec]
KEY = "projects/acme-keys/locations/us-east1/keyRings/r/cryptoKeys/k"


def test_the_smallest_file_is_fine(spec_of: SpecOf) -> None:
    assert cloud_findings(spec_of()) == []


@pytest.mark.parametrize(
    ("changes", "object_", "found"),
    [
        ({"location": "tokyo"}, "location", "'tokyo'"),
        ({"location": "US-EAST5-A"}, "location", "'US-EAST5-A'"),
        ({"name": "a" * 41}, f"cluster {'a' * 41}", "41 characters"),
        ({"gke.node_locations": ["us-east1-b"]}, "gke.node_locations", "'us-east1-b'"),
        ({"pools.v6e-2x4.zone": "us-east1-b"}, "pools.v6e-2x4.zone", "'us-east1-b'"),
        ({"location": "us-east5"}, "pools.v6e-2x4", "no zone, and the cluster has several"),
        ({"gke.node_locations": ["us-east5-a", "us-east5-b"]}, "pools.v6e-2x4", "us-east5-a, us-east5-b"),
        ({"pools.v6e-2x4.node_pools": "a" * 36, "pools.v6e-2x4.slices": 10000}, "pools.v6e-2x4", "of 41 characters"),
        ({"buckets.acme-ckpt.kms_key": KEY}, "bucket acme-ckpt", "a key in us-east1 for a bucket in us-east5"),
    ],
)
def test_mistakes(spec_of: SpecOf, changes: dict[str, Any], object_: str, found: str) -> None:
    findings = cloud_findings(spec_of(changes))
    assert [finding for finding in findings if finding.object == object_ and found in finding.found], findings
    assert all(finding.severity == "error" and finding.expected for finding in findings)


def test_two_pools_with_the_same_node_pools(spec_of: SpecOf) -> None:
    spec = spec_of()
    pool = spec.pools["v6e-2x4"].model_dump(exclude_none=True)
    both = spec_of({"pools": {"other": {**pool, "node_pools": "v6e-2x4"}}})
    assert "which pool 'v6e-2x4' has too" in cloud_findings(both)[0].found


@pytest.mark.parametrize(
    ("changes", "key", "expected"),
    [
        ({"project": "415012345678"}, "project", "the project's id, not its number"),
        ({"gke.version": "1.32.3-gke.1170001"}, "gke.version", "at least 1.32.4-gke.1415000"),
        ({"gke.version": "1.34"}, "gke.version", "a GKE version such as"),
        ({"buckets.acme-ckpt.soft_delete_days": 3}, "buckets.acme-ckpt.soft_delete_days", "0 (off), or 7 to 90"),
        ({"buckets.other.soft_delete_days": 7}, "(the whole file)", "'other' is neither"),
    ],
)
def test_mistakes_that_the_file_itself_refuses(
    spec_of: SpecOf, changes: dict[str, Any], key: str, expected: str
) -> None:
    from everstep.spec.parsing import merge

    base = spec_of().model_dump(mode="json", exclude_unset=True)
    with pytest.raises(FindingsError) as refusal:
        parse(ClusterSpec, merge(base, changes), "tokyo.yaml")
    (finding,) = refusal.value.findings
    assert finding.object == f"tokyo.yaml: {key}" and expected in finding.expected


@pytest.mark.parametrize(
    ("location", "region", "data_locations", "near"),
    [
        ("us-east5", "us-east5", (), True),
        ("US", "us-east5", (), True),
        ("us", "europe-west4", (), False),
        ("EU", "europe-west4", (), True),
        ("eu", "europe-west2", (), False),
        ("ASIA", "asia-northeast1", (), True),
        ("asia", "australia-southeast1", (), False),
        ("NAM4", "us-central1", (), True),
        ("nam4", "us-east5", (), False),
        ("EUR4", "europe-west4", (), True),
        ("us-central1", "us-east5", (), False),
        ("us", "us-east5", ("US-EAST5", "US-EAST4"), True),
        ("us", "us-east5", ("US-CENTRAL1", "US-EAST4"), False),
    ],
)
def test_places_of_buckets(location: str, region: str, data_locations: tuple[str, ...], near: bool) -> None:
    assert is_near(location, region, data_locations) is near


def test_the_driver_s_principal() -> None:
    assert driver_principal("acme-training", 123456789012) == (
        "principal://iam.googleapis.com/projects/123456789012/locations/global/workloadIdentityPools/"
        "acme-training.svc.id.goog/subject/ns/gke-managed-checkpointing/sa/gke-checkpointing-multitier-node"
    )
    assert "workloadIdentityPools/example.com:acme-training.svc" in driver_principal("example.com:acme-training", 1)


@pytest.mark.parametrize(
    ("project", "number", "object_"),
    [
        ("123456789012", "acme-training", "project"),
        ("acme-training", "acme-training", "project number"),
        ("acme-training", "0123", "project number"),
        ("Acme", 1, "project"),
    ],
)
def test_id_and_number_swapped_are_refused(project: str, number: int | str, object_: str) -> None:
    with pytest.raises(FindingsError) as refusal:
        driver_principal(project, number)
    assert object_ in {finding.object for finding in refusal.value.findings}

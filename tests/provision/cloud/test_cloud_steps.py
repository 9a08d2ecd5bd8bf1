"""Provisioning against servers of Google's APIs and Cloud Storage: from nothing, again, on what others have made."""

from __future__ import annotations

import itertools
import json
import threading
import time
import urllib.request
from collections.abc import Callable
from typing import Any

import pytest

from everstep.clients.errors import Conflict
from everstep.clients.google import GoogleCloud
from everstep.provision.changes import Mode
from everstep.provision.cloud import bodies
from everstep.provision.cloud.policies import OBJECT_USER, OBJECT_VIEWER
from everstep.provision.cloud.principals import driver_principal
from everstep.provision.cloud.steps import node_pool_deletion_steps, node_pool_steps, upgrade_steps, version_steps
from everstep.provision.everything import provision
from everstep.spec.cluster import ClusterSpec
from everstep.spec.findings import FindingsError

pytestmark = pytest.mark.sandbox

SpecOf = Callable[..., ClusterSpec]
PLACE = ("everstep-sandbox", "us-east5-a")
DRIVER = driver_principal("everstep-sandbox", 415012345678)
THEIRS = {
    "name": "theirs",
    "initialNodeCount": 1,
    "config": {"machineType": "n2-standard-8", "labels": {"team": "b"}, "resourceLabels": {"cost": "b"}},
}
OLD = {"initialClusterVersion": "1.32.4-gke.1415000"}


def enable(client: GoogleCloud) -> None:
    client.enable_services("everstep-sandbox", ["container.googleapis.com"])


def seed(cloud: Any, **fields: Any) -> dict[str, Any]:
    """A cluster that another team has made."""
    base = {
        "name": "tokyo",
        "location": "us-east5-a",
        "initialClusterVersion": "1.34.1-gke.1829001",
        "resourceLabels": {"team": "b"},
        "nodePools": [THEIRS],
    }
    made: dict[str, Any] = cloud.google.command("clusters", {**base, **fields})
    return made


def test_from_nothing_and_again(cloud: Any, client: GoogleCloud, spec_of: SpecOf, run_of: Any) -> None:
    spec = spec_of({"scratch_bucket": "acme-scratch", "buckets.acme-ckpt.compute_default_viewer": True})
    runs = (run_of(spec, "lm"), run_of(spec, "eval", "evaluator"))

    looked = cloud.run(spec, Mode.CHECK, *runs)
    assert not looked.findings
    assert [f"{change.action} {change.object}" for change in looked.left] == [
        "enable APIs of project everstep-sandbox",
        "create bucket acme-ckpt",
        "create bucket acme-scratch",
        "create cluster tokyo",
        "create node pool v6e-2x4-0",
        "create node pool v6e-2x4-1",
        "grant bucket acme-ckpt",
        "grant bucket acme-scratch",
    ]
    assert all(change.commands and change.terraform for change in looked.left)
    assert cloud.mutations() == [], "a check changes nothing"

    done = cloud.run(spec, Mode.APPLY, *runs)
    assert len(done.done) == 8
    cluster = client.cluster(*PLACE, "tokyo")
    assert cluster is not None and cluster["status"] == "RUNNING"
    assert cluster["addonsConfig"]["highScaleCheckpointingConfig"] == {"enabled": True}
    assert cluster["addonsConfig"]["gcsFuseCsiDriverConfig"] == {"enabled": True}
    assert cluster["workloadIdentityConfig"] == {"workloadPool": "everstep-sandbox.svc.id.goog"}
    pools = {pool["name"]: pool for pool in client.node_pools(*PLACE, "tokyo")}
    assert set(pools) == {"default-pool", "v6e-2x4-0", "v6e-2x4-1"}
    assert pools["v6e-2x4-1"]["placementPolicy"] == {"type": "COMPACT", "tpuTopology": "2x4"}
    assert client.node_pool_size(pools["v6e-2x4-1"]) == 2

    bucket = client.bucket("acme-ckpt")
    assert bucket is not None and bucket["hierarchicalNamespace"] == {"enabled": True}
    assert bucket["iamConfiguration"]["publicAccessPrevention"] == "enforced"
    assert bucket["softDeletePolicy"]["retentionDurationSeconds"] == "0"
    assert "hierarchicalNamespace" not in (client.bucket("acme-scratch") or {})

    bindings = client.bucket_policy("acme-ckpt")["bindings"]
    assert {"role": OBJECT_USER, "members": [DRIVER]} in bindings
    viewer = {"role": OBJECT_VIEWER, "members": ["serviceAccount:415012345678-compute@developer.gserviceaccount.com"]}
    assert viewer in bindings
    conditional = {each["condition"]["title"]: each["members"] for each in bindings if "condition" in each}
    account = DRIVER.replace("ns/gke-managed-checkpointing/sa/gke-checkpointing-multitier-node", "ns/default/sa/{}")
    lm, evaluator = [account.format("default")], [account.format("evaluator")]
    assert conditional == {"run lm": lm, "run lm, reading": lm, "run eval": evaluator, "run eval, reading": evaluator}

    before = cloud.mutations()
    again = cloud.run(spec, Mode.APPLY, *runs)
    assert again.done == [] and not again.findings
    assert cloud.mutations() == before, "a second run makes no mutating call"
    assert not cloud.run(spec, Mode.CHECK, *runs).left


def test_an_existing_cluster_gets_what_it_lacks_and_keeps_the_rest(
    cloud: Any, client: GoogleCloud, spec_of: SpecOf
) -> None:
    enable(client)
    ours = {
        "name": "v6e-2x4-0",
        "initialNodeCount": 0,
        "config": {"machineType": "ct6e-standard-4t"},
        "placementPolicy": {"type": "COMPACT", "tpuTopology": "2x4"},
    }
    before = seed(cloud, nodePools=[THEIRS, ours])
    client.create_bucket(
        "everstep-sandbox",
        {
            "name": "acme-ckpt",
            "location": "us-east5",
            "labels": {"team": "b"},
            "hierarchicalNamespace": {"enabled": True},
            "iamConfiguration": {"uniformBucketLevelAccess": {"enabled": True}},
        },
    )
    theirs = [
        {
            "role": OBJECT_USER,
            "members": ["user:them@example.com"],
            "condition": {"title": "t", "description": "d", "expression": 'resource.name.startsWith("x")'},
        },
        {"role": "roles/storage.admin", "members": ["group:admins@example.com", "user:them@example.com"]},
    ]
    policy = client.bucket_policy("acme-ckpt")
    kept = [*policy["bindings"], *theirs]
    client.set_bucket_policy("acme-ckpt", {**policy, "version": 3, "bindings": kept})
    bucket = client.bucket("acme-ckpt")

    report = cloud.run(spec_of({"pools.v6e-2x4.slices": 1}), Mode.APPLY)
    assert [(one["action"], one["object"], one["wanted"]) for one in report.done if "cluster" in one["object"]] == [
        ("update", "cluster tokyo", "workload pool everstep-sandbox.svc.id.goog"),
        ("update", "cluster tokyo", "on"),
    ], "Workload Identity comes first"
    pool_changes = [one for one in report.done if one["object"] == "node pool v6e-2x4-0"]
    assert [one["action"] for one in pool_changes] == ["update", "resize"]
    assert "recreates all its nodes" in pool_changes[0]["note"]

    after = client.cluster(*PLACE, "tokyo")
    assert after is not None
    changed = {"addonsConfig", "workloadIdentityConfig", "nodePools", "etag", "currentNodeCount", "status"}
    assert _text(after, changed) == _text(before, changed)
    for key, value in before["addonsConfig"].items():
        assert after["addonsConfig"][key] == value
    pools = {pool["name"]: pool for pool in after["nodePools"]}
    assert json.dumps(pools["theirs"]) == json.dumps(before["nodePools"][0])
    assert client.node_pool_size(pools["v6e-2x4-0"]) == 2
    bindings = client.bucket_policy("acme-ckpt")["bindings"]
    assert json.dumps(bindings[: len(kept)]) == json.dumps(kept)
    assert bindings[len(kept) :] == [{"role": OBJECT_USER, "members": [DRIVER]}]
    assert client.bucket("acme-ckpt") == bucket, "what the cluster file does not speak of stays, soft delete too"
    notes = [finding for finding in report.findings if finding.object == "bucket acme-ckpt"]
    assert any("billed in full for 7 days" in finding.found for finding in notes)


def _text(document: dict[str, Any], without: set[str]) -> str:
    return json.dumps({key: value for key, value in document.items() if key not in without})


@pytest.mark.parametrize(
    ("cluster", "changes", "object_", "found", "remedy"),
    [
        ({"autopilot": {"enabled": True}}, {}, "cluster tokyo", "Autopilot", ""),
        ({"initialClusterVersion": "1.32.3-gke.1170000"}, {}, "cluster tokyo", "version 1.32.3-gke.1170000", "upgrade"),
        ({"initialClusterVersion": "1.31.13-gke.1023000"}, {}, "cluster tokyo", "1.31.13", "--cluster-version=1.32.4"),
        ({"status": "ERROR", "statusMessage": "no quota"}, {}, "cluster tokyo", "ERROR: no quota", "clusters delete"),
        ({"status": "STOPPING"}, {}, "cluster tokyo", "being deleted", "wait"),
        (
            {"nodePools": [{**THEIRS, "name": "v6e-2x4-0"}]},
            {},
            "node pool v6e-2x4-0",
            "machine type n2-standard-8",
            "node-pools delete",
        ),
        (
            {
                "nodePools": [
                    {
                        "name": "v6e-2x4-1",
                        "config": {"machineType": "ct6e-standard-4t", "spot": True},
                        "placementPolicy": {"type": "COMPACT", "tpuTopology": "4x4"},
                    }
                ]
            },
            {},
            "node pool v6e-2x4-1",
            "topology 4x4",
            "node_pools",
        ),
        (None, {"gke.version": "1.40.0-gke.1"}, "gke.version", "does not offer", ""),
        (None, {"buckets.acme-ckpt.location": "europe-west4"}, "bucket acme-ckpt", "europe-west4", ""),
    ],
)
def test_refusals_cost_nothing(
    cloud: Any,
    client: GoogleCloud,
    spec_of: SpecOf,
    cluster: dict[str, Any] | None,
    changes: dict[str, Any],
    object_: str,
    found: str,
    remedy: str,
) -> None:
    enable(client)
    if cluster is not None:
        seed(cloud, **cluster)
    before = len(cloud.google.calls())
    looked = cloud.run(spec_of(changes), Mode.CHECK)
    (finding,) = [one for one in looked.findings if one.object == object_ and found in one.found]
    assert finding.severity == "error" and remedy in finding.remedy and finding.expected
    with pytest.raises(FindingsError) as refusal:
        cloud.run(spec_of(changes), Mode.APPLY)
    assert finding in refusal.value.findings
    # APIs that still lacked are enabled, which costs nothing; neither cluster nor node pool is touched.
    assert [call["path"] for call in cloud.google.calls()[before:] if "services" not in call["path"]] == []


def test_buckets_that_will_not_do(cloud: Any, client: GoogleCloud, spec_of: SpecOf) -> None:
    client.create_bucket("everstep-sandbox", {"name": "acme-ckpt", "location": "us-east5"})
    client.create_bucket(
        "everstep-sandbox",
        {
            "name": "far",
            "location": "asia-northeast1",
            "hierarchicalNamespace": {"enabled": True},
            "iamConfiguration": {"uniformBucketLevelAccess": {"enabled": True}},
        },
    )
    flat = cloud.run(spec_of(), Mode.CHECK).findings
    assert any("no hierarchical namespace" in one.found and "can't be turned on later" in one.expected for one in flat)
    far = cloud.run(spec_of({"checkpoint_configurations.v6e.bucket": "far"}), Mode.CHECK).findings
    (finding,) = [one for one in far if "asia-northeast1" in one.found]
    assert finding.severity == "warning" and "billed as transfer" in finding.expected
    said = {"checkpoint_configurations.v6e.bucket": "far", "buckets.far.location": "us-east5"}
    (finding,) = [one for one in cloud.run(spec_of(said), Mode.CHECK).findings if "asia-northeast1" in one.found]
    assert finding.severity == "error" and "can't be moved" in finding.expected


def test_soft_delete_is_set_where_the_file_says_so(cloud: Any, client: GoogleCloud, spec_of: SpecOf) -> None:
    spec = spec_of({"buckets.acme-ckpt.soft_delete_days": 7})
    cloud.run(spec, Mode.APPLY)
    (change,) = cloud.run(spec_of({"buckets.acme-ckpt.soft_delete_days": 0}), Mode.CHECK).left
    assert change.found == "soft delete 7 days" and "no longer billed" in change.note
    cloud.run(spec_of({"buckets.acme-ckpt.soft_delete_days": 0}), Mode.APPLY)
    assert (client.bucket("acme-ckpt") or {})["softDeletePolicy"]["retentionDurationSeconds"] == "0"


def test_what_is_under_way_is_joined(cloud: Any, client: GoogleCloud, spec_of: SpecOf) -> None:
    enable(client)
    seed(cloud)
    operation = client.update_cluster(*PLACE, "tokyo", {"desiredLoggingService": "none"})
    with cloud.site(spec_of()) as site:
        from everstep.provision.cloud.steps import cluster_steps

        look = cluster_steps(site)[1].look()
        assert look.waiting is not None and look.changes == ()
        assert look.waiting.arguments["name"].endswith(operation["name"])
    report = cloud.run(spec_of(), Mode.APPLY)
    assert [one["action"] for one in report.done if one["object"] == "cluster tokyo"] == ["update", "update"]


def test_a_failed_operation_says_why_and_does_not_stop_a_new_try(
    cloud: Any, client: GoogleCloud, spec_of: SpecOf
) -> None:
    cloud.google.command("failures", {"match": "CREATE_NODE_POOL .*v6e-2x4-1", "kind": "stockout"})
    with pytest.raises(FindingsError) as failure:
        cloud.run(spec_of(), Mode.APPLY)
    assert "GCE_STOCKOUT" in str(failure.value) and "reservation, flex-start or another zone" in str(failure.value)
    assert {pool["name"]: pool["status"] for pool in client.node_pools(*PLACE, "tokyo")}["v6e-2x4-1"] == "ERROR"
    report = cloud.run(spec_of(), Mode.APPLY)
    assert [f"{one['action']} {one['object']}" for one in report.done][:2] == [
        "delete node pool v6e-2x4-1",
        "create node pool v6e-2x4-1",
    ]
    assert not cloud.run(spec_of(), Mode.CHECK).left


def test_a_node_pool_in_error_whose_machines_run_is_never_deleted(
    cloud: Any, client: GoogleCloud, spec_of: SpecOf
) -> None:
    enable(client)
    ours = bodies.node_pool(spec_of(), spec_of().pools["v6e-2x4"], "v6e-2x4-0", nodes=2)
    seed(cloud, nodePools=[THEIRS, {**ours, "status": "ERROR"}])
    with pytest.raises(FindingsError, match="while 2 of its machines run"):
        cloud.run(spec_of(), Mode.APPLY)
    assert [pool["name"] for pool in client.node_pools(*PLACE, "tokyo")] == ["theirs", "v6e-2x4-0"]


def test_what_deletes_backups_behind_everybodys_back_is_told(cloud: Any, client: GoogleCloud, spec_of: SpecOf) -> None:
    rules = [
        {"action": {"type": "Delete"}, "condition": {"age": 30}},
        {"action": {"type": "Delete"}, "condition": {"numNewerVersions": 3}},
        {"action": {"type": "SetStorageClass", "storageClass": "NEARLINE"}, "condition": {"age": 30}},
    ]
    bucket = bodies.bucket("acme-ckpt", spec_of().bucket("acme-ckpt"), "us-east5", hierarchical=True)
    client.create_bucket("everstep-sandbox", {**bucket, "lifecycle": {"rule": rules}})
    told = [one for one in cloud.run(spec_of(), Mode.CHECK).findings if "lifecycle" in one.found]
    assert [str(one.severity) for one in told] == ["warning"] and "age 30" in told[0].found
    assert told[0].remedy.endswith("--clear-lifecycle")


@pytest.mark.parametrize(
    ("key", "found", "remedy"),
    [
        ({"state": "DISABLED"}, "its primary version 1 is DISABLED", "gcloud kms keys versions enable 1 --key=k"),
        (None, "there is none", "leave kms_key out"),
    ],
)
def test_a_key_that_can_not_encrypt_costs_nothing(
    cloud: Any, client: GoogleCloud, spec_of: SpecOf, key: dict[str, Any] | None, found: str, remedy: str
) -> None:
    client.enable_services("everstep-sandbox", ["cloudkms.googleapis.com", "container.googleapis.com"])
    name = "projects/everstep-sandbox/locations/us-east5/keyRings/r/cryptoKeys/k"
    if key is not None:
        cloud.google.command("keys", {"name": name, **key})
    with pytest.raises(FindingsError) as refused:
        cloud.run(spec_of({"buckets.acme-ckpt.kms_key": name}), Mode.APPLY)
    (finding,) = [one for one in refused.value.findings if one.object == f"key {name}"]
    assert found in finding.found and remedy in finding.remedy
    assert client.bucket("acme-ckpt") is None and client.cluster(*PLACE, "tokyo") is None


def test_a_failed_update_is_made_by_a_new_try(cloud: Any, client: GoogleCloud, spec_of: SpecOf) -> None:
    enable(client)
    seed(cloud)
    cloud.google.command("failures", {"match": "UPDATE_CLUSTER", "message": "Internal error, they say."})
    with pytest.raises(FindingsError, match=r"Internal error, they say\."):
        cloud.run(spec_of(), Mode.APPLY)
    assert cloud.run(spec_of(), Mode.APPLY).done
    assert not cloud.run(spec_of(), Mode.CHECK).left


@pytest.mark.parametrize("lost", [{"status": 503}, {"disconnect": True}])
def test_lost_answers_do_not_make_things_twice(
    cloud: Any, client: GoogleCloud, spec_of: SpecOf, lost: dict[str, Any]
) -> None:
    for match in ("POST .*/clusters$", "POST .*/nodePools$", "POST .*batchEnable", "GET .*/serverConfig"):
        cloud.google.command("faults", {"match": match, "after": True, **lost})
    for match in (r"POST .*/b\?", "PUT .*/iam", "GET .*/iam"):
        fault = json.dumps({"match": match, "after": True, **lost}).encode()
        urllib.request.urlopen(urllib.request.Request(f"{cloud.storage}/_sandbox/faults", fault, method="POST")).close()
    cloud.run(spec_of(), Mode.APPLY)
    assert not cloud.run(spec_of(), Mode.CHECK).left
    made = [call["path"] for call in cloud.google.calls() if call["status"] == 200 and "services" not in call["path"]]
    assert sorted(path.rpartition("/")[2] for path in made) == ["clusters", "nodePools", "nodePools"]


def test_rivals_lose_no_binding(cloud: Any, client: GoogleCloud, spec_of: SpecOf) -> None:
    client.create_bucket(
        "everstep-sandbox",
        {
            "name": "acme-ckpt",
            "location": "us-east5",
            "hierarchicalNamespace": {"enabled": True},
            "iamConfiguration": {"uniformBucketLevelAccess": {"enabled": True}},
        },
    )
    stop = threading.Event()
    added: list[str] = []

    def rival() -> None:
        with cloud.site(spec_of()) as site:
            google = site.google()
            for number in itertools.count():
                if stop.is_set():
                    return
                policy = google.bucket_policy("acme-ckpt")
                member = f"user:rival-{number}@example.com"
                policy["bindings"].append({"role": OBJECT_VIEWER, "members": [member]})
                try:
                    google.set_bucket_policy("acme-ckpt", policy)
                    added.append(member)
                except Conflict:
                    continue
                time.sleep(0.02)

    thread = threading.Thread(target=rival)
    thread.start()
    try:
        cloud.run(spec_of(), Mode.APPLY)
    finally:
        stop.set()
        thread.join()
    members = [each for binding in client.bucket_policy("acme-ckpt")["bindings"] for each in binding["members"]]
    assert members.count(DRIVER) == 1
    assert added and {each: members.count(each) for each in added if members.count(each) != 1} == {}


def test_keys_of_ones_own(cloud: Any, client: GoogleCloud, spec_of: SpecOf) -> None:
    client.enable_services("everstep-sandbox", ["cloudkms.googleapis.com"])
    key = "projects/everstep-sandbox/locations/us-east5/keyRings/r/cryptoKeys/k"
    cloud.google.command("keys", {"name": key})
    theirs = {"role": "roles/cloudkms.admin", "members": ["user:them@example.com"]}
    policy = client.key_policy(key)
    client.set_key_policy(key, {**policy, "bindings": [theirs]})
    report = cloud.run(spec_of({"buckets.acme-ckpt.kms_key": key}), Mode.APPLY)
    actions = [f"{one['action']} {one['object']}" for one in report.done]
    assert actions.index(f"grant key {key}") < actions.index("create bucket acme-ckpt")
    agent = f"serviceAccount:{client.storage_agent('everstep-sandbox')}"
    assert client.key_policy(key)["bindings"] == [
        theirs,
        {"role": "roles/cloudkms.cryptoKeyEncrypterDecrypter", "members": [agent]},
    ]
    assert (client.bucket("acme-ckpt") or {})["encryption"] == {"defaultKmsKeyName": key}
    assert not cloud.run(spec_of({"buckets.acme-ckpt.kms_key": key}), Mode.CHECK).left


def test_node_pools_are_emptied_filled_and_deleted_when_asked(cloud: Any, client: GoogleCloud, spec_of: SpecOf) -> None:
    spec = spec_of()
    cloud.run(spec, Mode.APPLY)

    def sizes() -> dict[str, int]:
        return {pool["name"]: client.node_pool_size(pool) for pool in client.node_pools(*PLACE, "tokyo")}

    with cloud.site(spec) as site:
        report = provision(site, node_pool_steps(site, size="zero", force=True), Mode.APPLY, print)
        assert "loses what their RAM disks hold" in report.done[0]["note"]
        assert sizes() == {"default-pool": 2, "v6e-2x4-0": 0, "v6e-2x4-1": 0}
        report = provision(site, node_pool_steps(site, pools=("v6e-2x4",)), Mode.APPLY, print)
        assert [one["action"] for one in report.done] == ["resize", "resize"]
        assert sizes() == {"default-pool": 2, "v6e-2x4-0": 2, "v6e-2x4-1": 2}
        provision(site, node_pool_deletion_steps(site, ("v6e-2x4",), force=True), Mode.APPLY, print)
        assert sizes() == {"default-pool": 2}
        with pytest.raises(FindingsError, match="one of v6e-2x4"):
            node_pool_steps(site, pools=("v5p",))


def test_an_upgrade_goes_from_the_control_plane_to_our_nodes(cloud: Any, client: GoogleCloud, spec_of: SpecOf) -> None:
    spec = spec_of({"gke.version": "1.33.5-gke.1308000", "pools.v6e-2x4.slices": 1})
    cloud.run(spec, Mode.APPLY)
    with cloud.site(spec) as site:
        steps = upgrade_steps(site, "1.34.1-gke.1829001")
        report = provision(site, steps, Mode.APPLY, print)
        assert [one["object"] for one in report.done] == ["cluster tokyo", "node pool v6e-2x4-0"]
        versions = {pool["name"]: pool["version"] for pool in client.node_pools(*PLACE, "tokyo")}
        assert versions == {"default-pool": "1.33.5-gke.1308000", "v6e-2x4-0": "1.34.1-gke.1829001"}
        assert provision(site, upgrade_steps(site, "1.32.9-gke.1130000"), Mode.APPLY, print).done == []


@pytest.mark.parametrize(
    ("version", "found", "expected"),
    [
        ("1.34", "'1.34'", "a GKE version such as"),
        ("1.33.6-gke.1", "does not offer in us-east5-a", "one of 1.33.5-gke.1308000, 1.32.9-gke.1130000"),
        ("1.34.1-gke.1829001", "skips a minor version of 1.32.4-gke.1415000", "one of 1.33.5-gke.1308000"),
    ],
)
def test_a_version_that_gke_would_refuse_is_known_before_anything_is_prepared(
    cloud: Any, client: GoogleCloud, spec_of: SpecOf, version: str, found: str, expected: str
) -> None:
    cloud.google.command("clusters", {"name": "tokyo", "location": "us-east5-a", **OLD})
    enable(client)
    before = cloud.mutations()
    with cloud.site(spec_of()) as site:
        for steps in (version_steps, upgrade_steps):
            with pytest.raises(FindingsError) as refused:
                provision(site, steps(site, version), Mode.APPLY, print)
            (finding,) = refused.value.findings
            assert found in finding.found and expected in finding.expected
        # What the cluster has already needs nobody's offer.
        assert provision(site, version_steps(site, "1.31.0-gke.7"), Mode.APPLY, print).findings == []
    assert cloud.mutations() == before


def test_without_a_cluster_there_is_nothing_to_upgrade(cloud: Any, client: GoogleCloud, spec_of: SpecOf) -> None:
    enable(client)
    with cloud.site(spec_of()) as site, pytest.raises(FindingsError, match="a cluster that exists"):
        provision(site, version_steps(site, "1.35.0-gke.2398000"), Mode.APPLY, print)

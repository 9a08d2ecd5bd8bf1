"""Bundles: the same diagnoses as live, whole or not there, and no secret in them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.doctor.clinic import Clinic, flat

from everstep.clients.resources import JOBSETS, PODS
from everstep.doctor import bundle
from everstep.doctor.diagnose import blind_spots, diagnose
from everstep.doctor.evidence import Evidence, Target
from everstep.doctor.redaction import REMOVED, redact, redact_text
from everstep.launch import labels, manifest
from everstep.spec.cluster import ClusterSpec
from everstep.spec.findings import FindingsError
from everstep.spec.training import TrainingSpec

# Each of these stands somewhere below, and must not come out anywhere.
WORD = "correcthorsebattery"
SECRETS = {
    "word": WORD,
    "hugging": "hf_QwErTyUiOpAsDfGhJkLz",
    "jwt": "eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiIxMjM0In0.c2lnbmF0dXJlLXg",
    "oauth": "ya29.a0AfH6SMBx-notreal_token",
    "password": "correct-horse-battery",
    "wandb": "0f1e2d3c4b5a69788796a5b4c3d2e1f001234567",
    "apikey": "AIzaSyA-not-a-real-key-0123456789abcdef",
    "hmac": "GOOG1EABCDEFGHIJKLMNOPQRSTUV",
    "pem": "MIIEvQIBADANBgkqhkiG9w0BAQEFAASC",
    "signed": "5f3c9a7be01d8842aa",
    "url": "s3cr3tinurl",
    "flag": "sw0rdfish-flag",
    "github": "ghp_0123456789abcdefghijABCDEFGHIJ",
    "docker": "eyJhdXRocyI6eyJyZWcuaW8iOnsiYXV0aCI6ImRYTmxjZz09In19fQ",
    "odd": "Zx81Qm77Lk02Pp93Vt56Wd48",
}
PEM = f"-----BEGIN PRIVATE KEY-----\n{SECRETS['pem']}\n-----END PRIVATE KEY-----\n"
SIGNED = (
    "https://storage.googleapis.com/b/o?X-Goog-Algorithm=GOOG4-RSA-SHA256&X-Goog-Credential=me%40acme"
    f"&X-Goog-Signature={SECRETS['signed']}"
)
KEY_FILE = json.dumps({"type": "service_account", "private_key_id": SECRETS["wandb"], "private_key": PEM})


@pytest.mark.parametrize(
    "text",
    [
        f"Authorization: Bearer {SECRETS['oauth']}",
        f"token={SECRETS['odd']}",
        f"login with --password {SECRETS['password']} please",
        f"export WANDB_API_KEY={SECRETS['wandb']}",
        f'"password": "{SECRETS["password"]}"',
        f"DB at postgres://trainer:{SECRETS['url']}@db:5432/x",
        f"fetching {SIGNED}",
        f"key {SECRETS['apikey']} refused",
        f"{SECRETS['hugging']} is your token",
        f"pulled with {SECRETS['github']} and {SECRETS['hmac']}",
        f"id token {SECRETS['jwt']} expired",
        KEY_FILE,
        json.dumps({"env": [{"name": "HF_TOKEN", "value": SECRETS["hugging"]}]}),
        json.dumps(json.dumps({"env": [{"name": "MY_SECRET", "value": SECRETS["password"]}]})),
        json.dumps({"env": [{"value": WORD, "name": "MY_SECRET"}]}),
        f"env:\n- name: HF_TOKEN\n  value: {WORD}\n",
        f"users:\n- name: me\n  user:\n    username: admin\n    password: {WORD}\n",
        f"users:\n- name: me\n  user:\n    client-key-data: {WORD}\n",
        f'unauthorized: {{"username":"me","password":"{WORD}"}}',
        json.dumps(json.dumps({"password": WORD, "steps": 1})),
        f"export HF_TOKEN='one {WORD}' && python train.py",
        f"curl -H 'X-Api-Key: {WORD}' -u admin:{WORD} https://acme.dev",
        f"WANDB_API_KEY: {WORD}",
        f"INFO using token '{WORD}'",
        f"redis://:{WORD}@db/0 and https://{WORD}@github.com/acme and http://me:p@{WORD}@proxy:3128",
        f"https://hooks.slack.com/services/T0001/B0002/{WORD}",
        f"Set-Cookie: sid=1; other={WORD}",
        f"{'A1' * 20}\n{SECRETS['pem']}\n-----END PRIVATE KEY-----",
    ],
)
def test_secrets_leave_texts(text: str) -> None:
    cleaned = redact_text(text)
    assert not [name for name, secret in SECRETS.items() if secret in cleaned], cleaned
    assert REMOVED in cleaned


@pytest.mark.parametrize(
    "text",
    [
        "failed: Unable to generate access token; Permission 'iam.serviceAccounts.getAccessToken' denied",
        "token source: compute: cannot fetch token from metadata server",
        "KeyError: 'backup-interval-minutes'",
        "Permission 'storage.objects.list' denied on resource (or it may not exist)., forbidden",
        'secret "absent" not found',
        'error looking up service account default/nobody: serviceaccount "nobody" not found',
        "gs://bucket/lm/2026-11-01_10-00/lm-s40-n0-w0.meta",
        "author: me; tokens per second: 1234567; step 100 restored from D" + "0a" * 32 + ".data",
        "pulled europe-docker.pkg.dev/acme/train@sha256:" + "0a" * 32,
    ],
)
def test_what_a_diagnosis_needs_stays(text: str) -> None:
    assert redact_text(text) == text


def test_references_to_secrets_stay_and_values_go() -> None:
    given = {
        "imagePullSecrets": [{"name": "registry"}],
        "automountServiceAccountToken": False,
        "env": [
            {"name": "A", "valueFrom": {"secretKeyRef": {"name": "s", "key": "token"}}},
            {"name": "EVERSTEP_RUN_URL", "value": "gs://b/lm"},
            {"name": "STEPS", "value": "100"},
            {"name": "EVERSTEP_TOKEN", "value": WORD},
        ],
        "args": ["--steps=10", "--api-key", SECRETS["flag"], f"--token={SECRETS['flag']}"],
        "serviceAccountToken": {"expirationSeconds": 3600, "path": "token"},
    }
    cleaned = redact(given)
    assert cleaned["imagePullSecrets"] == given["imagePullSecrets"]
    assert cleaned["env"][:2] == given["env"][:2]  # type: ignore[index]
    # Whatever others give their containers is nobody's business here.
    assert [each["value"] for each in cleaned["env"][2:]] == [REMOVED, REMOVED]
    assert cleaned["args"] == ["--steps=10", "--api-key", REMOVED, f"--token={REMOVED}"]
    assert cleaned["serviceAccountToken"] == given["serviceAccountToken"]


@pytest.mark.parametrize(
    "given",
    [
        {"name": "trainer", "image": "x", "command": ["bash", "-c", f"echo {WORD} | docker login"]},
        {"name": "trainer", "image": "x", "args": ["login", WORD]},
        {"annotations": {"acme.dev/note": WORD, "vault.hashicorp.com/agent-inject-token": WORD}},
        {"annotations": {"kubectl.kubernetes.io/last-applied-configuration": WORD}},
        {"kind": "Secret", "data": {"x": WORD}, "stringData": {"y": WORD}},
        {"kind": "ConfigMap", "data": {"config": f"anything {WORD}"}},
        {"auth": {"password": [WORD]}, "tokens": [WORD], "credentials": {"value": WORD}},
        {"httpHeaders": [{"name": "X-Whatever", "value": WORD}]},
        {"csi": {"volumeAttributes": {"accessKey": WORD}}, "flexVolume": {"options": {"passwd": WORD}}},
        {"config": {"diskSizeGb": 100, "metadata": {"startup-script": WORD}}},
        {"name": "MYSQL_PWD", "value": WORD},
        {"name": "SENTRY_DSN", "value": f"https://{WORD}@ingest.sentry.io/1"},
        {"message": f"wandb login {WORD}0123456789abcdefg"},
    ],
)
def test_nothing_comes_out_of_where_people_put_what_they_like(given: dict[str, Any]) -> None:
    cleaned = json.dumps(redact(given))
    assert WORD not in cleaned and REMOVED in cleaned


def test_what_rules_read_stays() -> None:
    given = {
        "annotations": {
            labels.EXCLUSIVE_TOPOLOGY: labels.NODE_POOL,
            labels.SPEC_HASH: "0a1b2c3d4e5f60718293a4b5c6d7e8f9",
        },
        "containers": [{"name": "trainer", "image": "reg/x:1", "command": ["python", "a.py"]}],
        "volumes": [{"secret": {"secretName": "s", "items": [{"key": "k", "path": "p"}]}}],
        "tolerations": [{"key": "google.com/tpu", "operator": "Exists"}],
    }
    cleaned = redact(given)
    assert cleaned["containers"][0]["command"] == ["python", REMOVED]
    assert {**cleaned, "containers": given["containers"]} == given


def test_a_bundle_is_refused_where_something_is_and_where_none_is(tmp_path: Path) -> None:
    evidence = Evidence(Target(run="lm"))
    written = bundle.write(evidence, tmp_path / "b")
    with pytest.raises(FindingsError, match="there is something already"):
        bundle.write(evidence, written)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["b"]
    with pytest.raises(FindingsError, match="everstep collect"):
        bundle.read(tmp_path)
    manifest_file = written / bundle.MANIFEST
    newer = json.loads(manifest_file.read_text()) | {"version": 99}
    manifest_file.write_text(json.dumps(newer))
    with pytest.raises(FindingsError, match="update everstep"):
        bundle.read(written)


def test_a_broken_part_of_a_bundle_is_a_blind_spot(tmp_path: Path) -> None:
    evidence = Evidence(Target(run="lm"), objects={"pods": [], "nodes": []})
    written = bundle.write(evidence, tmp_path / "b")
    (written / "objects" / "pods.json").write_text("{")
    found = bundle.read(written)
    assert not found.saw("pods") and found.saw("nodes")
    assert "no list of objects" in found.unread["pods"]


def test_odd_evidence_silences_no_other_rule(tmp_path: Path) -> None:
    place = bundle.write(
        Evidence(Target(cluster="tokyo"), objects={"definitions": [], "nodes": []}), tmp_path / "bundle"
    )
    assert oct(place.stat().st_mode & 0o777) == "0o700"
    (place / "objects" / "pods.json").write_text('[{"spec": 5}, {"metadata": null}]')
    evidence = bundle.read(place)
    assert "jobset-missing" in [each.symptom for each in diagnose(evidence)]
    assert any("the rule can't read it" in spot for spot in blind_spots(evidence))


@pytest.mark.parametrize(
    "manifest",
    [
        {"taken": "yesterday", "target": {}},
        {"taken": 5, "target": {}},
        {"taken": "2026-11-30T10:00:00", "target": {"buckets": 3}},
    ],
)
def test_a_manifest_that_nobody_wrote_is_refused(tmp_path: Path, manifest: dict[str, Any]) -> None:
    (tmp_path / "manifest.json").write_text(json.dumps({"version": 1, **manifest}))
    with pytest.raises(FindingsError, match="can't be read"):
        bundle.read(tmp_path)


class Place:
    """A run on an API of its own, with secrets wherever people put them."""

    def __init__(self, directory: Path, kubernetes: Any, storage: Any, spec: TrainingSpec) -> None:
        self.directory = directory
        self.kubernetes = kubernetes
        self.storage = storage
        self.spec = spec
        self.clinic = Clinic(kubernetes.kubeconfig, storage.address)

    def command(self, *words: str | Path, expect: int) -> str:
        ended = subprocess.run(
            [Path(sys.executable).with_name("everstep"), *words],
            env={
                **os.environ,
                "STORAGE_EMULATOR_HOST": self.storage.address,
                "GOOGLE_APPLICATION_CREDENTIALS": "",
                "NO_GCE_CHECK": "true",
            },
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )
        told = ended.stdout + ended.stderr
        assert ended.returncode == expect, told
        assert "Traceback" not in told
        return ended.stdout


@pytest.fixture
def place(
    tmp_path: Path,
    bare_kubernetes: Any,
    cloud_storage: Any,
    new_bucket: str,
    run_data: dict[str, Any],
    cluster_data: dict[str, Any],
) -> Place:
    run_data |= {"name": f"lm-{new_bucket[-6:]}", "priority": None}
    run_data["slices"] = {"pool": "v6e-2x4", "count": 1, "spare": "none"}
    run_data["trainer"]["service_account"] = "nobody"
    run_data["trainer"]["env"] = {"HF_TOKEN": SECRETS["hugging"], "WHATEVER": SECRETS["odd"]}
    run_data["trainer"]["command"] = ["python", "train.py", "--password", SECRETS["password"]]
    cluster_data["checkpoint_configurations"]["everstep"]["bucket"] = new_bucket
    for kind, data in (("runs/run", run_data), ("clusters/sandbox", cluster_data)):
        path = tmp_path / f"{kind}.yaml"
        path.parent.mkdir(exist_ok=True)
        path.write_text(yaml.safe_dump(data))
    spec = TrainingSpec.model_validate(run_data).on(ClusterSpec.model_validate(cluster_data))
    return Place(tmp_path, bare_kubernetes, cloud_storage, spec)


def plant(place: Place) -> None:
    """Put secrets into annotations, env, arguments, states, events, reports."""
    client, name = place.clinic.cluster, place.spec.name
    body = manifest.build(place.spec, launch=1, holder="test")
    body["metadata"]["annotations"] |= {
        "kubectl.kubernetes.io/last-applied-configuration": json.dumps({"spec": {"password": SECRETS["password"]}}),
        "acme.dev/webhook": SIGNED,
        "acme.dev/registry": f'{{"auths": "{SECRETS["docker"]}"}}',
        "acme.dev/key": KEY_FILE,
    }
    client.create(JOBSETS, body, "default")
    pod = f"{name}-slice-0-0-abcde"
    container = {
        "name": "trainer",
        "image": "python:3.11",
        "args": ["--wandb-api-key", SECRETS["wandb"], f"--token={SECRETS['flag']}"],
        "env": [
            {"name": "DATABASE", "value": f"postgres://me:{SECRETS['url']}@db/x"},
            {"name": "GITHUB", "value": SECRETS["github"]},
            {"name": "HMAC_ACCESS", "value": SECRETS["hmac"]},
            {"name": "SA_JSON", "value": KEY_FILE},
        ],
    }
    metadata = {"name": pod, "labels": {labels.JOBSET_NAME: name, labels.RESTART_ATTEMPT: "0"}}
    spec = {"containers": [container], "restartPolicy": "Never"}
    client.create(PODS, {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}, "default")
    ended = {"exitCode": 1, "reason": "Error", "message": f"Bearer {SECRETS['oauth']} refused"}
    status = {"name": "trainer", "state": {"terminated": ended}, "image": "x", "imageID": "x"}
    status |= {"ready": False, "restartCount": 0}
    place.clinic.status(PODS, pod, {"phase": "Failed", "containerStatuses": [status]}, "default")
    event = {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": f"{name}.1"},
        "involvedObject": {"kind": "Job", "name": f"{name}-slice-0", "namespace": "default"},
        "type": "Warning",
        "reason": "FailedCreate",
        "message": 'Error creating: pods "x" is forbidden: error looking up service account default/nobody: '
        f'serviceaccount "nobody" not found ({SECRETS["jwt"]}, api_key={SECRETS["apikey"]})',
    }
    place.clinic.cluster._request("POST", "/api/v1/namespaces/default/events", body=event)
    report = {"launch": 1, "restart": 0, "rank": 0, "replicator_failed": f"boom with {SECRETS['apikey']}"}
    place.clinic.bucket(place.spec.bucket).write(
        f"{name}/everstep/attempts/0001-0000/node-0.json", report, generation=None
    )


@pytest.mark.sandbox
def test_a_collected_bundle_gives_the_same_diagnoses_and_holds_no_secret(place: Place) -> None:
    plant(place)
    run_file, to = place.directory / "runs" / "run.yaml", place.directory / "bundle"
    way = ("--kubeconfig", place.kubernetes.kubeconfig)
    told = place.command("collect", run_file, "--to", to, *way, expect=0)
    assert "secrets are removed" in told
    # Without a way to Google Cloud that is said, and the rest goes on.
    assert "could not be read: the cluster's description by GKE" in told

    everything = "\n".join(path.read_text() for path in to.rglob("*") if path.is_file())
    assert len(everything) > 5000
    assert [name for name, secret in SECRETS.items() if secret in everything] == []
    assert everything.count(REMOVED) >= 12
    assert "nobody" in everything and "EVERSTEP_RUN_URL" in everything

    live = json.loads(place.command("doctor", run_file, "--json", *way, expect=1))
    saved = json.loads(place.command("doctor", "--bundle", to, "--json", expect=1))
    # Ages in sentences differ by the seconds between the two.
    assert [(one["symptom"], one["object"]) for one in live["diagnoses"]] == [
        (one["symptom"], one["object"]) for one in saved["diagnoses"]
    ]
    refused = next(one for one in saved["diagnoses"] if one["symptom"] == "pods-refused-account")
    assert refused["remedy"][0] == "kubectl create serviceaccount nobody -n default"
    printed = place.command("doctor", run_file, *way, expect=1) + json.dumps(live)
    assert [name for name, secret in SECRETS.items() if secret in printed] == []
    assert "do:   kubectl create serviceaccount nobody -n default" in printed
    assert "could not be looked at, so nothing is known of:" in printed


@pytest.mark.sandbox
def test_a_run_can_be_named_without_a_file_and_a_cluster_file_given(place: Place) -> None:
    plant(place)
    way = ("--kubeconfig", place.kubernetes.kubeconfig)
    named = json.loads(place.command("doctor", place.spec.name, "--json", *way, expect=1))
    assert named["target"]["bucket"] == place.spec.bucket
    assert "pods-refused-account" in [one["symptom"] for one in named["diagnoses"]]
    cluster = json.loads(place.command("doctor", place.directory / "clusters/sandbox.yaml", "--json", *way, expect=1))
    assert cluster["target"]["run"] == ""
    assert "configuration-missing" in [one["symptom"] for one in cluster["diagnoses"]]


@pytest.mark.sandbox
def test_a_collection_that_is_partly_denied_says_so_and_is_never_called_healthy(place: Place) -> None:
    place.clinic.cluster.create(JOBSETS, manifest.build(place.spec, launch=1, holder="test"), "default")
    place.kubernetes.fault(match="GET .*/nodes.*", status=403, times=20)
    try:
        evidence = place.clinic.evidence(replace(Target.of_run(place.spec), configurations={}))
    finally:
        place.kubernetes.clear_faults()
    written = bundle.write(evidence, place.directory / "b")
    found = bundle.read(written)
    assert not found.saw("nodes") and "403" in found.unread["nodes"]
    assert found.saw("pods", "configurations")
    symptoms = {each.symptom for each in flat(diagnose(found))}
    assert "slice-missing" not in symptoms and "configuration-without-nodes" not in symptoms

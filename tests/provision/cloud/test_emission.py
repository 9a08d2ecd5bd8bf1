"""What emit prints for an empty project: a script in the order of apply, and Terraform that keeps that order."""

from __future__ import annotations

import re
import shlex
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import hcl2
import pytest

from everstep.provision import emission
from everstep.provision.changes import Change, Mode
from everstep.provision.everything import all_steps, provision
from everstep.provision.steps import Report
from everstep.spec.cluster import ClusterSpec
from everstep.spec.findings import error

SpecOf = Callable[..., ClusterSpec]
MANIFEST = Path(__file__).parents[3] / "dags" / "clusters" / "manifests" / "jobset-sandbox.yaml"


@pytest.fixture
def emitted(cloud: Any, spec_of: SpecOf, run_of: Any) -> tuple[Report, ClusterSpec]:
    """Everything that an empty project lacks."""
    spec = spec_of({"endpoint": "dns", "jobset.manifest": str(MANIFEST), "priorities": {"training-high": 2000000}})
    with cloud.site(spec, run_of(spec, "lm")) as site:
        report = provision(site, all_steps(site), Mode.EMIT, print)
    assert not cloud.mutations()
    return report, spec


def test_a_script_does_all_that_apply_would_do_in_order(emitted: tuple[Report, ClusterSpec], tmp_path: Path) -> None:
    report, spec = emitted
    script = tmp_path / "script.sh"
    script.write_text(emission.script(report, spec, "tokyo.yaml"))
    # Programs that only tell how they were called, so that the shell itself reads the script.
    for name in ("gcloud", "kubectl"):
        (tmp_path / name).write_text(f'#!/bin/sh\nprintf "%s " {name} "$@"; echo\ncat > /dev/null < /dev/null\n')
        (tmp_path / name).chmod(0o700)
    called = subprocess.run(
        ["sh", str(script)], env={"PATH": f"{tmp_path}:/usr/bin:/bin"}, capture_output=True, text=True, check=True
    ).stdout.splitlines()
    begins = [
        "gcloud services enable",
        "gcloud storage buckets create",
        "gcloud container clusters create",
        "gcloud container node-pools create v6e-2x4-0",
        "gcloud container node-pools create v6e-2x4-1",
        "gcloud storage buckets add-iam-policy-binding",
        "gcloud storage buckets add-iam-policy-binding",
        "gcloud storage buckets add-iam-policy-binding",
        # kubectl would work on whatever cluster its user looked at last.
        "gcloud container clusters get-credentials tokyo",
        f"kubectl apply --server-side -f {MANIFEST}",
        "kubectl patch deployment jobset-controller-manager",
        "kubectl wait -n jobset-system",
        "kubectl create -f -",
        "kubectl wait --for=create",
        "kubectl create -f -",
    ]
    assert len(called) == len(begins)
    for call, begin in zip(called, begins, strict=True):
        assert call.startswith(begin), call
    assert "--dns-endpoint" in called[8]


def test_terraform_makes_things_in_order(emitted: tuple[Report, ClusterSpec]) -> None:
    report, _ = emitted
    text = emission.declarations(report, "tokyo.yaml")
    resources = {
        (kind.strip('"'), name.strip('"')): values
        for entry in hcl2.loads(text)["resource"]
        for kind, named in entry.items()
        for name, values in named.items()
    }
    kinds = [kind for kind, _ in resources]
    assert kinds.count("google_container_node_pool") == 2 and kinds.count("google_storage_bucket_iam_member") == 3
    references = {str(values.get("cluster") or values.get("bucket")) for values in resources.values()}
    assert any("google_container_cluster.tokyo.name" in each for each in references)
    assert any("google_storage_bucket.acme-ckpt.name" in each for each in references)
    members = re.findall(r"google_storage_bucket_iam_member.*?\n}", text, re.DOTALL)
    assert all("depends_on = [google_container_cluster.tokyo]" in each for each in members)
    assert "# Not for Terraform:\n# kubectl apply --server-side" in text


def test_errors_are_told_on_top_and_stay_comments(spec_of: SpecOf) -> None:
    told = error("bucket acme", "it has no\nhierarchical namespace", "one; rm -rf /")
    change = Change("bucket x", "create", "none", "one\nmore", lambda: None, (shlex.join(["gcloud", "a b"]),))
    text = emission.script(Report(Mode.EMIT, {"buckets": (told,)}, left=[change]), spec_of(), "tokyo.yaml")
    commands = [line for line in text.splitlines() if line and not line.startswith("#")]
    assert commands == ["set -eu", "gcloud 'a b'"]
    assert "# With these errors nothing would be changed" in text

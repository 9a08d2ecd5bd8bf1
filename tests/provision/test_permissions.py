"""The rights of each identity: what the command prints, and that they are neither too few nor too many."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from everstep.cli.main import main
from everstep.provision.permissions import IDENTITIES, service_account_subject


def printed(capsys: pytest.CaptureFixture[str], *arguments: str) -> list[dict[str, Any]]:
    assert main(["permissions", *arguments]) == 0
    return list(yaml.safe_load_all(capsys.readouterr().out))


def test_rbac_is_printed_ready_to_apply(capsys: pytest.CaptureFixture[str]) -> None:
    documents = printed(capsys, "--for", "watcher", "--namespace", "team", "--subject", "airflow/triggerer")
    assert [(each["kind"], each["metadata"].get("namespace")) for each in documents] == [
        ("ClusterRole", None),
        ("ClusterRoleBinding", None),
        ("Role", "team"),
        ("RoleBinding", "team"),
    ]
    assert documents[1]["subjects"] == documents[3]["subjects"] == [service_account_subject("airflow", "triggerer")]
    assert documents[3]["roleRef"]["name"] == documents[2]["metadata"]["name"] == "everstep-watcher"
    verbs = {(rule["resources"][0], verb) for rule in documents[2]["rules"] for verb in rule["verbs"]}
    assert ("jobsets", "watch") in verbs
    assert ("jobsets", "create") not in verbs


def test_a_google_service_account_is_a_user(capsys: pytest.CaptureFixture[str]) -> None:
    documents = printed(capsys, "--for", "provisioner", "--subject", "me@project.iam.gserviceaccount.com")
    assert documents[1]["subjects"][0]["kind"] == "User"
    assert documents[1]["subjects"][0]["name"] == "me@project.iam.gserviceaccount.com"


def test_the_iam_role_of_the_watcher_only_reads(capsys: pytest.CaptureFixture[str]) -> None:
    (role,) = printed(capsys, "--for", "watcher", "--format", "iam")
    assert role["stage"] == "GA"
    assert all(permission.endswith((".get", ".list")) for permission in role["includedPermissions"])


def test_the_iam_role_of_the_provisioner_touches_no_object_and_deletes_nothing(
    capsys: pytest.CaptureFixture[str],
) -> None:
    (role,) = printed(capsys, "--for", "provisioner", "--format", "iam")
    assert "container.clusters.update" in role["includedPermissions"]
    assert not [each for each in role["includedPermissions"] if ".objects." in each or each.endswith(".delete")]


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("--for", "nobody"), "launcher, watcher"),
        (("--for", "trainer", "--subject", "a/b"), "'iam'"),
    ],
)
def test_what_makes_no_sense_is_refused_with_a_way_out(
    capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], told: str
) -> None:
    assert main(["permissions", *arguments]) == 1
    assert told in capsys.readouterr().err


def test_without_a_subject_there_are_roles_only(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["permissions", "--for", "watcher"]) == 0
    printed = capsys.readouterr()
    assert {each["kind"] for each in yaml.safe_load_all(printed.out)} == {"ClusterRole", "Role"}
    assert "--subject" in printed.err


def test_each_rule_has_its_reason_beside_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["permissions", "--for", "watcher"]) == 0
    assert "# the one watch that all waits share\n- apiGroups: [jobset.x-k8s.io]\n" in capsys.readouterr().out
    assert main(["permissions", "--for", "provisioner", "--format", "iam"]) == 0
    assert "- storage.buckets.create  # make the buckets\n" in capsys.readouterr().out


def test_the_repositorys_files_are_what_the_command_prints(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """After a change: everstep permissions --to permissions"""
    assert main(["permissions", "--to", str(tmp_path)]) == 0
    capsys.readouterr()
    assert contents(Path(__file__).parents[2] / "permissions") == contents(tmp_path)
    for name in IDENTITIES:
        for file, form in (("rbac.yaml", "rbac"), ("iam-role.yaml", "iam")):
            path = tmp_path / name / file
            assert (main(["permissions", "--for", name, "--format", form]) == 0) is path.exists()
            assert capsys.readouterr().out == (path.read_text() if path.exists() else "")


def contents(folder: Path) -> dict[str, str]:
    return {str(path.relative_to(folder)): path.read_text() for path in folder.rglob("*.yaml")}


def test_without_an_identity_all_are_explained(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["permissions", "--namespace", "team"]) == 0
    told = capsys.readouterr().out
    assert all(f"{name}: " in told for name in IDENTITIES)
    assert "in team: list watch jobsets  (the one watch that all waits share)" in told
    assert "in gke-managed-checkpointing: get list daemonsets" in told


def test_nobody_may_use_wildcards_or_read_secrets() -> None:
    for identity in IDENTITIES.values():
        places = (identity.anywhere, identity.own, *identity.elsewhere.values())
        for rule in (rule for rules in places for rule in rules):
            assert "*" not in rule.verbs
            assert rule.resource.plural not in ("*", "secrets")

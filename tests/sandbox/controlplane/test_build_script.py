"""scripts/build-controlplane.sh with a Go that a test makes: what it keeps, and what it says when it can't go on."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[3]

# Builds every program as an empty file; `mod download` succeeds where a folder of manifests is named.
GO = """#!/bin/bash
case "$1 $2" in
  "env GOVERSION") echo "${GO_VERSION:-go1.26.1}" ;;
  "version "*) echo "go version ${GO_VERSION:-go1.26.1} linux/amd64" ;;
  "list -m") if [ "$4" = "{{.Dir}}" ]; then echo "$MANIFESTS"; else echo v1.36.2; fi ;;
  "mod download") [ -n "$MANIFESTS" ] ;;
  "build "*)
    while [ "$1" != -o ]; do shift; done
    install -m 755 /dev/null "$2" && [ "$(basename "$2")" != "$BROKEN.new" ] ;;
esac
"""


class Checkout:
    """What the script needs of one, and a PATH with that Go."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        (directory / "scripts").mkdir(parents=True)
        shutil.copy(REPOSITORY / "scripts" / "build-controlplane.sh", directory / "scripts")
        programs = "tests/controlplane/programs"
        shutil.copytree(REPOSITORY / programs, directory / programs)
        (directory / "go").mkdir()
        (directory / "go" / "go").write_text(GO)
        (directory / "go" / "go").chmod(0o755)
        self.source = directory / "jobset"
        for part in ("crd", "webhook", "rbac"):
            (self.source / "config" / "components" / part).mkdir(parents=True)
        self.built = directory / "build" / "controlplane"

    def build(self, **environment: str) -> subprocess.CompletedProcess[str]:
        variables = {"PATH": f"{self.directory / 'go'}:{os.environ['PATH']}", "MANIFESTS": str(self.source)}
        return subprocess.run(
            [self.directory / "scripts" / "build-controlplane.sh"],
            env={**os.environ, **variables, **environment},
            capture_output=True,
            text=True,
            check=False,
        )


@pytest.fixture
def checkout(tmp_path: Path) -> Checkout:
    return Checkout(tmp_path / "checkout")


def test_what_is_built_from_the_same_modules_is_kept(checkout: Checkout) -> None:
    first = checkout.build()
    assert first.returncode == 0, first.stderr
    assert first.stderr.count("building") == 6
    assert {path.name for path in (checkout.built / "manifests").iterdir()} == {"crd", "webhook", "rbac"}
    assert "building" not in checkout.build().stderr
    with (checkout.directory / "tests/controlplane/programs/jobset/go.sum").open("a") as changed:
        changed.write("\n")
    assert checkout.build().stderr.count("building") == 1
    assert checkout.build(GO_VERSION="go1.26.2").stderr.count("building") == 6


def test_a_program_that_can_not_be_built_is_named_and_the_others_are_built(checkout: Checkout) -> None:
    done = checkout.build(BROKEN="kube-scheduler")
    assert done.returncode == 1
    assert "k8s.io/kubernetes/cmd/kube-scheduler of" in done.stderr and "could not be fetched" in done.stderr
    assert not (checkout.built / "bin" / "kube-scheduler").exists()
    assert (checkout.built / "bin" / "kwok").exists()
    assert checkout.build().stderr.count("building") == 1


@pytest.mark.parametrize("manifests", ["", "/nowhere"])
def test_manifests_that_can_not_be_had_are_an_error_and_leave_the_old_ones(checkout: Checkout, manifests: str) -> None:
    checkout.build()
    done = checkout.build(MANIFESTS=manifests)
    assert done.returncode == 1
    assert "manifests of sigs.k8s.io/jobset could not be" in done.stderr
    assert {path.name for path in (checkout.built / "manifests").iterdir()} == {"crd", "webhook", "rbac"}


def test_another_go_builds_nothing_and_says_which_one_would(checkout: Checkout) -> None:
    done = checkout.build(GO_VERSION="go1.27.0")
    assert done.returncode == 0
    assert "found go1.27.0, expected Go 1.26" in done.stderr
    assert not checkout.built.exists()

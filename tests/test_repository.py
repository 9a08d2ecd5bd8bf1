"""What holds for the repository as a whole: layers, cheap imports, files that say what they should."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

REPOSITORY = Path(__file__).resolve().parents[1]


def tracked_files() -> list[Path]:
    listed = subprocess.run(["git", "ls-files"], cwd=REPOSITORY, capture_output=True, text=True, check=True)
    return [REPOSITORY / line for line in listed.stdout.splitlines() if (REPOSITORY / line).is_file()]


def test_the_layers_hold() -> None:
    linter = Path(sys.executable).with_name("lint-imports")
    done = subprocess.run([linter], cwd=REPOSITORY, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("package", ["everstep", "everstep_trainer"])
def test_packages_cost_nothing_to_import(package: str) -> None:
    probe = f"""
import sys
before = set(sys.modules)
import {package}
heavy = {{name.split(".")[0] for name in set(sys.modules) - before}} & {{
    "airflow", "google", "kubernetes", "kubernetes_asyncio", "jax", "orbax", "gcsfs", "numpy"}}
sys.exit(", ".join(sorted(heavy)) or 0)
"""
    done = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_run_and_cluster_files_are_valid() -> None:
    from everstep.spec.training import TrainingSpec

    runs = sorted((REPOSITORY / "dags" / "runs").glob("*.yaml"))
    assert runs
    for path in runs:
        assert TrainingSpec.from_yaml(path).name == path.stem


def test_the_compose_file_runs_every_part_of_airflow_on_the_sandbox_network() -> None:
    services = yaml.safe_load((REPOSITORY / "docker-compose.yaml").read_text())["services"]
    for component in ("api-server", "scheduler", "dag-processor", "triggerer"):
        assert services[component]["network_mode"] == "service:sandbox"
        assert "database-migration" in services[component]["depends_on"]


def test_shell_scripts_parse() -> None:
    scripts = [path for path in tracked_files() if path.suffix == ".sh" or path.name == "run"]
    assert scripts
    for script in scripts:
        subprocess.run(["bash", "-n", script], check=True)


def test_no_file_speaks_of_one_machine() -> None:
    home = re.escape(os.path.expanduser("~"))
    pattern = re.compile(rf"{home}/|/home/[a-z]+/|{re.escape(str(REPOSITORY))}")
    found = [
        f"{path.relative_to(REPOSITORY)}: {match.group()}"
        for path in tracked_files()
        if path.name != "uv.lock" and (match := pattern.search(path.read_text(errors="ignore")))
    ]
    assert not found


def test_links_between_pages_lead_somewhere() -> None:
    pages = [path for path in tracked_files() if path.suffix == ".md"]
    assert pages
    dead = [
        f"{page.relative_to(REPOSITORY)}: {target}"
        for page in pages
        for target in re.findall(r"\]\(([^)#:]+)\)", page.read_text())
        if not (page.parent / target).exists()
    ]
    assert not dead

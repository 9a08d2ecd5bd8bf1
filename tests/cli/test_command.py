"""The ``everstep`` command as a user types it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]


def everstep(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = Path(sys.executable).with_name("everstep")
    return subprocess.run([command, *arguments], capture_output=True, text=True, check=False, cwd=REPOSITORY)


def test_its_verbs_come_from_entry_points() -> None:
    shown = everstep("--help")
    assert shown.returncode == 0
    for verb in ("preflight", "schema", "sandbox"):
        assert verb in shown.stdout


def test_a_schema_accepts_the_run_file_that_ships() -> None:
    import jsonschema
    import yaml

    schema = json.loads(everstep("schema", "run").stdout)
    run = yaml.safe_load((REPOSITORY / "dags" / "runs" / "stdlib-lm.yaml").read_text())
    jsonschema.validate(run, schema)
    run["trainer"]["imagee"] = "x"
    assert list(jsonschema.Draft202012Validator(schema).iter_errors(run))


def test_a_wrong_run_file_is_refused_with_all_findings(tmp_path: Path) -> None:
    (tmp_path / "runs").mkdir()
    (tmp_path / "clusters").mkdir()
    run = (REPOSITORY / "dags" / "runs" / "stdlib-lm.yaml").read_text()
    cluster = (REPOSITORY / "dags" / "clusters" / "sandbox.yaml").read_text()
    (tmp_path / "clusters" / "sandbox.yaml").write_text(cluster)
    wrong = tmp_path / "runs" / "wrong.yaml"
    wrong.write_text(run.replace("final_step: 280", "final_stepp: 280").replace("count: 2", "count: 0"))
    refused = everstep("preflight", str(wrong))
    assert refused.returncode == 1
    assert "final_stepp" in refused.stderr
    assert "slices.count" in refused.stderr
    assert "Traceback" not in refused.stderr


def test_a_full_disk_is_told_in_a_sentence() -> None:
    command = [Path(sys.executable).with_name("everstep"), "schema", "cluster"]
    with Path("/dev/full").open("w") as full:
        ended = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False, timeout=60)
    assert (ended.returncode, ended.stderr) == (1, "error: nothing more can be written: No space left on device\n")

"""What people type wrongly at `everstep retain`: refused in a sentence, before anything in the bucket is changed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.retain.real_bucket import RUN, RealBucket

from everstep.cli.main import main
from everstep.retain import pins
from everstep.retain import plan as plans

pytestmark = pytest.mark.sandbox

ALL_MAY_GO = ("--keep", "keep_last=1", "--keep", "keep_complete=1", "--keep", "young_hours=0")


@pytest.fixture
def bucket(cloud_storage: Any) -> RealBucket:
    made = RealBucket(cloud_storage.address)
    made.history(backups=4, saves=3)
    return made


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["gs://{name}", "--keep", "daily=1"], "gs://BUCKET/RUN"),
        (["gs://{name}/", "--keep", "daily=1"], "gs://BUCKET/RUN"),
        (["gs:///lm", "--keep", "daily=1"], "gs://BUCKET/RUN"),
        (["{name}/lm", "--keep", "daily=1"], "gs://BUCKET/RUN"),
        (["gs://{name}/lm/deeper", "--keep", "daily=1"], "one run at a time"),
        (["gs://{name}/..", "--keep", "daily=1"], "one run at a time"),
        (["gs://{name}/lm*", "--keep", "daily=1"], "one run at a time"),
        (["gs://{name}/lm\n", "--keep", "daily=1"], "one run at a time"),
        (["gs://{name}/lm"], "no retention is given"),
        (["gs://{name}/lm", "--keep", "daily"], "RULE=VALUE"),
        (["gs://{name}/lm", "--keep", "daily=[1"], "RULE=VALUE"),
        (["gs://{name}/lm", "--keep", "dayly=1"], "dayly"),
        (["gs://{name}/lm", "--keep", "daily=yes"], "daily: True; expected a whole number from 0, or 'always'"),
        (["gs://{name}/lm", "--keep", "daily=1.5"], "daily: 1.5; expected a whole number from 0, or 'always'"),
        (["gs://{name}/lm", "--keep", "within_hours=.inf"], "within_hours"),
        (["gs://{name}/lm", "--keep", "trash_hours=1e300"], "trash_hours"),
        (["gs://{name}/lm", "--keep", "daily=1", "--shape", "2x"], "NODES"),
        (["gs://{name}/lm", "--keep", "daily=1", "--shape", "99999999999"], "NODES"),
        (["gs://{name}/lm", "--keep", "daily=1", "--shape", "2/8"], "as run.json says"),
        (["gs://{name}/lm2", "--keep", "daily=1"], "run.json"),
    ],
)
def test_what_names_no_run_or_says_nothing_of_it_is_refused(
    bucket: RealBucket, arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    before = bucket.names()
    filled = [each.format(name=bucket.name) for each in arguments]
    assert main(["retain", "plan", *filled, "--endpoint", bucket.address]) == 1
    assert said in capsys.readouterr().err
    assert bucket.names() == before


@pytest.mark.parametrize("option", ["--out", "--html"])
def test_a_plan_that_can_t_be_written_is_said_and_leaves_no_half_of_it(
    bucket: RealBucket, tmp_path: Path, capsys: pytest.CaptureFixture[str], option: str
) -> None:
    command = ["retain", "plan", f"gs://{bucket.name}/{RUN}", *ALL_MAY_GO, "--endpoint", bucket.address, option]
    assert main([*command, "/dev/full"]) == 1
    assert "/dev/full: No space left on device; expected a file to write to" in capsys.readouterr().err
    assert main([*command, str(tmp_path / "absent" / "plan")]) == 1
    assert "No such file or directory" in capsys.readouterr().err
    assert main([*command, str(tmp_path)]) == 1
    assert list(tmp_path.iterdir()) == []
    kept = tmp_path / "plan"
    kept.write_text("an earlier plan")
    assert main([*command, str(kept)]) == 0
    assert kept.read_text() != "an earlier plan"
    assert list(tmp_path.iterdir()) == [kept]


@pytest.mark.parametrize(
    ("name", "more", "said"),
    [
        ("", [], "neither a backup nor a save"),
        ("everstep", [], "neither a backup nor a save"),
        ("checkpoints", [], "neither a backup nor a save"),
        ("../lm2/2026-03-01_00-00", [], "neither a backup nor a save"),
        ("2020-01-01_00-00", [], "nothing of that name"),
        ("2026-03-01_00-00", ["--until", "2020-01-01"], "which is over"),
        ("2026-03-01_00-00", ["--until", "soon"], "a day or a time"),
        ("2026-03-01_00-00", ["--reason", " "], "no reason"),
    ],
)
def test_a_pin_that_would_keep_nothing_is_refused(
    bucket: RealBucket, name: str, more: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    before = bucket.names()
    command = ["retain", "pin", f"gs://{bucket.name}/{RUN}", name, "--endpoint", bucket.address]
    assert main([*command, "--reason", "paper", *more]) == 1
    assert said in capsys.readouterr().err
    assert bucket.names() == before


def test_names_are_taken_as_people_type_them(bucket: RealBucket, capsys: pytest.CaptureFixture[str]) -> None:
    url, endpoint = f"gs://{bucket.name}/{RUN}", ["--endpoint", bucket.address]
    for name in ("2026-03-01_00-00/", "1000"):
        assert main(["retain", "pin", url, name, "--reason", "paper", *endpoint]) == 0
    assert set(bucket.read(f"{RUN}/everstep/pins.json")["names"]) == {"2026-03-01_00-00", "checkpoints/1000"}
    assert main(["retain", "explain", url, "1000/", *ALL_MAY_GO, *endpoint]) == 0
    assert "stays: pinned by" in capsys.readouterr().out
    assert main(["retain", "unpin", url, "1000", *endpoint]) == 0
    assert pins.unpin(bucket.client(), RUN, "2026-03-01_00-00")
    assert bucket.read(f"{RUN}/everstep/pins.json") == {"names": {}}


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (lambda text: text[: len(text) // 2], "can't be read"),
        (lambda _: "", "can't be read"),
        (lambda _: "[]", "can't be read"),
        (lambda _: "[" * 200_000, "can't be read"),
        (lambda _: "\udcff", "can't be read"),
        (lambda text: text.replace('"run": "lm"', '"run": "lm2"'), "changed after it was made"),
        (lambda text: text.replace('"decision": "keep"', '"decision": "sweep"', 1), "changed after it was made"),
    ],
    ids=["truncated", "empty", "no object", "nested", "binary", "other run", "other decision"],
)
def test_a_plan_file_that_is_not_as_it_was_made_is_refused_by_its_name(
    bucket: RealBucket, tmp_path: Path, content: Any, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    url, endpoint = f"gs://{bucket.name}/{RUN}", ["--endpoint", bucket.address]
    out = tmp_path / "plan.json"
    assert main(["retain", "plan", url, *ALL_MAY_GO, *endpoint, "--out", str(out)]) == 0
    before = bucket.names()
    out.write_text(content(out.read_text()), errors="surrogateescape")
    assert main(["retain", "apply", str(out), *endpoint]) == 1
    complaint = capsys.readouterr().err
    assert said in complaint and f"error: {out}:" in complaint
    assert bucket.names() == before


def test_a_rate_that_is_no_rate_is_refused(
    bucket: RealBucket, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "plan.json"
    url, endpoint = f"gs://{bucket.name}/{RUN}", ["--endpoint", bucket.address]
    assert main(["retain", "plan", url, *ALL_MAY_GO, *endpoint, "--out", str(out)]) == 0
    assert plans.verify(out.read_text()).swept
    for rate in ("nan", "inf", "0", "-1", "fast"):
        with pytest.raises(SystemExit):
            main(["retain", "apply", str(out), *endpoint, "--objects-per-second", rate])
        assert "expected a number of objects per second" in capsys.readouterr().err
    assert len(bucket.dated()) == 4

"""Planning and the command on a real server: what is asked of it, what is written, what people read."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from tests.retain.real_bucket import RUN, RealBucket

from everstep.cli.main import main
from everstep.clients.storage import BucketClient
from everstep.retain import plan as plans
from everstep.retain.planning import plan_run
from everstep.retain.policy import Policy

pytestmark = pytest.mark.sandbox

LATER = datetime.now(UTC) + timedelta(days=3)
VERDICTS = f"{RUN}/everstep/retention/verdicts.json"


@pytest.fixture
def bucket(cloud_storage: Any) -> RealBucket:
    made = RealBucket(cloud_storage.address)
    made.history(backups=9, saves=3)
    return made


class Counting:
    """A session that counts what goes over it."""

    def __init__(self, client: BucketClient) -> None:
        self.asked: list[str] = []
        session = client.library_client._http
        send = session.request

        def request(method: str, url: str, **more: Any) -> Any:
            self.asked.append(f"{method} {url}")
            return send(method, url, **more)

        session.request = request


def plan(client: BucketClient, **more: Any) -> plans.RetentionPlan:
    return plan_run(client, RUN, Policy({}, keep_last=2), now=LATER, **more)


def test_a_plan_again_asks_only_for_what_it_protects(bucket: RealBucket) -> None:
    client = bucket.client()
    counting = Counting(client)
    first = plan(client)
    first_cost = len(counting.asked)
    counting.asked.clear()
    second = plan(client)
    assert first_cost > len(counting.asked)
    # Of these, two backups and two saves are judged anew: a listing each, and for a save three requests more.
    assert len(counting.asked) <= 20, counting.asked
    assert not [each for each in counting.asked if not each.startswith("GET")]
    assert [unit.name for unit in first.swept] == [f"2026-03-0{day}_00-00" for day in range(7, 0, -1)] + [
        "checkpoints/1000"
    ]
    assert second.units == first.units
    assert second.hierarchical
    verdicts = bucket.read(VERDICTS)
    assert len(verdicts["backups"]) == 9


def test_fingerprints_see_what_is_written_anew(bucket: RealBucket) -> None:
    name = "2026-03-01_00-00"
    before = plan(bucket.client()).named(name)
    meta = next(each for each in sorted(bucket.names(f"{RUN}/{name}/")) if each.endswith(".meta"))
    bucket.put(meta, bucket_text(bucket, meta))
    after = plan(bucket.client(), remember=False).named(name)
    assert before is not None and after is not None
    assert before.fingerprint != after.fingerprint


def bucket_text(bucket: RealBucket, name: str) -> bytes:
    found = bucket.client().read(name)
    assert found is not None
    return found.body


def test_what_goes_is_counted_when_asked_for(bucket: RealBucket) -> None:
    estimated, measured = plan(bucket.client()), plan(bucket.client(), measure=True)
    assert estimated.totals.is_estimate and not measured.totals.is_estimate
    # A backup has two metas and two data folders of three files; a save four files.
    assert measured.totals.freed_objects == 7 * (2 + 2 * 3) + 4


def test_the_command_plans_explains_and_pins(
    bucket: RealBucket, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    url, endpoint = f"gs://{bucket.name}/{RUN}", ["--endpoint", bucket.address]
    keep = ["--keep", "keep_last=1", "--keep", "keep_complete=1", "--keep", "young_hours=0"]
    out, page = tmp_path / "plan.json", tmp_path / "plan.html"
    assert main(["retain", "pin", url, "2026-03-02_00-00", "--reason", "paper", *endpoint]) == 0
    assert main(["retain", "plan", url, *keep, *endpoint, "--out", str(out), "--html", str(page), "--calendar"]) == 0
    shown = capsys.readouterr().out
    assert "2026-03-02  #" in shown and "2026-03-01  ." in shown
    assert "2026-03-02_00-00" not in [unit.name for unit in plans.verify(out.read_text()).swept]
    assert "pinned by" in page.read_text()
    assert main(["retain", "explain", url, "2026-03-01_00-00", *keep, *endpoint]) == 0
    assert "would be swept: no rule keeps it" in capsys.readouterr().out
    assert main(["retain", "explain", url, "2020-01-01_00-00", *keep, *endpoint]) == 1
    assert main(["retain", "unpin", url, "2026-03-02_00-00", *endpoint]) == 0
    assert bucket.read(f"{RUN}/everstep/pins.json") == {"names": {}}
    capsys.readouterr()
    assert main(["retain", "pin", url, "2020-01-01_00-00", "--reason", "x", *endpoint]) == 1
    assert "nothing of that name" in capsys.readouterr().err


def test_verdicts_written_by_two_at_once_are_written_once(bucket: RealBucket) -> None:
    client = bucket.client()
    plan(client)
    found = client.read(VERDICTS)
    assert found is not None
    bucket.put(VERDICTS, json.dumps({"version": 9}))
    assert plan(bucket.client()).swept
    assert bucket.read(VERDICTS)["version"] == 2

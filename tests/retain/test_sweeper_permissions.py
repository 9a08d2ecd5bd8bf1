"""The sweeper's IAM role is enough, and nothing in it is idle: rights are given one by one, as they are missed."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from tests.conftest import server
from tests.retain.real_bucket import RUN, RealBucket

from everstep.clients.access import StorageAccess
from everstep.clients.errors import Forbidden
from everstep.provision.permissions import IDENTITIES
from everstep.retain import sweep
from everstep.retain.planning import plan_run
from everstep.retain.policy import Policy
from everstep.retain.sweep_report import SweepSettings
from everstep_sandbox.google.state import PROJECT

pytestmark = pytest.mark.sandbox

ROLE = f"projects/{PROJECT}/roles/sweeper"
SWEEPER = "serviceAccount:sweeper@everstep.iam.gserviceaccount.com"
LATER = datetime.now(UTC) + timedelta(days=2)
# Google asks for it where a listing shows empty folders; the sandbox does not.
UNSEEN = {"storage.folders.list"}
SETTINGS = SweepSettings(now=lambda: LATER)


def test_every_right_is_missed_once_and_all_together_suffice(tmp_path: Path) -> None:
    state = tmp_path / "google" / "state.json"
    state.parent.mkdir()
    granted: set[str] = set()

    def grant() -> None:
        role = {"includedPermissions": sorted(granted)}
        state.write_text(json.dumps({"project": PROJECT, "roles": {ROLE: role}, "policies": {}}))

    grant()
    with server("everstep_sandbox.storage", tmp_path / "storage", "--sandbox", str(tmp_path)) as storage:
        bucket = RealBucket(storage.address)
        bucket.history(backups=4, saves=3)
        policy = bucket.call("GET", f"/storage/v1/b/{bucket.name}/iam")
        policy["bindings"].append({"role": ROLE, "members": [SWEEPER]})
        bucket.call("PUT", f"/storage/v1/b/{bucket.name}/iam", policy)
        door = bucket.call("POST", "/_sandbox/doors", {"identity": SWEEPER.removeprefix("serviceAccount:")})["address"]
        allowed = set(IDENTITIES["sweeper"].bucket)
        while True:
            try:
                work(door, bucket.name)
                break
            except Forbidden as refusal:
                missed = (set(re.findall(r"storage\.\w+\.\w+", str(refusal))) & allowed) - granted
                assert missed, refusal
                granted |= missed
                grant()
        assert granted == allowed - UNSEEN
        assert len(bucket.dated()) == 2
        assert not any(".trash" in name for name in bucket.folders())


def work(address: str, bucket_name: str) -> None:
    """Plan, sweep, have it back, plan and sweep again, and empty the trash."""
    for last in (False, True):
        bucket = StorageAccess(endpoint=address).open(bucket_name)
        plan = plan_run(bucket, RUN, Policy({}, keep_last=2), now=LATER + timedelta(minutes=last))
        sweep.apply(bucket, plan, settings=SweepSettings(now=lambda: LATER, empty_now=last), objects_per_second=1e6)
        if not last:
            # What an earlier try that missed a right left, too.
            for plan_hash in {name.split("-")[-1] for name in trashes(bucket)}:
                full = plan.hash if plan.hash[7:19] == plan_hash else plan_hash
                sweep.undo(bucket, RUN, full, settings=SETTINGS)


def trashes(bucket: object) -> list[str]:
    """The trash folders of the run."""
    folders = bucket.list_level(f"{RUN}/").folders  # type: ignore[attr-defined]
    return [name for name in folders if name.startswith(".trash-")]

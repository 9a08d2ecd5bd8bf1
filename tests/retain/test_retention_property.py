"""Over random histories, whatever is swept and wherever a sweep dies: what the replicator would restore next is there.

A history is a run of some launches: backups that end, half uploads, forced restores, resizes, pins, damage, clocks that
go wrong, roll-backs, and sweeps in between, which die after any part of any batch of requests, are started again and
are undone. Beside the bucket stands its *shadow*, to which everything happens but sweeps (from the moment of planning
on). The replicator's choice is worked out by a model of its own, from what is known of the replicator, and must be the
same in both: the same folder, the same step, the same bytes. So must be what it would choose among those that a run
which was taken back may restore.

EVERSTEP_PROPERTY_HISTORIES says how many (`make property`: 100,000), EVERSTEP_PROPERTY_SEED where to begin.
"""

from __future__ import annotations

import json
import os
import random
import re
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from tests.retain.retention_bucket import digest_of
from tests.retain.swept_bucket import SweptBucket

from everstep.checkpoints.layout import RunFolder
from everstep.clients import bulk_requests as bulk
from everstep.retain import deciding, reading, remembered, sweep_steps, undo_steps
from everstep.retain.bucket_rules import BucketRules
from everstep.retain.plan import RetentionPlan, RetentionRefused, verify
from everstep.retain.policy import Policy
from everstep.retain.protections import Settings
from everstep.retain.sweep_report import SweepSettings, SweepStopped

HISTORIES = int(os.environ.get("EVERSTEP_PROPERTY_HISTORIES", "2000"))
SEED = int(os.environ.get("EVERSTEP_PROPERTY_SEED", "1"))
FOLDER = RunFolder("bucket", "run")

Choice = tuple[str, int, tuple[tuple[str, bytes], ...]] | None


def replicator_choice(bucket: SweptBucket, *, within_bound: bool = False) -> Choice:
    """What the replicator would restore, and all that it would copy. Written from its facts, not from our code.

    :param within_bound: what it would restore once somebody has put out of its way what the run must not restore
    """
    record = json.loads(bucket.objects["run/everstep/run.json"][0])
    bound = record["bound_step"] if within_bound else None
    forced = None if within_bound else bucket.objects.get("run/restore.version")
    inside: dict[str, list[str]] = {}
    for name in bucket.objects:
        match = re.match(r"run/(....-..-.._..-..)/(.+)", name)
        if match:
            inside.setdefault(match[1], []).append(match[2])
    candidates = [forced[0].decode().strip()] if forced else sorted(inside, reverse=True)
    for candidate in candidates:
        names = inside.get(candidate, [])
        metas: dict[int, dict[int, str]] = {}
        for name in names:
            meta = re.fullmatch(r"run-s([0-9]+)-n([0-9]+)-w0\.meta", name)
            if meta:
                body = bucket.objects[f"run/{candidate}/{name}"][0].decode().strip()
                metas.setdefault(int(meta[1]), {})[int(meta[2])] = body
        data = {name.split("/")[0] for name in names if "/" in name}
        for step in sorted(metas, reverse=True):
            digests = inferred(metas[step], record["nodes"], record["data_parallelism"])
            if step and digests and all(f"{digest}.data" in data for digest in digests):
                if bound is not None and step > bound:
                    break
                wanted = tuple(f"{digest}.data/" for digest in digests)
                copied = sorted(name for name in names if name.startswith(wanted) or f"-s{step}-" in name)
                return candidate, step, tuple((name, bucket.objects[f"run/{candidate}/{name}"][0]) for name in copied)
    return None


def inferred(known: dict[int, str], nodes: int, parallelism: int | None) -> list[str] | None:
    columns = nodes // parallelism if parallelism and nodes % parallelism == 0 else 0
    found = []
    for node in range(nodes):
        digest = known.get(node)
        if digest is None and columns:
            column = {known[other] for other in range(node % columns, nodes, columns) if other in known}
            digest = column.pop() if len(column) == 1 else None
        if digest is None:
            return None
        found.append(digest)
    return found


def if_forced(bucket: SweptBucket, name: str) -> Choice:
    imagined = bucket.copy()
    imagined.put("run/restore.version", name)
    return replicator_choice(imagined)


class Killed(Exception):
    """The sweep died."""


class History:
    """One run's life, told at random."""

    def __init__(self, seed: int, seen: Counter[str]) -> None:
        self.chance = random.Random(seed)
        self.seen = seen
        self.now = datetime(2026, 3, 1, tzinfo=UTC)
        self.bucket = SweptBucket(hierarchical=self.chance.random() < 0.6, clock=self.now)
        self.shadow = self.bucket
        self.step = 0
        self.nodes = self.chance.choice([1, 2, 2, 4])
        self.parallelism = self.chance.choice([None, None, 1, 2])
        self.bound: int | None = None
        self.uploading: list[tuple[str, bytes | str]] = []
        self.both(self.write_record)

    def both(self, change: Callable[[SweptBucket], None]) -> None:
        """Change the bucket and, where there is one, its shadow."""
        self.bucket.clock = self.shadow.clock = self.now
        change(self.bucket)
        if self.shadow is not self.bucket:
            change(self.shadow)

    def write_record(self, bucket: SweptBucket) -> None:
        bucket.run_record("run", nodes=self.nodes, data_parallelism=self.parallelism, bound_step=self.bound)

    def live(self, epochs: int) -> None:
        for _ in range(epochs):
            for _ in range(self.chance.randrange(1, 7)):
                self.happen()
            self.sweep()

    def happen(self, *, damage: bool = True) -> None:
        events: list[tuple[int, Callable[[], None]]] = [
            (60, self.backup),
            (8, self.half_upload),
            (6, self.upload_on),
            (4, self.force),
            (3, self.unforce),
            (3, self.resize),
            (2, self.take_back),
            (3, self.pin),
            (3 if damage else 0, self.damage),
            (3, self.empty_folder),
            (2, self.leftover),
            (2, self.future),
            (2, self.save),
        ]
        kind = self.chance.choices([each for _, each in events], [weight for weight, _ in events])[0]
        self.seen[kind.__name__] += 1
        kind()

    def backup(self) -> None:
        self.half_upload()
        self.upload_on(everything=True)

    def half_upload(self) -> None:
        """A new folder; its metas and data come in any order and may end anywhere."""
        self.now += timedelta(minutes=self.chance.choice([0, 7, 30, 60, 60, 24 * 60, 40 * 24 * 60]))
        self.step = max(0, self.step + self.chance.choice([-5, 0, 10, 10, 10, 10]))
        name = f"{self.now:%Y-%m-%d_%H-%M}"
        columns = self.nodes
        if self.parallelism and self.nodes % self.parallelism == 0:
            columns = self.nodes // self.parallelism
        metas: list[tuple[str, bytes | str]] = []
        data: dict[str, bytes | str] = {}
        for node in range(self.nodes):
            digest = digest_of(f"{self.step} {node % columns} {name}")
            metas.append((f"run/{name}/run-s{self.step}-n{node}-w0.meta", digest))
            data[f"run/{name}/{digest}.data/d/0"] = f"{self.step} {node % columns}"
            data[f"run/{name}/{digest}.data/manifest"] = b"m"
        rest: list[tuple[str, bytes | str]] = list(data.items())
        self.chance.shuffle(rest)
        self.uploading = metas + rest
        self.both(lambda bucket: bucket.folders.add(f"run/{name}/") if bucket.hierarchical else None)
        self.upload_on()

    def upload_on(self, *, everything: bool = False) -> None:
        count = len(self.uploading) if everything else self.chance.randrange(len(self.uploading) + 1)
        now, self.uploading = self.uploading[:count], self.uploading[count:]
        self.both(lambda bucket: [bucket.put(name, body) for name, body in now] and None)

    def names(self) -> list[str]:
        return sorted({name.split("/")[1] for name in self.bucket.objects if re.match(r"run/....-..-.._..-../", name)})

    def force(self) -> None:
        """Somebody who looked first: what a sweep without folders has begun to delete is no longer complete."""
        names = [name for name in self.names() if if_forced(self.bucket, name) == if_forced(self.shadow, name)]
        if names:
            name = self.chance.choice(names)
            self.both(lambda bucket: bucket.put("run/restore.version", name + self.chance.choice(["", "\n"])))

    def unforce(self) -> None:
        self.both(lambda bucket: bucket.objects.pop("run/restore.version", None) and None)

    def resize(self) -> None:
        self.nodes = self.chance.choice([1, 2, 3, 4])
        self.both(self.write_record)

    def take_back(self) -> None:
        """The run is to go on from an earlier step; nobody has moved away yet what is above it."""
        self.bound = self.chance.choice([None, max(0, self.step - 10 * self.chance.randrange(8))])
        self.both(self.write_record)

    def pin(self) -> None:
        if names := self.names():
            pins = {"names": {self.chance.choice(names): {"reason": "r", "by": "b", "until": None}}}
            self.both(lambda bucket: bucket.put("run/everstep/pins.json", json.dumps(pins)))

    def damage(self) -> None:
        """Somebody removes an object of a backup."""
        found = sorted(name for name in self.bucket.objects if re.match(r"run/....-..-.._..-../", name))
        if found:
            name = self.chance.choice(found[-12:])
            self.both(lambda bucket: bucket.objects.pop(name, None) and None)

    def empty_folder(self) -> None:
        if self.bucket.hierarchical:
            self.both(lambda bucket: bucket.folders.add(f"run/{self.now - timedelta(days=2):%Y-%m-%d_%H-%M}/"))

    def leftover(self) -> None:
        stamp = self.now - timedelta(hours=self.chance.randrange(100))
        name = self.chance.choice([f".trash-{stamp:%Y%m%dT%H%M%SZ}", "_todelete_1", "x.tmp"])
        self.both(lambda bucket: bucket.put(f"run/{name}/2026-01-01_00-00/x"))

    def future(self) -> None:
        """The coordinator's clock is ahead for one backup."""
        here, self.now = self.now, self.now + timedelta(days=self.chance.choice([1, 400]))
        self.half_upload()
        self.upload_on(everything=self.chance.random() < 0.7)
        self.now = here

    def save(self) -> None:
        step = self.step
        self.both(lambda bucket: bucket.put(f"run/checkpoints/{step}/state/manifest.ocdbt"))
        if self.chance.random() < 0.8:
            self.both(lambda bucket: bucket.put(f"run/checkpoints/{step}/commit_success.txt"))

    def sweep(self) -> None:
        """Plan, let something happen, sweep; die and go on."""
        skew = timedelta(hours=self.chance.choice([0, 0, 0, 1, 30, -30]))
        self.now += timedelta(hours=self.chance.choice([0, 2, 50]))
        self.shadow = self.bucket.copy()
        plan = self.plan(self.now + skew)
        if plan is None:
            return
        self.seen["plans"] += 1
        self.seen["plans that sweep"] += bool(plan.swept)
        self.seen["units"] += len(plan.swept)
        while self.chance.random() < 0.3:
            self.happen()
        for _ in range(4):
            try:
                self.carry_out(sweep_steps.sweep(plan, self.settings(skew)), die=self.chance.random() < 0.6)
                break
            except Killed:
                self.seen["killed"] += 1
                self.check("killed")
                if self.chance.random() < 0.3:
                    break
                if self.chance.random() < 0.2:
                    # What is damaged once others have gone, nobody can make good.
                    self.happen(damage=False)
            except (SweepStopped, RetentionRefused):
                self.seen["stopped"] += 1
                break
        self.check("swept")
        if self.bucket.hierarchical and self.chance.random() < 0.4:
            self.undo(plan, skew)

    def undo(self, plan: RetentionPlan, skew: timedelta) -> None:
        """Put back; die and go on. What came back is not taken again by the same plan."""
        for _ in range(3):
            try:
                steps = undo_steps.undo(FOLDER, plan.hash, self.settings(skew))
                self.carry_out(steps, die=self.chance.random() < 0.5)
                self.seen["undone"] += 1
                with pytest.raises(RetentionRefused, match="undone"):
                    self.carry_out(sweep_steps.sweep(plan, self.settings(skew)), die=False)
                break
            except Killed:
                self.check("undo killed")
            except RetentionRefused:
                # Nothing went, or its trash was emptied at once.
                self.seen["nothing to undo"] += 1
                break
        self.check("undone")

    def plan(self, now: datetime) -> RetentionPlan | None:
        settings = Settings(
            keep_complete=self.chance.choice([1, 2]), incomplete=timedelta(hours=self.chance.choice([1, 24]))
        )
        counts = (0, 1, 2, "always")
        policy = Policy(
            {period: self.chance.choice(counts) for period in ("hourly", "daily", "weekly", "monthly")},  # type: ignore[misc]
            keep_last=self.chance.choice([1, 1, 2]),
            prefer_recent=self.chance.random() < 0.5,
        )
        try:
            found = self.bucket.carry_out(
                reading.read(FOLDER, now=now, keep_complete=settings.keep_complete, grace=settings.incomplete)
            )
            document = remembered.document(found, None, now)
            self.bucket.put(remembered.object_name(FOLDER), json.dumps(document))
            rules = BucketRules(self.bucket.hierarchical)
            plan = deciding.make(found, policy, now=now, rules=rules, settings=settings, force="run")
        except RetentionRefused:
            self.seen["refused"] += 1
            return None
        return verify(plan.to_json())

    def settings(self, skew: timedelta) -> SweepSettings:
        return SweepSettings(
            now=lambda: self.now + skew,
            together=self.chance.choice([1, 2, 32]),
            empty_now=self.chance.random() < 0.2,
        )

    def carry_out(self, steps: bulk.BulkSteps[Any], *, die: bool) -> None:
        fatal = self.chance.randrange(1, 14) if die else 0
        answers: list[Any] | None = None
        number = 0
        while True:
            try:
                batch = list(next(steps) if answers is None else steps.send(answers))
            except StopIteration:
                return
            number += 1
            self.seen["requests"] += len(batch)
            if number == fatal:
                # All of a batch may be under way at once: any part of it was done.
                for request in self.chance.sample(batch, self.chance.randrange(len(batch) + 1)):
                    self.bucket.answer(request)
                steps.close()
                raise Killed
            answers = []
            for request in batch:
                answers.append(self.bucket.answer(request))
                if isinstance(request, bulk.MUTATIONS):
                    self.check(f"in a sweep, after {request}")
            if self.uploading and self.chance.random() < 0.1:
                self.seen["uploads beside a sweep"] += 1
                self.upload_on()

    def check(self, when: str) -> None:
        found, expected = replicator_choice(self.bucket), replicator_choice(self.shadow)
        self.seen["restorable"] += expected is not None
        assert found == expected, (when, _shown(found), _shown(expected))
        if self.bound is not None:
            found, expected = (replicator_choice(each, within_bound=True) for each in (self.bucket, self.shadow))
            self.seen["within a bound"] += expected is not None
            assert found == expected, (when, self.bound, _shown(found), _shown(expected))


def _shown(choice: Choice) -> Any:
    return choice and choice[:2]


def test_what_the_replicator_would_restore_outlives_every_sweep() -> None:
    seen: Counter[str] = Counter()
    for seed in range(SEED, SEED + HISTORIES):
        history = History(seed, seen)
        try:
            history.live(history.chance.randrange(1, 4))
        except AssertionError as lost:
            raise AssertionError(
                f"history {seed}: EVERSTEP_PROPERTY_HISTORIES=1 EVERSTEP_PROPERTY_SEED={seed}"
            ) from lost
    print(dict(seen))
    for kind in (
        "units",
        "killed",
        "stopped",
        "force",
        "damage",
        "resize",
        "uploads beside a sweep",
        "restorable",
        "undone",
    ):
        assert seen[kind] > HISTORIES / 100, (kind, seen)


@pytest.mark.parametrize("order", ["data first", "metas first"])
def test_the_property_finds_a_sweep_that_deletes_in_the_wrong_order(order: str) -> None:
    """The replicator takes a backup that has lost data for whole: so deleting data first must be found out."""
    history = History(1, Counter())
    history.nodes, history.parallelism = 2, None
    history.both(history.write_record)
    history.backup()
    history.step = 10
    history.backup()
    history.shadow = history.bucket.copy()
    kind = "/manifest" if order == "data first" else ".meta"
    name = next(name for name in sorted(history.bucket.objects, reverse=True) if name.endswith(kind))
    del history.bucket.objects[name]
    with pytest.raises(AssertionError):
        history.check("by hand")

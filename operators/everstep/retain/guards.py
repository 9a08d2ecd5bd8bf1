"""What protects backups, read again from the bucket while a sweep goes on. Pure: steps for a bulk client.

Two listings tell whether anything changed: of the run's folder (restore.version, the backups themselves) and of
Everstep's records in it (lease, run.json, pins). Only what changed is read.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from everstep.checkpoints import catalogue as catalogues
from everstep.checkpoints.catalogue import BackupState
from everstep.checkpoints.layout import DURABLE, RESTORE_VERSION, RunFolder
from everstep.clients import bulk_requests as bulk
from everstep.clients.requests import Listing, ListRequest, ReadRequest
from everstep.retain import fingerprints, records
from everstep.retain.plan import RetentionPlan, RetentionRefused
from everstep.retain.sweep_report import SweepSettings, SweepStopped
from everstep.spec.findings import Finding, error

AGAIN = "make a new plan: everstep retain plan {run}"


@dataclass(frozen=True)
class Protections:
    """What must stay, as of the last look. `level` is the listing of the run's folder."""

    level: Listing
    forced: str | None = None
    forced_generation: int = 0
    pins: tuple[str, ...] = ()
    pins_generation: int = 0
    record_generation: int = 0
    newest_complete: tuple[str, ...] = ()

    @cached_property
    def folders(self) -> frozenset[str]:
        """Return the names of the folders right below the run."""
        return frozenset(self.level.folders)

    def is_listed(self, name: str) -> bool:
        """Say whether a folder is there in which nothing is listed; of those below others that is not known."""
        return "/" in name or name in self.folders

    def is_forced_into(self, name: str) -> bool:
        """Say whether restore.version names something inside a folder."""
        return (self.forced or "").startswith(f"{name}/")

    def why(self, name: str) -> str | None:
        """Return why something must stay, None when nothing protects it."""
        if name == self.forced:
            return "named by restore.version"
        if name in self.pins:
            return "pinned"
        return "among the newest complete ones" if name in self.newest_complete else None


@dataclass
class Guard:
    """Looks at what protects, for one plan. `made` are the folders that this sweep has made."""

    plan: RetentionPlan
    folder: RunFolder
    settings: SweepSettings
    made: set[str] = field(default_factory=set)
    known: Protections = field(init=False)

    def __post_init__(self) -> None:
        read = self.plan.protected_read
        self.known = Protections(
            Listing((), ()),
            read.forced_restore,
            read.forced_generation,
            read.pins,
            read.pins_generation,
            read.run_record_generation,
            read.newest_complete,
        )

    def look(self) -> bulk.BulkSteps[Protections]:
        """Look again. Raises SweepStopped when the sweep must not go on."""
        folder = self.folder
        answers = yield [ListRequest(folder.prefix), ListRequest(folder.records_prefix)]
        level, own = bulk.listing(answers[0]), bulk.listing(answers[1])
        generations = {folder.records_prefix + each.name: each.generation for each in own.objects}
        self._check_lease(generations.get(folder.lease, 0))
        forced = next((each.generation for each in level.objects if each.name == RESTORE_VERSION), 0)
        known = replace(self.known, level=level)
        if forced != known.forced_generation:
            body = (yield from _body(folder.restore_version)) if forced else None
            text = body.decode(errors="replace").strip() if body is not None else None
            known = replace(known, forced=text, forced_generation=forced)
        pins = generations.get(records.pins_object(folder), 0)
        if pins != known.pins_generation:
            body = (yield from _body(records.pins_object(folder))) if pins else None
            known = replace(known, pins=self._pinned(body), pins_generation=pins)
        record = generations.get(folder.run_record, 0)
        if record != known.record_generation:
            body = (yield from _body(folder.run_record)) if record else None
            self._check_record(body)
            known = replace(known, record_generation=record)
        self._check_newest(known)
        self.known = known
        return known

    def validate(self) -> bulk.BulkSteps[None]:
        """Judge the newest complete ones anew, which the plan relied on. Raises SweepStopped when one is not whole."""
        names = self.plan.protected_read.newest_complete
        if not names:
            return
        answers = yield [ListRequest(f"{self.folder.prefix}{name}/") for name in names]
        broken = []
        for name, answer in zip(names, answers, strict=True):
            level = bulk.listing(answer)
            planned = self.plan.named(name)
            if planned is not None and planned.fingerprint == fingerprints.of_listing(level.objects, level.folders):
                continue
            if name.startswith(f"{DURABLE}/") or not self._is_complete(name, level):
                broken.append(self._finding(f"{self.folder.prefix}{name}/", "not as complete as when it was planned"))
        self._stop(broken)

    def _is_complete(self, name: str, level: Listing) -> bool:
        read = catalogues.read_listing(name, level.objects, level.folders)
        found = catalogues.build(
            self.folder.run,
            [read],
            self.plan.shape,
            now=self.settings.now(),
            grace=self.settings.now() - self.plan.made_at,
        )
        return [each.state for each in found.backups] == [BackupState.COMPLETE]

    def _check_lease(self, generation: int) -> None:
        expected = self.settings.fence()
        if expected is not None and generation != expected:
            lost = error(
                self.folder.url(self.folder.lease),
                "taken over by somebody else",
                f"generation {expected}",
                "see what goes on with the run; then apply the plan again",
            )
            self._stop([lost])

    def _check_newest(self, known: Protections) -> None:
        self._stop(
            [
                self._finding(f"{self.folder.prefix}{name}/", "no such folder", "a complete backup, as planned")
                for name in self.plan.protected_read.newest_complete
                if "/" not in name and name not in known.folders
            ]
        )

    def _check_record(self, body: bytes | None) -> None:
        """The run may have been launched again; but not taken back, and not with another shape."""
        read, shape = self.plan.protected_read, self.plan.shape
        expected: dict[str, Any] = {
            "lineage": read.lineage,
            "bound_step": read.bound_step,
            "quarantined": sorted(read.quarantined),
        }
        if read.run_record_generation:
            expected |= {
                "nodes": shape.nodes,
                "workers_per_node": shape.workers_per_node,
                "data_parallelism": shape.data_parallelism,
            }
        try:
            record = records.parse_run_record(self.folder, body)
        except RetentionRefused as refused:
            raise SweepStopped(refused.title, refused.findings) from None
        found = {key: record.get(key) for key in expected}
        found["quarantined"] = sorted(found["quarantined"] or ())
        other = [key for key in expected if found[key] != expected[key]]
        if "data_parallelism" in other and {found["data_parallelism"], expected["data_parallelism"]} == {None, 1}:
            # Both say that there is none.
            other.remove("data_parallelism")
        if other:
            shown, planned = (", ".join(f"{key} {each[key]!r}" for key in other) for each in (found, expected))
            self._stop([self._finding(self.folder.run_record, shown, f"{planned}, as planned")])

    def _pinned(self, body: bytes | None) -> tuple[str, ...]:
        if body is None:
            return ()
        try:
            return tuple(sorted(records.parse_pins(self.folder, body, self.settings.now())))
        except RetentionRefused as refused:
            raise SweepStopped(refused.title, refused.findings) from None

    def _finding(self, place: str, found: str, expected: str = "") -> Finding:
        remedy = AGAIN.format(run=self.folder.url())
        return error(self.folder.url(place), found, expected, remedy)

    def _stop(self, findings: Sequence[Finding]) -> None:
        if findings:
            raise SweepStopped(f"the sweep of run {self.folder.run!r} does not go on", findings)


def _body(name: str) -> bulk.BulkSteps[bytes | None]:
    answer = (yield [ReadRequest(name)])[0]
    found = bulk.stored(answer)
    return None if found is None else found.body

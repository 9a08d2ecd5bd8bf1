"""``everstep retain``: which backups of a run may go, and why."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from everstep.cli import retain_apply

if TYPE_CHECKING:
    from argparse import _SubParsersAction

    from everstep.checkpoints.completeness import Shape
    from everstep.checkpoints.layout import RunFolder
    from everstep.clients.storage import BucketClient
    from everstep.retain.plan import RetentionPlan
    from everstep.retain.policy import Policy
    from everstep.retain.protections import Settings
    from everstep.spec.training import RetentionSpec, TrainingSpec

DESCRIPTION = """Plans which backups and saves of a run go, explains it, and pins what must stay. RUN is a run file
(dags/runs/NAME.yaml), whose retention counts, or gs://BUCKET/RUN with --keep."""

# Somebody waits for the answer.
PATIENCE_SECONDS = 30.0


def add_commands(subparsers: _SubParsersAction[argparse.ArgumentParser]) -> None:
    """Adds the verb."""
    parser = subparsers.add_parser("retain", help="which old backups may go", description=DESCRIPTION)
    verbs = parser.add_subparsers(dest="retain_verb", metavar="VERB", required=True)
    planning = verbs.add_parser("plan", help="decide what would be swept, and save it; removes nothing")
    _add_planning(planning)
    planning.add_argument("--out", type=Path, metavar="FILE", help="save the plan, for `everstep retain apply FILE`")
    planning.add_argument("--html", type=Path, metavar="FILE", help="save it as a page too")
    planning.add_argument("--calendar", action="store_true", help="also show a line for each day")
    planning.add_argument(
        "--force", metavar="RUN", help="the run's name: make the plan though it removes a large share"
    )
    planning.add_argument("--measure", action="store_true", help="count what would go instead of estimating it")
    planning.set_defaults(run=plan)
    explaining = verbs.add_parser("explain", help="say why one backup stays or would go")
    _add_planning(explaining)
    explaining.add_argument("name", help="such as 2026-03-01_00-00, or checkpoints/500")
    explaining.set_defaults(run=explain, force=None, measure=False)
    _add_pins(verbs)
    retain_apply.add_verbs(verbs)


def _add_planning(parser: argparse.ArgumentParser) -> None:
    _add_run(parser)
    parser.add_argument(
        "--keep",
        action="append",
        default=[],
        metavar="RULE=VALUE",
        help="a rule of the retention of run files, in place of the run file's: --keep hourly=24 --keep monthly=always",
    )
    parser.add_argument(
        "--shape",
        metavar="NODES[xWORKERS][/D]",
        help="of the job that wrote the backups, where run.json does not say it",
    )


def _add_run(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run_name", metavar="RUN", help="a run file, or gs://BUCKET/RUN")
    parser.add_argument("--endpoint", default="", help="address of the storage API (default: Google's)")


def _add_pins(verbs: _SubParsersAction[argparse.ArgumentParser]) -> None:
    pinning = verbs.add_parser("pin", help="keep a backup or save whatever the policy says")
    _add_run(pinning)
    pinning.add_argument("name", help="such as 2026-03-01_00-00, or checkpoints/500")
    pinning.add_argument("--reason", required=True, help="why it must stay")
    pinning.add_argument("--until", metavar="DATE", help="a day or a time; without it, until it is unpinned")
    pinning.set_defaults(run=pin)
    unpinning = verbs.add_parser("unpin", help="leave it to the policy again")
    _add_run(unpinning)
    unpinning.add_argument("name")
    unpinning.set_defaults(run=unpin)


def plan(arguments: argparse.Namespace) -> int:
    """Prints the plan and saves it where asked."""
    from everstep.retain import report

    made = _planned(arguments)
    print(report.table(made))
    if arguments.calendar:
        print(report.calendar(made))
    print(report.summary(made), flush=True)
    if arguments.html:
        _save(arguments.html, report.page(made))
    if arguments.out:
        _save(arguments.out, made.to_json())
        print(f"saved as {arguments.out} ({made.hash}); everstep retain apply {arguments.out}")
    return 0


def explain(arguments: argparse.Namespace) -> int:
    """Prints why; 1 if there is nothing of that name."""
    from everstep.retain import pins, report

    made = _planned(arguments)
    name = pins.full_name(arguments.name)
    why = report.explain(made, name)
    print(why or f"gs://{made.bucket}/{made.run}/{name}: no backup, save or leftover of that name")
    return 0 if why else 1


def pin(arguments: argparse.Namespace) -> int:
    """Pins; refuses what is not there."""
    from everstep.retain import pins, somebody

    bucket, run, _, _ = _opened(arguments)
    name = pins.pin(bucket, run, arguments.name, reason=arguments.reason, by=somebody.user(), until=arguments.until)
    print(f"gs://{bucket.name}/{run}/{name} is pinned")
    return 0


def unpin(arguments: argparse.Namespace) -> int:
    """Unpins."""
    from everstep.retain import pins

    bucket, run, _, _ = _opened(arguments)
    was = pins.unpin(bucket, run, arguments.name)
    print(f"gs://{bucket.name}/{run}/{arguments.name} {'is no longer pinned' if was else 'was not pinned'}")
    return 0


def _save(path: Path, text: str) -> None:
    """Write a file whole or not at all; a device, as it takes it. Raises FindingsError."""
    from everstep.spec.findings import FindingsError, error

    is_device = path.exists() and not path.is_file()
    written = path if is_device else path.with_name(f".{path.name}.part")
    try:
        written.write_text(text, encoding="utf-8")
        if not is_device:
            written.replace(path)
    except OSError as failure:
        if not is_device:
            written.unlink(missing_ok=True)
        remedy = "give another place: nothing was removed, and the plan can be made again"
        raise FindingsError(
            "the plan is not saved", [error(str(path), failure.strerror or str(failure), "a file to write to", remedy)]
        ) from None


def _planned(arguments: argparse.Namespace) -> RetentionPlan:
    from datetime import UTC, datetime

    from everstep.retain import planning

    bucket, run, policy, settings = _opened(arguments)
    return planning.plan_run(
        bucket,
        run,
        policy,
        now=datetime.now(UTC),
        shape=_shape(arguments.shape),
        settings=settings,
        force=arguments.force,
        measure=arguments.measure,
    )


def _opened(arguments: argparse.Namespace) -> tuple[BucketClient, str, Policy, Settings]:
    """Return the run's bucket, its name, and what its retention says."""
    from everstep.clients.access import StorageAccess
    from everstep.retain import of_spec
    from everstep.spec.findings import FindingsError, error

    where: str = arguments.run_name
    keep = _rules(getattr(arguments, "keep", []))
    folder, spec = run_named(where)
    if spec is None:
        if hasattr(arguments, "keep") and not keep:
            raise FindingsError(
                "no retention is given",
                [error(where, "no run file", "its retention", "say it: --keep hourly=24 --keep daily=7 …")],
            )
        retention = _retention({"hourly": 0, "daily": 0, "weekly": 0, "monthly": 0, "yearly": 0, **keep})
    else:
        retention = _retention({**spec.retention.model_dump(), **keep})
    bucket = StorageAccess(endpoint=arguments.endpoint).open(folder.bucket, patience=PATIENCE_SECONDS)
    return bucket, folder.run, of_spec.policy(retention), of_spec.settings(retention)


def run_named(where: str) -> tuple[RunFolder, TrainingSpec | None]:
    """Return the run that somebody typed: the place of one, or a run file and what it says."""
    from everstep.retain.place import run_folder, run_of_url
    from everstep.spec.findings import FindingsError, error
    from everstep.spec.training import TrainingSpec

    if where.startswith("gs://"):
        return run_of_url(where), None
    if not where.endswith((".yaml", ".yml")) and not Path(where).is_file():
        raise FindingsError("no run is named", [error("RUN", repr(where), "a run file, or gs://BUCKET/RUN")])
    spec = TrainingSpec.from_yaml(where, beside=Path.cwd())
    return run_folder(spec.bucket, spec.name), spec


def _retention(data: dict[str, object]) -> RetentionSpec:
    from everstep.spec.parsing import parse
    from everstep.spec.training import RetentionSpec

    return parse(RetentionSpec, data, "--keep")


def _rules(texts: list[str]) -> dict[str, object]:
    import yaml

    from everstep.spec.findings import FindingsError, error

    rules: dict[str, object] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        try:
            rules[name] = yaml.safe_load(value)
        except yaml.YAMLError:
            equals = ""
        if not equals:
            raise FindingsError("a rule can't be read", [error("--keep", repr(text), "RULE=VALUE, such as hourly=24")])
    return rules


def _shape(text: str | None) -> Shape | None:
    import re

    from everstep.checkpoints.completeness import Shape
    from everstep.spec.findings import FindingsError, error

    if text is None:
        return None
    match = re.fullmatch(r"([1-9][0-9]{0,4})(?:x([1-9][0-9]{0,2}))?(?:/([1-9][0-9]{0,4}))?", text)
    if match is None:
        raise FindingsError(
            "the shape can't be read",
            [error("--shape", repr(text), "NODES[xWORKERS][/DATA_PARALLELISM], such as 8/2; at most 99999x999")],
        )
    nodes, workers, groups = match.groups()
    return Shape(int(nodes), int(workers or 1), int(groups) if groups else None)

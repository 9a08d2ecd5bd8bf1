"""What a run's records say that retention goes by: its shape, its bound and quarantine, its pins. Pure.

What can't be understood is refused and never taken for nothing: without its bound or its pins, the wrong backups would
be protected.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any

from everstep.checkpoints.completeness import Shape
from everstep.checkpoints.layout import RunFolder
from everstep.retain.plan import RetentionRefused
from everstep.spec.findings import error


def pins_object(folder: RunFolder) -> str:
    """Return where pins stand: `{"names": {"2026-03-01_00-00": {"reason": …, "by": …, "until": …}}}`."""
    return f"{folder.records_prefix}pins.json"


def parse_pins(folder: RunFolder, body: bytes, now: datetime | None = None) -> dict[str, Any]:
    """Return the pins, those that hold now if it is given. Raises RetentionRefused when nothing is known of them."""
    try:
        pins = json.loads(body)["names"]
        return {
            str(name): pin
            for name, pin in pins.items()
            if not pin.get("until") or now is None or datetime.fromisoformat(pin["until"]) > now
        }
    except (ValueError, KeyError, TypeError, AttributeError) as failure:
        raise RetentionRefused(
            f"the pins of run {folder.run!r} can't be read",
            [
                error(
                    folder.url(pins_object(folder)),
                    f"{type(failure).__name__}: {failure}",
                    '{"names": {"<backup>": {"reason": "…", "by": "…", "until": null}}}, times with an offset',
                    "mend the object, or delete it and pin again: everstep retain pin RUN NAME --reason TEXT",
                )
            ],
        ) from None


def parse_run_record(folder: RunFolder, body: bytes | None) -> dict[str, Any]:
    """Return what run.json says, nothing where there is none. Raises RetentionRefused when it can't be understood."""
    if body is None:
        return {}
    try:
        record = json.loads(body)
        bound, quarantined = record.get("bound_step"), record.get("quarantined")
        if not (bound is None or (isinstance(bound, int) and not isinstance(bound, bool))):
            raise TypeError(f"bound_step {bound!r}")
        if not (quarantined is None or (isinstance(quarantined, list) and all(map(_is_text, quarantined)))):
            raise TypeError(f"quarantined {quarantined!r}")
    except (ValueError, TypeError, AttributeError) as failure:
        raise RetentionRefused(
            f"what run {folder.run!r} may restore is not known",
            [
                error(
                    folder.url(folder.run_record),
                    f"{type(failure).__name__}: {failure}",
                    "a JSON object; its bound_step, if any, a whole number, and quarantined, if any, a list of names",
                    "mend the object: by it the newest backups that the run may restore are protected",
                )
            ],
        ) from None
    return dict(record)


def told_shape(record: Mapping[str, Any]) -> Shape | None:
    """Return the shape that run.json tells, None when it does not."""
    try:
        return Shape(record["nodes"], record["workers_per_node"], record["data_parallelism"])
    except (KeyError, TypeError, ValueError):
        return None


def shape_of(folder: RunFolder, record: Mapping[str, Any], given: Shape | None) -> Shape:
    """Return the shape that a run's backups are judged by.

    Raises RetentionRefused when nothing tells it, or when what was given is not what run.json says: the run restores
    by the latter.

    :param record: what `parse_run_record` returned
    """
    told = told_shape(record)
    if told is None:
        if given is not None:
            return given
        raise RetentionRefused(
            f"the backups of run {folder.run!r} can't be judged",
            [
                error(
                    folder.url(folder.run_record),
                    "it does not say all of them" if record else "no such object",
                    "the run's nodes, workers_per_node and data_parallelism",
                    "say the shape that its backups were made with: --shape NODES[xWORKERS][/DATA_PARALLELISM]",
                )
            ],
        )
    if given is not None and _plain(given) != _plain(told):
        raise RetentionRefused(
            f"the backups of run {folder.run!r} are not judged by another shape than the run's",
            [error("--shape", shown(given), f"{shown(told)}, as run.json says", "leave --shape away")],
        )
    return told


def shown(shape: Shape) -> str:
    """Return a shape in words."""
    text = f"{shape.nodes} node" + ("s" if shape.nodes != 1 else "")
    if shape.workers_per_node > 1:
        text += f" of {shape.workers_per_node} workers"
    if shape.data_parallelism is not None and shape.data_parallelism > 1:
        text += f" in {shape.data_parallelism} groups of equal state"
    return text


def _plain(shape: Shape) -> Shape:
    return replace(shape, data_parallelism=None) if shape.data_parallelism == 1 else shape


def _is_text(value: object) -> bool:
    return isinstance(value, str)

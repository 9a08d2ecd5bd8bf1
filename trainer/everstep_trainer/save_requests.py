"""Sees that somebody asks for a planned save: an annotation of the pod, through the downward API volume."""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Callable
from pathlib import Path

from everstep_trainer.waiting import Deadline, wait_for

logger = logging.getLogger(__name__)

ANNOTATION = "everstep.dev/save-requested"
_FOREVER = 10 * 365 * 24 * 3600.0


def watch(pod_info: Path, call: Callable[[str], None]) -> None:
    """Call the function, on a thread of its own, with each identifier that the annotation takes."""
    threading.Thread(target=_watch, args=(pod_info, call), name="everstep-save-requests", daemon=True).start()


def requested(text: str) -> str | None:
    """The identifier in a downward API ``annotations`` file; None if nobody asks.

    Each line is ``key="value"`` with the value quoted as Go does, which for these characters is JSON.
    """
    for line in text.splitlines():
        key, separator, quoted = line.partition("=")
        if key != ANNOTATION or not separator:
            continue
        try:
            value = json.loads(quoted)
        except ValueError:
            logger.warning("annotation %s is not readable: %s", ANNOTATION, quoted)
            return None
        return str(value) or None
    return None


def _watch(pod_info: Path, call: Callable[[str], None]) -> None:
    seen: set[str] = set()

    def look() -> str | None:
        try:
            found = requested((pod_info / "annotations").read_text(encoding="utf-8"))
        except OSError:
            return None
        return None if found is None or found in seen else found

    try:
        while (found := wait_for(pod_info, look, Deadline(_FOREVER))) is not None:
            seen.add(found)
            call(found)
    except OSError as error:
        logger.warning("%s can't be watched, so saves can't be asked for: %s", pod_info, error)

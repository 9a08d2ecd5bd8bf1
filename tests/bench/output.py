"""Where figures go."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).resolve().parents[2]
FOLDER = REPOSITORY / "build" / "bench"


def write(name: str, content: dict[str, Any] | str) -> None:
    """Write a file below build/bench (a mapping as JSON) and say so."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    text = content if isinstance(content, str) else json.dumps(content, indent=2) + "\n"
    (FOLDER / name).write_text(text, encoding="utf-8")
    print(f"written to {(FOLDER / name).relative_to(REPOSITORY)}", flush=True)

"""Doors: a loopback address for each workload identity, by which its calls are known. They are kept over restarts."""

from __future__ import annotations

import json
from pathlib import Path

from everstep_sandbox.kubernetes.files import write_atomically

_FIRST = "127.8.{}.{}"
_MOST = 250 * 250


class Doors:
    """Identity -> address, one for each."""

    def __init__(self, directory: Path) -> None:
        self._path = directory / "doors.json"
        self._addresses: dict[str, str] = json.loads(self._path.read_text()) if self._path.exists() else {}

    @property
    def addresses(self) -> list[str]:
        return list(self._addresses.values())

    def address(self, identity: str) -> str:
        """The identity's address, a new one where it has none yet. Raises RuntimeError when all are taken."""
        if identity not in self._addresses:
            number = len(self._addresses)
            if number >= _MOST:
                raise RuntimeError(f"All {_MOST} addresses for identities are taken.")
            self._addresses[identity] = _FIRST.format(number // 250, number % 250 + 1)
            write_atomically(self._path, json.dumps(self._addresses, indent=1))
        return self._addresses[identity]

    def identity(self, address: str) -> str | None:
        """Whose address it is; None for one that is nobody's."""
        return next((identity for identity, own in self._addresses.items() if own == address), None)

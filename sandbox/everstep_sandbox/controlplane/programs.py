"""Where the programs of a real control plane are, once `make controlplane` has built them."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

DIRECTORY_VARIABLE = "EVERSTEP_CONTROLPLANE"
"""Environment variable that names another directory than the checkout's build/controlplane."""

_NEEDED = ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "jobset-controller")
_BUILD = "`make controlplane` builds it where Go 1.26 is present (about 10 minutes on 2 cores)."
_CHECKOUT = Path(__file__).resolve().parents[3]


class ProgramsMissing(Exception):
    """The control plane is not built; the text names what is missing and what to do."""


@dataclass(frozen=True, slots=True)
class Programs:
    """A directory with `bin/<program>` and `manifests/`, the JobSet controller's own."""

    directory: Path

    def path(self, name: str) -> Path:
        return self.directory / "bin" / name

    @property
    def manifests(self) -> Path:
        return self.directory / "manifests"


def find() -> Programs:
    """The programs that were built; raises ProgramsMissing."""
    named = os.environ.get(DIRECTORY_VARIABLE)
    directory = Path(named or _CHECKOUT / "build" / "controlplane")
    programs = Programs(directory)
    missing = [name for name in _NEEDED if not os.access(programs.path(name), os.X_OK)]
    if not programs.manifests.is_dir():
        missing.append("manifests")
    if missing:
        where = f"{directory}, which {DIRECTORY_VARIABLE} names" if named else str(directory)
        remedy = f"Name a directory that has them, or unset it to use the checkout's: {_BUILD}" if named else _BUILD
        raise ProgramsMissing(f"No real control plane in {where}: {', '.join(missing)} missing. {remedy}")
    return programs

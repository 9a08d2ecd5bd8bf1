"""Where run files and cluster files are found."""

from __future__ import annotations

import sys
from pathlib import Path

from everstep.spec.findings import FindingsError, error

_PACKAGE = Path(__file__).resolve().parent.parent


def calling_file() -> Path | None:
    """Return the first file on the call stack that is not Everstep's own, such as a DAG file; None in a console."""
    frame = sys._getframe(1)
    while frame is not None:
        name = frame.f_code.co_filename
        path = Path(name)
        if not name.startswith("<") and path.is_file() and _PACKAGE not in path.resolve().parents:
            return path.resolve()
        if frame.f_back is None:
            return None
        frame = frame.f_back
    return None


def locate(path: str | Path, beside: Path | None) -> Path:
    """Return an existing file: the path itself if absolute, else beside a file or in a folder, else below the cwd.

    Raises FindingsError that names every place it looked in.
    """
    path = Path(path)
    if path.is_absolute():
        places = [path]
    else:
        folders = [] if beside is None else [beside if beside.is_dir() else beside.parent]
        places = [folder / path for folder in dict.fromkeys([*folders, Path.cwd()])]
    for place in places:
        if place.is_file():
            return place.resolve()
    raise FindingsError(
        f"{path} was not found",
        [error(str(path), "no such file", f"a file at {' or '.join(map(str, places))}", "check the path")],
    )


def cluster_file(run_file: Path, cluster: str) -> Path:
    """Return the file of a cluster that a run file names. Raises FindingsError when there is none."""
    folders = [run_file.parent.parent / "clusters", run_file.parent / "clusters", run_file.parent]
    for folder in folders:
        place = folder / f"{cluster}.yaml"
        if place.is_file():
            return place
    known = sorted(path.stem for path in folders[0].glob("*.yaml")) if folders[0].is_dir() else []
    raise FindingsError(
        f"cluster {cluster!r} was not found",
        [
            error(
                f"{run_file.name}: cluster",
                repr(cluster),
                f"a file {folders[0] / f'{cluster}.yaml'}",
                f"clusters there are: {', '.join(known)}" if known else "write the cluster file",
            )
        ],
    )

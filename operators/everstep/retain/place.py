"""Where retention looks: exactly one run's folder, right below its bucket."""

from __future__ import annotations

from everstep.checkpoints.layout import RunFolder
from everstep.retain.plan import RetentionRefused
from everstep.spec.findings import FindingsError, error

ONE_RUN = "the name of one run's folder, right below the bucket"


def run_folder(bucket: str, run: str) -> RunFolder:
    """Return the folder of a run. Raises RetentionRefused for a name that is not exactly one folder."""
    is_name = run.strip() == run and run.isprintable() and not set(run) & set("/*?[]") and run not in ("", ".", "..")
    if not is_name:
        raise RetentionRefused(
            "retention looks at one run at a time", [error(f"gs://{bucket}", f"run {run!r}", ONE_RUN)]
        )
    return RunFolder(bucket, run)


def run_of_url(url: str) -> RunFolder:
    """Return the folder that `gs://BUCKET/RUN` names. Raises FindingsError for anything else."""
    bucket, _, run = url.removeprefix("gs://").removesuffix("/").partition("/")
    if not url.startswith("gs://") or not bucket or not run:
        raise FindingsError("no run is named", [error("RUN", repr(url), "a run file, or gs://BUCKET/RUN")])
    return run_folder(bucket, run)

"""Which run retention deals with, and what it may keep: from a run file, or from a bucket and a cluster file."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from everstep.checkpoints.layout import RECORDS, RunFolder
from everstep.clients.requests import ListRequest, Steps, listing
from everstep.retain.place import run_of_url
from everstep.spec.cluster import ClusterSpec
from everstep.spec.findings import FindingsError
from everstep.spec.parsing import parse
from everstep.spec.training import RetentionSpec, TrainingSpec


@dataclass(frozen=True)
class Target:
    """A run in a bucket, the cluster whose connections reach it, and its retention."""

    bucket: str
    run: str
    cluster: ClusterSpec
    retention: RetentionSpec

    @classmethod
    def of_spec(cls, spec: TrainingSpec) -> Target:
        """Return the run of a run file."""
        return cls(spec.bucket, spec.name, spec.cluster_spec, spec.retention)

    @classmethod
    def of_url(cls, url: str, cluster: ClusterSpec, retention: Mapping[str, Any] | None) -> Target:
        """Return the run of `gs://bucket/run`. Raises FindingsError.

        :param retention: as in a run file; the defaults without it
        """
        folder = run_of_url(url)
        return cls(folder.bucket, folder.run, cluster, parse(RetentionSpec, retention_of(retention), "retention"))


def retention_of(data: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return what a run file's `retention` says, as it was given. Raises FindingsError with all mistakes."""
    given = dict(data or {})
    parse(RetentionSpec, given, "retention")
    return given


def runs_in(bucket: str) -> Steps[list[str]]:
    """Return the runs in a bucket: the folders that hold records of Everstep. One request, and one for each folder."""
    names = listing((yield [ListRequest("")])[0]).folders
    if not names:
        return []
    answers = yield [ListRequest(f"{name}/{RECORDS}/") for name in names]
    found = []
    for name, answer in zip(names, answers, strict=True):
        if any(each.name == "run.json" for each in listing(answer).objects):
            found.append(RunFolder(bucket, name).run)
    return found


def buckets_of(cluster: ClusterSpec) -> list[str]:
    """Return the buckets that a cluster's runs are backed up to."""
    return sorted({each.bucket for each in cluster.checkpoint_configurations.values()})


def targets(
    clusters: Iterable[tuple[str, ClusterSpec]],
    runs_of: Mapping[str, Iterable[str]],
    run_files: Mapping[str, tuple[str, TrainingSpec]],
    retention: Mapping[str, Any],
) -> list[dict[str, Any]]:
    """Return the arguments of the retention of each run: its run file's if there is one, else its place.

    :param clusters: path and content of each cluster file
    :param runs_of: the runs that were found in each bucket
    :param run_files: path and content of each run file, by `gs://bucket/run`
    :param retention: of runs without one
    """
    found: dict[str, dict[str, Any]] = {}
    for path, cluster in clusters:
        for bucket in buckets_of(cluster):
            for run in runs_of.get(bucket, ()):
                url = RunFolder(bucket, run).url()
                known = run_files.get(url)
                place = {"run": known[0] if known else url, "cluster": path}
                found.setdefault(url, {**place, "retention": dict(retention)})
    return list(found.values())


def read_run_files(dag_file: Path, folder: str) -> tuple[dict[str, tuple[str, TrainingSpec]], list[str]]:
    """Return the run files of a folder beside a DAG file by `gs://bucket/run`, and what is wrong with others."""
    found: dict[str, tuple[str, TrainingSpec]] = {}
    wrong: list[str] = []
    for path in sorted((dag_file.parent / folder).glob("*.yaml")):
        name = path.relative_to(dag_file.parent).as_posix()
        try:
            spec = TrainingSpec.from_yaml(name, beside=dag_file)
        except FindingsError as failure:
            wrong.append(f"{name}: {failure}")
            continue
        found[RunFolder(spec.bucket, spec.name).url()] = (name, spec)
    return found, wrong

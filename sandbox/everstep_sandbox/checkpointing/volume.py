"""The checkpoint volume of a pod: mounting it and giving the pod its rank."""

from __future__ import annotations

import json
import threading
from dataclasses import asdict
from pathlib import Path
from typing import Any

from everstep_sandbox.checkpointing import names
from everstep_sandbox.checkpointing.ramdisk import RamDisk
from everstep_sandbox.checkpointing.rank_server import Report
from everstep_sandbox.checkpointing.web import WebError, call_json

_HOLD_SECONDS = 20
_PAUSE_SECONDS = 0.5
_READABLE = 0o555


class Volume:
    """One mount, from publish to unpublish; asks for the rank in a thread of its own."""

    def __init__(self, node_directory: Path, node: str, ranks_url: str) -> None:
        self._disk = RamDisk(node_directory)
        self._rank_data = node_directory / "rank-data"
        self._node = node
        self._ranks_url = ranks_url
        self._given_up = threading.Event()

    def publish(self, pod: dict[str, Any], pod_ip: str) -> Path:
        """The directory that the pod sees. A rank file of an earlier mount goes before the pod can read it."""
        self._disk.client.mkdir(parents=True, exist_ok=True)
        (self._disk.client / names.JAX_INIT_INFO).unlink(missing_ok=True)
        report = self._report(pod, pod_ip)
        if report is not None:
            threading.Thread(target=self._obtain_rank, args=(report,), daemon=True).start()
        return self._disk.client

    def unpublish(self) -> None:
        self._given_up.set()

    def _report(self, pod: dict[str, Any], pod_ip: str) -> Report | None:
        """None for a pod of no JobSet."""
        labels = pod.get("labels") or {}
        annotations = pod.get("annotations") or {}
        key = "batch.kubernetes.io/job-completion-index"
        index = annotations.get(key, labels.get(key))
        if "jobset.sigs.k8s.io/jobset-name" not in labels or index is None:
            return None
        return Report(
            node=self._node,
            namespace=pod["namespace"],
            jobset=labels["jobset.sigs.k8s.io/jobset-name"],
            pod_uid=pod["uid"],
            pod_ip=pod_ip,
            attempt=int(labels.get("jobset.sigs.k8s.io/restart-attempt", 0)),
            job_index=int(labels.get("jobset.sigs.k8s.io/job-index", 0)),
            completion_index=int(index),
            cached=self._cached(),
        )

    def _cached(self) -> dict[str, Any] | None:
        try:
            cached = json.loads(self._rank_data.read_text())
        except (FileNotFoundError, ValueError):
            return None
        return cached if isinstance(cached, dict) else None

    def _obtain_rank(self, report: Report) -> None:
        question = {**asdict(report), "wait": _HOLD_SECONDS}
        while not self._given_up.is_set():
            try:
                answer = call_json(
                    "POST",
                    f"{self._ranks_url}/ranks",
                    document=question,
                    timeout=_HOLD_SECONDS + 10,
                    tries=1,
                )
            except WebError:
                return
            except OSError:
                self._given_up.wait(_PAUSE_SECONDS)
                continue
            if "rank" in answer and not self._given_up.is_set():
                self._write(report, answer)
                return

    def _write(self, report: Report, answer: dict[str, Any]) -> None:
        remembered = {
            "job": f"{report.namespace}/{report.jobset}",
            "rank": answer["rank"],
            "slices": answer["slices"],
            "slice_size": answer["slice_size"],
        }
        aside = self._rank_data.with_name("rank-data.tmp")
        aside.write_text(json.dumps(remembered))
        aside.rename(self._rank_data)
        aside = self._disk.client / f".tmp.{names.JAX_INIT_INFO}"
        aside.unlink(missing_ok=True)
        aside.write_text(f"{answer['rank']}\n{answer['coordinator']}\n")
        aside.chmod(_READABLE)
        aside.rename(self._disk.client / names.JAX_INIT_INFO)

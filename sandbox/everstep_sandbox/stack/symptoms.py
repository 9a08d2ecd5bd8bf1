"""Faults beside those of the machines: each makes one symptom of a wrong setup, in the part where it belongs."""

from __future__ import annotations

import datetime
import json
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from everstep_sandbox.checkpointing.ramdisk import RamDisk
from everstep_sandbox.google import cluster_file
from everstep_sandbox.kubernetes.kubeconfig import read
from everstep_sandbox.stack.furnish import request
from everstep_sandbox.stack.record import Record

Object = dict[str, Any]

_CONFIGURATIONS = "/apis/checkpointing.gke.io/v1/checkpointconfigurations"
_FINALIZER = "everstep.dev/stuck"
_DRIVER = r"/ns/gke-managed-checkpointing/sa/gke-checkpointing-multitier-node$"
_OPERATION_SECONDS = 120.0


class NotPossible(Exception):
    """The fault can't be done as asked; the text says why."""


class Symptoms:
    """The parts of one sandbox that runs."""

    def __init__(self, directory: Path, record: Record) -> None:
        self._directory = directory
        self._record = record
        self.kinds: Mapping[str, Callable[[Object], Object]] = {
            "driver-denied": self._deny_driver,
            "bucket-flat": lambda asked: self._storage("POST", "flatten", {"bucket": asked["bucket"]}),
            "stuck-finalizer": self._hold_configuration,
            "node-pool-fails": self._fail_node_pools,
            "webhook-rejects": self._reject_jobsets,
            "replicator-says": self._say,
            "add-on-off": self._switch_off,
        }

    def _deny_driver(self, asked: Object) -> Object:
        """The drivers' principal may do nothing in Cloud Storage; they are started again, and stay in Init."""
        if asked.get("undo"):
            done = self._storage("DELETE", "denied")
        else:
            done = self._storage("POST", "denied", {"identity": _DRIVER})
        return {**done, **request("POST", f"{self._record.kubelet}/faults/restart-drivers", {})}

    def _hold_configuration(self, asked: Object) -> Object:
        path = f"{_CONFIGURATIONS}/{asked['name']}"
        metadata = self._kubernetes("GET", path)["metadata"]
        kept = [one for one in metadata.get("finalizers") or () if one != _FINALIZER]
        finalizers = kept if asked.get("undo") else [*kept, _FINALIZER]
        body = self._kubernetes("GET", path)
        body["metadata"]["finalizers"] = finalizers
        self._kubernetes("PUT", path, body)
        return {"configuration": asked["name"], "finalizers": finalizers}

    def _fail_node_pools(self, asked: Object) -> Object:
        if asked.get("undo"):
            return request("DELETE", f"{self._record.google}/_sandbox/failures")
        rule = {"match": "CREATE_NODE_POOL|SET_NODE_POOL_SIZE", "kind": asked["kind"], "times": asked["times"]}
        return request("POST", f"{self._record.google}/_sandbox/failures", rule)

    def _reject_jobsets(self, asked: Object) -> Object:
        url = f"{read(self._directory / 'kubeconfig').server}/_sandbox/faults"
        if asked.get("undo"):
            return request("DELETE", url)
        message = f'admission webhook "vjobset.kb.io" denied the request: {asked["message"]}'
        rule = {"match": "POST .*/jobsets", "status": 403, "times": asked["times"], "message": message}
        request("POST", url, rule)
        return {"rejected": asked["times"], "message": message}

    def _say(self, asked: Object) -> Object:
        """A line of a node's replicator: in its log, and in replicator.errors or replicator.failed beside it."""
        node = self._directory / "nodes" / asked["node"]
        folder = RamDisk(node).client
        if not folder.is_dir():
            raise NotPossible(f"{asked['node']} has no RAM disk; see everstep sandbox status for the nodes' names")
        level = {"errors": "ERR", "failed": "CRT"}[asked["file"]]
        moment = datetime.datetime.now(datetime.UTC)
        line = f"{moment:%Y-%m-%d %H:%M:%S}.000 1:1 job= node=/ [{level}] sandbox.fault(1): {asked['message']}"
        path = folder / f"replicator.{asked['file']}"
        with path.open("a", encoding="utf-8") as file:
            file.write(line + "\n")
        logs = sorted(node.glob("pods/*/logs/replication-worker.log"))
        for log in logs:
            with log.open("a", encoding="utf-8") as file:
                file.write(f"{moment:%Y-%m-%dT%H:%M:%S.%f}000Z stdout F {line}\n")
        return {"file": str(path), "line": line, "logs": [str(log) for log in logs]}

    def _switch_off(self, asked: Object) -> Object:
        """Through GKE's API, as somebody would do it."""
        known = cluster_file.read(self._directory)
        if known is None:
            raise NotPossible("the project has no cluster")
        wanted = {"highScaleCheckpointingConfig": {"enabled": bool(asked.get("undo"))}}
        body = {"update": {"desiredAddonsConfig": wanted}}
        operation = request("PUT", f"{self._record.google}/v1/{known.name}", body)
        parent = known.name.rpartition("/clusters/")[0]
        deadline = time.monotonic() + _OPERATION_SECONDS
        while operation["status"] != "DONE" and time.monotonic() < deadline:
            time.sleep(0.1)
            operation = request("GET", f"{self._record.google}/v1/{parent}/operations/{operation['name']}")
        return {"operation": operation["name"], "status": operation["status"], "error": operation.get("error")}

    def _storage(self, method: str, what: str, body: Object | None = None) -> Object:
        return request(method, f"{self._record.storage}/_sandbox/{what}", body)

    def _kubernetes(self, method: str, path: str, body: Object | None = None) -> Object:
        address = read(self._directory / "kubeconfig")
        return request(method, f"{address.server}{path}", body, address.token, address.context)


def said(text: str) -> str:
    """The message in Google's or Kubernetes' own form of an error; any other text as it is."""
    try:
        document = json.loads(text)
        return str(document["error"]["message"] if "error" in document else document["message"])
    except (ValueError, KeyError, TypeError):
        return text

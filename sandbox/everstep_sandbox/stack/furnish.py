"""What a fresh sandbox is given: its bucket and its checkpoint configuration; and waiting until all of it is ready."""

from __future__ import annotations

import contextlib
import json
import ssl
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

from everstep_sandbox.kubernetes.kubeconfig import read
from everstep_sandbox.nodes import INSTANCE_TYPE
from everstep_sandbox.stack.parts import PartError

Object = dict[str, Any]

CONFIGURATION = "everstep"
RAM_SIZE = "256Mi"
_PATH = "/apis/checkpointing.gke.io/v1/checkpointconfigurations"
_PATIENCE_SECONDS = 60.0
_POLL_SECONDS = 0.05


class RequestError(Exception):
    """A server answered with an error; `code` is the HTTP status, `said` what the server said of it."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(f"HTTP {code}: {text}")
        self.code = code
        self.said = _said(text)


def _said(text: str) -> str:
    """The sentence in ``{"error": "…"}``; any other text as it is."""
    with contextlib.suppress(ValueError, KeyError, TypeError):
        return str(json.loads(text)["error"])
    return text


def request(
    method: str,
    url: str,
    body: Object | None = None,
    token: str | None = None,
    context: ssl.SSLContext | None = None,
) -> Object:
    """One JSON request to a server on loopback; raises RequestError, or OSError when nobody answers.

    :param context: how an HTTPS server is known
    """
    headers = {"Content-Type": "application/json", "User-Agent": "everstep-sandbox"}
    if token:
        headers["Authorization"] = f"Bearer {token}"
    data = json.dumps(body).encode() if body is not None else None
    asked = urllib.request.Request(url, data=data, headers=headers, method=method)
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=context))
    try:
        with opener.open(asked, timeout=30) as answer:
            found: Object = json.loads(answer.read() or b"{}")
            return found
    except urllib.error.HTTPError as error:
        raise RequestError(error.code, error.read().decode(errors="replace")) from error


def ensure_bucket(storage: str, name: str, driver: str) -> None:
    """Creates the hierarchical bucket that checkpoints are backed up to, unless it is there.

    :param driver: the principal of the checkpoint drivers, which is given a role on it as provisioning does
    """
    body = {
        "name": name,
        "hierarchicalNamespace": {"enabled": True},
        "iamConfiguration": {"uniformBucketLevelAccess": {"enabled": True}},
    }
    try:
        request("POST", f"{storage}/storage/v1/b?project=everstep-sandbox", body)
        policy = request("GET", f"{storage}/storage/v1/b/{name}/iam")
        policy["bindings"].append({"role": "roles/storage.objectUser", "members": [driver]})
        request("PUT", f"{storage}/storage/v1/b/{name}/iam", policy)
    except RequestError as error:
        if error.code != 409:
            raise PartError(f"Bucket {name} can't be made: {error}") from error


class Cluster:
    """Waits on the sandbox's API; `check` raises when a part that is waited for has ended."""

    def __init__(self, kubeconfig: Path, check: Callable[[], None]) -> None:
        self._address = read(kubeconfig)
        self._check = check

    def ensure_checkpoint_configuration(self, bucket: str) -> None:
        """The CheckpointConfiguration of all TPU nodes; one that is there is left as it is."""
        body = {
            "apiVersion": "checkpointing.gke.io/v1",
            "kind": "CheckpointConfiguration",
            "metadata": {"name": CONFIGURATION},
            "spec": {
                "cloudStorageBucketName": bucket,
                "nodeSelector": {"node.kubernetes.io/instance-type": INSTANCE_TYPE},
                "tolerations": [{"key": "google.com/tpu", "operator": "Exists", "effect": "NoSchedule"}],
                "inMemoryVolumeSize": RAM_SIZE,
            },
        }
        try:
            self._request("POST", _PATH, body)
        except RequestError as error:
            if error.code != 409:
                raise PartError(f"CheckpointConfiguration {CONFIGURATION} can't be made: {error}") from error

    def wait_for_nodes(self, names: list[str]) -> None:
        self._until(lambda: set(names) <= self._ready_nodes(), f"nodes {', '.join(names)} to be Ready")

    def wait_for_drivers(self, directories: list[Path]) -> None:
        """Until the driver of each of these nodes is Ready and serves its socket."""

        def ready() -> bool:
            pods = self._items("/api/v1/namespaces/gke-managed-checkpointing/pods")
            running = {pod["spec"].get("nodeName") for pod in pods if _is_ready(pod)}
            return all(path.name in running and (path / "csi.sock").exists() for path in directories)

        self._until(ready, "the checkpoint drivers of all nodes to be Ready")

    def _ready_nodes(self) -> set[str]:
        return {node["metadata"]["name"] for node in self._items("/api/v1/nodes") if _is_ready(node)}

    def _until(self, holds: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + _PATIENCE_SECONDS
        while not holds():
            self._check()
            if time.monotonic() > deadline:
                raise PartError(f"Waited {_PATIENCE_SECONDS:.0f} s in vain for {what}; see the sandbox's logs folder")
            time.sleep(_POLL_SECONDS)

    def _items(self, path: str) -> list[Object]:
        items: list[Object] = self._request("GET", path).get("items") or []
        return items

    def _request(self, method: str, path: str, body: Object | None = None) -> Object:
        return request(method, f"{self._address.server}{path}", body, self._address.token, self._address.context)


def _is_ready(obj: Object) -> bool:
    conditions = (obj.get("status") or {}).get("conditions") or ()
    return any(condition["type"] == "Ready" and condition["status"] == "True" for condition in conditions)

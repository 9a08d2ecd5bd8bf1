"""pods/log: what the kubelet wrote for a container, read from its files and followed while it runs."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from aiohttp import web

from everstep_sandbox.container_logs import LogView, read
from everstep_sandbox.kubernetes import errors
from everstep_sandbox.kubernetes.http.requests import Call
from everstep_sandbox.kubernetes.objects import Object
from everstep_sandbox.kubernetes.store import Store


class LogReader:
    """Serves logs of the pods in one sandbox directory."""

    def __init__(self, store: Store, directory: Path) -> None:
        self._store = store
        self._directory = directory

    async def serve(self, call: Call) -> web.StreamResponse:
        """Answers GET pods/<name>/log. Raises ApiError 400 for an unknown container or one that has not started."""
        pod = self._store.peek("pods", call.namespace, call.name or "")
        if pod is None:
            raise errors.not_found(call.resource, call.name or "")
        container = _container(pod, call.query.get("container"))
        if call.flag("previous"):
            raise errors.bad_request(f'previous terminated container "{container}" in pod "{call.name}" not found')
        path = self._path(pod, container)
        if path is None or not path.exists():
            self._check_started(pod, container)
        try:
            view = LogView(call.query)
        except ValueError as error:
            raise errors.bad_request(str(error)) from None
        response = web.StreamResponse(headers={"Content-Type": "text/plain"})
        await response.prepare(call.request)
        with contextlib.suppress(ConnectionError):
            async for text in read(path, view, lambda: self._is_running(pod, container)):
                await response.write(text)
        return response

    def _path(self, pod: Object, container: str) -> Path | None:
        node: str | None = pod["spec"].get("nodeName")
        if not node:
            return None
        uid: str = pod["metadata"]["uid"]
        return self._directory / "nodes" / node / "pods" / uid / "logs" / f"{os.path.basename(container)}.log"

    def _is_running(self, pod: Object, container: str) -> bool:
        meta = pod["metadata"]
        current = self._store.peek("pods", meta["namespace"], meta["name"])
        if current is None or current["metadata"]["uid"] != meta["uid"]:
            return False
        status = current.get("status") or {}
        if status.get("phase") in ("Succeeded", "Failed"):
            return False
        for found in [*(status.get("containerStatuses") or ()), *(status.get("initContainerStatuses") or ())]:
            if found["name"] == container:
                return "terminated" not in (found.get("state") or {})
        return True

    def _check_started(self, pod: Object, container: str) -> None:
        name = pod["metadata"]["name"]
        if not pod["spec"].get("nodeName"):
            raise errors.bad_request(f"pod {name} does not have a host assigned")
        status = pod.get("status") or {}
        for found in [*(status.get("containerStatuses") or ()), *(status.get("initContainerStatuses") or ())]:
            state = found.get("state") or {}
            if found["name"] == container and ("running" in state or "terminated" in state):
                return
        reason = "PodInitializing" if pod["spec"].get("initContainers") else "ContainerCreating"
        raise errors.bad_request(f'container "{container}" in pod "{name}" is waiting to start: {reason}')


def _container(pod: Object, asked: str | None) -> str:
    spec, name = pod["spec"], pod["metadata"]["name"]
    names = [container["name"] for container in spec.get("containers") or ()]
    init_names = [container["name"] for container in spec.get("initContainers") or ()]
    if asked:
        if asked not in names + init_names:
            raise errors.bad_request(f"container {asked} is not valid for pod {name}")
        return asked
    if len(names) == 1 and not init_names:
        return str(names[0])
    default = (pod["metadata"].get("annotations") or {}).get("kubectl.kubernetes.io/default-container")
    if default in names:
        return str(default)
    if len(names) == 1:
        return str(names[0])
    raise errors.bad_request(
        f"a container name must be specified for pod {name}, choose one of: [{' '.join(names)}]"
        + (f" or one of the init containers: [{' '.join(init_names)}]" if init_names else "")
    )

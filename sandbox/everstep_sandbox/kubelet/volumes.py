"""A pod's volumes as directories of the host: emptyDir, downwardAPI, configMap, secret, hostPath and the CSI driver."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import shutil
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any
from uuid import uuid4

import aiohttp

from everstep_sandbox.kubelet.environment import ConfigError, Lookup, field_value

Object = dict[str, Any]

CHECKPOINT_DRIVER = "multitier-checkpoint.csi.storage.gke.io"
BUCKET_DRIVER = "gcsfuse.csi.storage.gke.io"
"""Its volumes are empty directories here: only whether the bucket can be had is asked."""

MountProblem = Callable[[str], Awaitable[str | None]]
"""Bucket -> why it can't be mounted, None when it can."""


class MountError(Exception):
    """A volume can't be mounted now; the kubelet reports it (FailedMount) and tries again."""


class PodVolumes:
    """The volumes of one pod. `paths` maps volume names to host directories once `mount` has returned."""

    def __init__(self, pod_directory: Path, csi_socket: Path, lookup: Lookup, mount_problem: MountProblem) -> None:
        self._directory = pod_directory / "volumes"
        self._csi_socket = csi_socket
        self._lookup = lookup
        self._mount_problem = mount_problem
        self.paths: dict[str, str] = {}

    async def mount(self, pod: Object) -> None:
        """Makes all volumes that are not there yet; raises MountError naming the first that can't be."""
        for volume in pod["spec"].get("volumes") or ():
            if volume["name"] not in self.paths:
                try:
                    self.paths[volume["name"]] = await self._mount_one(pod, volume)
                except MountError as problem:
                    raise MountError(f'for volume "{volume["name"]}" : {problem}') from problem

    async def unmount(self, pod: Object) -> None:
        """Gives the driver's volumes back; a driver that is gone is no error, its mounts went with it."""
        if checkpoint_volumes(pod):
            with contextlib.suppress(MountError):
                await self._call_driver("unpublish", {"pod_uid": pod["metadata"]["uid"]})

    def refresh(self, pod: Object) -> None:
        """Writes the downwardAPI volumes again from the pod as it is now."""
        for volume in pod["spec"].get("volumes") or ():
            if volume["name"] in self.paths and "downwardAPI" in volume:
                _publish_files(Path(self.paths[volume["name"]]), _downward_files(pod, volume["downwardAPI"]))

    async def _mount_one(self, pod: Object, volume: Object) -> str:
        path = self._directory / volume["name"]
        if "hostPath" in volume:
            return str(volume["hostPath"]["path"])
        if "csi" in volume and volume["csi"]["driver"] == BUCKET_DRIVER:
            problem = await self._mount_problem(volume["csi"]["volumeAttributes"]["bucketName"])
            if problem is not None:
                raise MountError(problem)
        elif "csi" in volume:
            return await self._publish(pod, volume)
        path.mkdir(parents=True, exist_ok=True)
        if "downwardAPI" in volume:
            _publish_files(path, _downward_files(pod, volume["downwardAPI"]))
        elif "configMap" in volume:
            _publish_files(path, self._referenced_files("configmaps", volume["configMap"], "name"))
        elif "secret" in volume:
            _publish_files(path, self._referenced_files("secrets", volume["secret"], "secretName"))
        elif "projected" in volume:
            _publish_files(path, self._projected_files(pod, volume["projected"]))
        elif "emptyDir" not in volume and "csi" not in volume:
            kinds = ", ".join(key for key in volume if key != "name")
            raise MountError(
                f"volume {volume['name']} is of a kind that the sandbox does not have ({kinds}); "
                "use emptyDir, downwardAPI, configMap, secret, projected, hostPath or the checkpoint driver"
            )
        return str(path)

    async def _publish(self, pod: Object, volume: Object) -> str:
        driver = volume["csi"]["driver"]
        if driver != CHECKPOINT_DRIVER or not self._csi_socket.exists():
            raise MountError(f"driver name {driver} not found in the list of registered CSI drivers")
        metadata = pod["metadata"]
        request = {
            "pod": {
                "namespace": metadata["namespace"],
                "name": metadata["name"],
                "uid": metadata["uid"],
                "labels": metadata.get("labels") or {},
                "annotations": metadata.get("annotations") or {},
            },
            "pod_ip": (pod.get("status") or {}).get("podIP", ""),
            "volume": volume["name"],
        }
        answer = await self._call_driver("publish", request)
        return str(json.loads(answer)["path"])

    async def _call_driver(self, method: str, request: Object) -> str:
        # A unix socket's address holds 107 bytes; through the directory's descriptor any path fits.
        directory = os.open(self._csi_socket.parent, os.O_PATH)
        try:
            connector = aiohttp.UnixConnector(f"/proc/self/fd/{directory}/{self._csi_socket.name}")
            timeout = aiohttp.ClientTimeout(total=30)
            async with (
                aiohttp.ClientSession(connector=connector, timeout=timeout) as session,
                session.post(f"http://csi/{method}", json=request) as answer,
            ):
                text = await answer.text()
        except (OSError, aiohttp.ClientError, TimeoutError) as error:
            raise MountError(f"rpc error: code = Unavailable desc = {CHECKPOINT_DRIVER}: {error}") from error
        finally:
            os.close(directory)
        if answer.status != 200:
            raise MountError(f"rpc error: code = Internal desc = {text.strip()}")
        return text

    def _projected_files(self, pod: Object, projected: Object) -> dict[str, str]:
        """All sources but tokens: containers here have no identity at the API server."""
        files: dict[str, str] = {}
        for source in projected.get("sources") or ():
            if "configMap" in source:
                files |= self._referenced_files("configmaps", source["configMap"], "name")
            elif "secret" in source:
                files |= self._referenced_files("secrets", source["secret"], "name")
            elif "downwardAPI" in source:
                files |= _downward_files(pod, source["downwardAPI"])
        return files

    def _referenced_files(self, family: str, source: Object, key: str) -> dict[str, str]:
        data = self._lookup(family, source[key])
        if data is None:
            if source.get("optional"):
                return {}
            raise MountError(f'{family[:-1]} "{source[key]}" not found')
        items = source.get("items")
        if not items:
            return dict(data)
        missing = [item["key"] for item in items if item["key"] not in data]
        if missing:
            raise MountError(f'{family[:-1]} "{source[key]}" references non-existent config key: {missing[0]}')
        return {item["path"]: data[item["key"]] for item in items}


def checkpoint_volumes(pod: Object) -> list[str]:
    """Names of the pod's volumes that the checkpoint driver serves."""
    return [
        volume["name"]
        for volume in pod["spec"].get("volumes") or ()
        if (volume.get("csi") or {}).get("driver") == CHECKPOINT_DRIVER
    ]


def mounts(container: Object, paths: Mapping[str, str]) -> dict[str, str]:
    """Mount path -> host path of one container; raises ConfigError for a volume that the pod lacks."""
    found: dict[str, str] = {}
    for mount in container.get("volumeMounts") or ():
        if mount["name"] not in paths:
            where = f"volumeMount {mount['name']} of container {container['name']}"
            raise ConfigError(f"{where} names no volume of the pod")
        path = Path(paths[mount["name"]])
        if mount.get("subPath"):
            path = path / mount["subPath"]
            path.mkdir(parents=True, exist_ok=True)
        found[mount["mountPath"].rstrip("/") or "/"] = str(path)
    return found


def decoded(obj: Object) -> dict[str, str]:
    """The data of a ConfigMap or Secret as text."""
    data = dict(obj.get("data") or {})
    if obj.get("kind") == "Secret":
        data = {key: base64.b64decode(value).decode() for key, value in data.items()}
        data.update(obj.get("stringData") or {})
    return data


def _downward_files(pod: Object, source: Object) -> dict[str, str]:
    files: dict[str, str] = {}
    for item in source.get("items") or ():
        path = item["fieldRef"]["fieldPath"]
        if path in ("metadata.labels", "metadata.annotations"):
            entries = pod["metadata"].get(path.removeprefix("metadata.")) or {}
            files[item["path"]] = "\n".join(
                f"{key}={json.dumps(value, ensure_ascii=False)}" for key, value in sorted(entries.items())
            )
        else:
            files[item["path"]] = field_value(pod, path)
    return files


def _publish_files(directory: Path, files: Mapping[str, str]) -> None:
    """Replaces all files at one moment, as the kubelet does: `<name>` -> `..data/<name>`, `..data` is renamed over.

    Readers that watch the directory see one rename; nobody reads half a file. Unchanged contents change nothing.
    """
    current = directory / "..data"
    if current.exists() and _contents(current) == dict(files):
        return
    version = directory / f"..{uuid4().hex}"
    for name, text in files.items():
        target = version / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text)
    previous = current.resolve() if current.exists() else None
    link = directory / "..data_tmp"
    link.symlink_to(version.name)
    os.replace(link, current)
    for name in {Path(name).parts[0] for name in files}:
        if not (directory / name).is_symlink():
            (directory / name).symlink_to(Path("..data") / name)
    if previous is not None:
        shutil.rmtree(previous, ignore_errors=True)


def _contents(directory: Path) -> dict[str, str]:
    root = directory.resolve()
    return {str(path.relative_to(root)): path.read_text() for path in root.rglob("*") if path.is_file()}

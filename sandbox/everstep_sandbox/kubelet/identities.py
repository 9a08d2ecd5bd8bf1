"""Under whose name the pods' processes reach Cloud Storage: what a cloud's metadata server would tell them.

A client of an emulator sends no token, so each identity gets an address of the storage server of its own.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import aiohttp

from everstep_sandbox.google import cluster_file
from everstep_sandbox.kubelet.environment import ConfigError

Object = dict[str, Any]


class Identities:
    """The addresses of one storage server, by pod. Where there is no cluster's record all pods are its owner."""

    def __init__(self, directory: Path, storage: str) -> None:
        self._directory = directory
        self._storage = storage
        self._addresses: dict[str, str] = {}
        self.are_broken = False
        """A fault: no pod gets a token."""

    def principal(self, pod: Object, *, has_metadata_server: bool) -> str | None:
        """Whose tokens a pod gets: its ServiceAccount's, its machine's; None where identities are not looked at."""
        cluster = cluster_file.read(self._directory)
        if cluster is None:
            return None
        if cluster.workload_pool is None or not has_metadata_server:
            return cluster.machine_account
        account = pod["spec"].get("serviceAccountName") or "default"
        return cluster.workload_principal.format(namespace=pod["metadata"]["namespace"], account=account)

    async def address(self, pod: Object, *, has_metadata_server: bool) -> str:
        """Where the pod reaches Cloud Storage; "" without one. Raises ConfigError when the storage does not answer."""
        principal = self.principal(pod, has_metadata_server=has_metadata_server)
        if not self._storage or principal is None:
            return self._storage
        if principal not in self._addresses:
            answer = json.loads(await self._ask("POST", f"{self._storage}/_sandbox/doors", {"identity": principal}))
            self._addresses[principal] = answer["address"]
        return self._addresses[principal]

    async def variables(self, pod: Object, *, has_metadata_server: bool) -> Mapping[str, str]:
        """Variables that a cloud makes unnecessary. Raises ConfigError."""
        storage = await self.address(pod, has_metadata_server=has_metadata_server)
        if not storage:
            return {}
        return {
            "STORAGE_EMULATOR_HOST": storage,
            "TENSORSTORE_GCS_HTTP_URL": storage,
            # gcsfs would ask for a storage layout that only the real service has.
            "GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT": "false",
        }

    async def mount_problem(self, pod: Object, bucket: str, *, has_metadata_server: bool) -> str | None:
        """Why the Cloud Storage FUSE driver can't mount a bucket for a pod, in its own words; None when it can."""
        cluster = cluster_file.read(self._directory)
        if cluster is None or not self._storage:
            return None
        account = f"{pod['metadata']['namespace']}/{pod['spec'].get('serviceAccountName') or 'default'}"
        if not cluster.gcs_fuse:
            return "driver name gcsfuse.csi.storage.gke.io not found in the list of registered CSI drivers"
        if cluster.workload_pool is None or not has_metadata_server or self.are_broken:
            why = "the cluster has no workload pool" if cluster.workload_pool is None else "no GKE metadata server"
            why = "the metadata server does not answer" if self.are_broken else why
            return (
                "rpc error: code = Unauthenticated desc = failed to prepare storage service: storage service manager "
                f"failed to setup service: timed out waiting for the condition: Unable to generate access token for "
                f"{account}: {why} on this node"
            )
        url = await self.address(pod, has_metadata_server=has_metadata_server)
        try:
            await self._ask("GET", f"{url}/storage/v1/b/{bucket}/o?maxResults=1")
        except aiohttp.ClientResponseError as refused:
            code = {401: "Unauthenticated", 403: "PermissionDenied", 404: "NotFound"}.get(refused.status, "Internal")
            return (
                f'rpc error: code = {code} desc = failed to get GCS bucket "{bucket}": googleapi: Error '
                f"{refused.status}: {refused.message}"
            )
        except ConfigError as problem:
            return f"rpc error: code = Unavailable desc = {problem}"
        return None

    async def _ask(self, method: str, url: str, document: Object | None = None) -> str:
        timeout = aiohttp.ClientTimeout(total=10)
        try:
            async with (
                aiohttp.ClientSession(timeout=timeout) as session,
                session.request(method, url, json=document) as answer,
            ):
                text = await answer.text()
                if answer.status >= 400:
                    raise aiohttp.ClientResponseError(
                        answer.request_info, (), status=answer.status, message=_said(text)
                    )
                return text
        except aiohttp.ClientResponseError:
            raise
        except (aiohttp.ClientError, OSError, TimeoutError) as problem:
            raise ConfigError(f"Cloud Storage at {url} does not answer: {problem}") from problem


def _said(text: str) -> str:
    try:
        error = json.loads(text)["error"]
        return f"{error['message']}, {error['errors'][0]['reason']}"
    except (ValueError, KeyError, TypeError):
        return text

"""How a cluster and a bucket are reached: a description without secrets, and the clients that it opens.

A description is made once from a cluster file (or from a kubeconfig, for the command line), goes through a trigger's
arguments as plain JSON, and resolves its Airflow connection where it is used.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

from everstep.clients import errors
from everstep.clients.google import GoogleCloud
from everstep.clients.google_async import AsyncGoogleCloud
from everstep.clients.google_requests import SCOPE, Endpoints, GoogleRequests
from everstep.clients.kubernetes import KubernetesClient
from everstep.clients.kubernetes_async import AsyncKubernetesClient
from everstep.clients.retrying import PATIENCE_SECONDS, Backoff
from everstep.clients.storage import BucketClient
from everstep.clients.storage_async import AsyncBucketClient

if TYPE_CHECKING:
    from everstep.spec.cluster import ClusterSpec

# Extra fields of a google_cloud_platform connection that name endpoints instead of having them looked up.
GKE_ENDPOINT_FIELD = "gke_endpoint"
GKE_CERTIFICATE_FIELD = "gke_ca_certificate"
GOOGLE_ENDPOINT_FIELD = "google_endpoint"
STORAGE_ENDPOINT_FIELD = "storage_endpoint"
# One address for all of Google's APIs but storage, for the command line; storage has STORAGE_EMULATOR_HOST.
GOOGLE_ENDPOINT_VARIABLE = "EVERSTEP_GOOGLE_ENDPOINT"


@dataclass(frozen=True)
class ClusterAccess:
    """A way to a cluster's API.

    `kubeconfig` alone needs no Airflow. Otherwise `connection` is an Airflow connection, of Kubernetes for the
    endpoint `kubeconfig`, of Google Cloud for the others; `url` and `certificate` hold what GKE said of the cluster.
    """

    name: str
    connection: str | None = None
    kubeconfig: str | None = None
    endpoint: str = "kubeconfig"
    project: str = ""
    location: str = ""
    url: str = ""
    certificate: str = ""

    @classmethod
    def of(cls, cluster: ClusterSpec) -> ClusterAccess:
        """Return the way that a cluster file names."""
        return cls(
            name=cluster.name,
            connection=cluster.kubernetes_connection,
            endpoint=cluster.endpoint,
            project=cluster.project,
            location=cluster.location,
        )

    @classmethod
    def of_kubeconfig(cls, path: str | os.PathLike[str], name: str = "kubeconfig") -> ClusterAccess:
        """Return the way that a kubeconfig file names; needs no Airflow."""
        return cls(name=name, kubeconfig=os.fspath(path))

    def as_dict(self) -> dict[str, str | None]:
        """Return plain values for a trigger's arguments; no secrets."""
        return asdict(self)

    def resolved(self) -> ClusterAccess:
        """Return this with address and certificate of a GKE cluster filled in. Blocks: not for the event loop."""
        if self.kubeconfig is not None or self.endpoint == "kubeconfig" or self.url:
            return self
        from airflow.providers.common.compat.sdk import BaseHook

        assert self.connection is not None
        extra = BaseHook.get_connection(self.connection).extra_dejson
        if extra.get(GKE_ENDPOINT_FIELD):
            return replace(self, url=extra[GKE_ENDPOINT_FIELD], certificate=extra.get(GKE_CERTIFICATE_FIELD, ""))
        from airflow.providers.google.cloud.hooks.kubernetes_engine import GKEHook
        from airflow.providers.google.cloud.operators.kubernetes_engine import GKEClusterAuthDetails

        url, certificate = GKEClusterAuthDetails(
            cluster_name=self.name,
            project_id=self.project,
            use_internal_ip=self.endpoint == "private",
            use_dns_endpoint=self.endpoint == "dns",
            cluster_hook=GKEHook(gcp_conn_id=self.connection, location=self.location),
        ).fetch_cluster_info()
        return replace(self, url=url, certificate=certificate)

    def open(self, *, patience: float = PATIENCE_SECONDS) -> KubernetesClient:
        """Return a client that blocks, and tries for `patience` seconds to get an answer."""
        return KubernetesClient(self._api_client, backoff=Backoff(give_up_after=patience))

    def open_async(self, *, patience: float = PATIENCE_SECONDS) -> AsyncKubernetesClient:
        """Return a client for the running event loop, which tries for `patience` seconds to get an answer."""
        return AsyncKubernetesClient(self._async_api_client, backoff=Backoff(give_up_after=patience))

    @property
    def _way(self) -> str:
        if self.kubeconfig is not None:
            return f"kubeconfig {self.kubeconfig}"
        return f"connection {self.connection!r} to cluster {self.name!r}"

    def _api_client(self) -> Any:
        with errors.translated(self._way):
            return self._open_api_client()

    def _open_api_client(self) -> Any:
        if self.kubeconfig is not None:
            from kubernetes import config

            return config.new_client_from_config(self.kubeconfig)
        if self.endpoint == "kubeconfig":
            from airflow.providers.cncf.kubernetes.hooks.kubernetes import KubernetesHook

            return KubernetesHook(conn_id=self.connection).get_conn()
        from airflow.providers.google.cloud.hooks.kubernetes_engine import GKEKubernetesHook

        access = self.resolved()
        return GKEKubernetesHook(
            cluster_url=access.url,
            ssl_ca_cert=access.certificate,
            use_dns_endpoint=access.endpoint == "dns" or not access.certificate,
            gcp_conn_id=access.connection,
        ).get_conn()

    @asynccontextmanager
    async def _async_api_client(self) -> AsyncIterator[Any]:
        with errors.translated(self._way):
            async with self._open_async_api_client() as client:
                yield client

    async def library(self) -> Any:
        """Return what opens a client for an event loop, imported in a thread: that takes seconds, of no cluster's."""
        from asyncio import to_thread

        name = "airflow.providers.google.cloud.hooks.kubernetes_engine"
        if self.kubeconfig is not None:
            name = "kubernetes_asyncio.config"
        elif self.endpoint == "kubeconfig":
            name = "airflow.providers.cncf.kubernetes.hooks.kubernetes"
        return await to_thread(_import, name)

    @asynccontextmanager
    async def _open_async_api_client(self) -> AsyncIterator[Any]:
        if self.kubeconfig is not None:
            config = await self.library()
            client = await config.new_client_from_config(self.kubeconfig)
            async with client:
                yield client
            return
        if self.endpoint == "kubeconfig":
            hooks = await self.library()
            async with hooks.AsyncKubernetesHook(conn_id=self.connection).get_conn() as client:
                yield client
            return
        hooks = await self.library()
        access = self
        if not self.url:
            from asgiref.sync import sync_to_async

            access = await sync_to_async(self.resolved)()
        hook = hooks.GKEKubernetesAsyncHook(
            cluster_url=access.url,
            ssl_ca_cert=access.certificate,
            use_dns_endpoint=access.endpoint == "dns" or not access.certificate,
            gcp_conn_id=access.connection,
        )
        async with hook.get_conn() as client:
            yield client


@dataclass(frozen=True)
class StorageAccess:
    """A way to Cloud Storage: an Airflow connection, or the environment's own credentials without one.

    `endpoint` replaces Google's address; STORAGE_EMULATOR_HOST does so for everybody in a process.
    """

    connection: str | None = None
    endpoint: str = ""

    @classmethod
    def of(cls, cluster: ClusterSpec) -> StorageAccess:
        """Return the way that a cluster file names."""
        return cls(connection=cluster.google_cloud_connection)

    def as_dict(self) -> dict[str, str | None]:
        """Return plain values for a trigger's arguments; no secrets."""
        return asdict(self)

    def open(self, bucket: str, *, patience: float = PATIENCE_SECONDS) -> BucketClient:
        """Return a client of one bucket that blocks, and tries for `patience` seconds to read."""
        return BucketClient(self._client, bucket, patience=patience)

    def open_async(self, bucket: str) -> AsyncBucketClient:
        """Return a client of one bucket for the running event loop."""
        return AsyncBucketClient(self._async_client, bucket)

    @property
    def _way(self) -> str:
        if self.connection is None:
            return "your own credentials for Cloud Storage"
        return f"connection {self.connection!r} to Cloud Storage"

    def _client(self) -> Any:
        with errors.translated(self._way):
            return self._open_client()

    def _open_client(self) -> Any:
        from google.cloud import storage

        if self.connection is None:
            endpoint = self.endpoint or os.environ.get("STORAGE_EMULATOR_HOST", "")
            if not endpoint:
                return storage.Client()
            from google.auth.credentials import AnonymousCredentials

            return storage.Client(
                project="none", credentials=AnonymousCredentials(), client_options={"api_endpoint": endpoint}
            )
        from airflow.providers.google.cloud.hooks.gcs import GCSHook

        hook = GCSHook(gcp_conn_id=self.connection)
        endpoint = self.endpoint or hook.extras.get(STORAGE_ENDPOINT_FIELD, "")
        if not endpoint:
            return hook.get_conn()
        return storage.Client(
            project=hook.project_id,
            credentials=hook.get_credentials(),
            client_options={"api_endpoint": endpoint},
        )

    @asynccontextmanager
    async def _async_client(self) -> AsyncIterator[Any]:
        with errors.translated(self._way):
            async with self._open_async_client() as client:
                yield client

    @asynccontextmanager
    async def _open_async_client(self) -> AsyncIterator[Any]:
        from asyncio import to_thread

        import aiohttp

        library = await to_thread(_import, "gcloud.aio.storage")
        async with aiohttp.ClientSession() as session:
            if self.connection is None:
                yield library.Storage(session=session, api_root=self.endpoint or None)
                return
            hooks = await to_thread(_import, "airflow.providers.google.cloud.hooks.gcs")
            hook = hooks.GCSAsyncHook(gcp_conn_id=self.connection)
            endpoint = self.endpoint or (await hook.get_sync_hook()).extras.get(STORAGE_ENDPOINT_FIELD, "")
            if endpoint:
                yield library.Storage(session=session, api_root=endpoint)
            else:
                yield await hook.get_storage_client(session)


@dataclass(frozen=True)
class GoogleAccess:
    """A way to Google Cloud's APIs: an Airflow connection, or the environment's own credentials without one.

    `endpoint` and `storage_endpoint` replace Google's addresses, of all APIs but storage and of storage; the extra
    fields `google_endpoint` and `storage_endpoint` of a connection do so too.
    """

    connection: str | None = None
    endpoint: str = ""
    storage_endpoint: str = ""

    def as_dict(self) -> dict[str, str | None]:
        """Return plain values for a trigger's arguments; no secrets."""
        return asdict(self)

    def open(self, *, patience: float = PATIENCE_SECONDS) -> GoogleCloud:
        """Return a client that blocks, and tries for `patience` seconds to get an answer. Raises NotConfigured."""
        with errors.translated(self._way):
            credentials, endpoints = self._resolved()
        backoff = Backoff(give_up_after=patience)
        return GoogleCloud(GoogleRequests(lambda: _session(credentials), endpoints, backoff=backoff))

    async def open_async(self) -> AsyncGoogleCloud:
        """Return a client for the running event loop. Raises NotConfigured."""
        with errors.translated(self._way):
            # Connections are looked up and libraries imported here: never in the event loop.
            if self.connection is None:
                from asyncio import to_thread

                credentials, endpoints = await to_thread(self._resolved)
            else:
                from asgiref.sync import sync_to_async

                credentials, endpoints = await sync_to_async(self._resolved)()
        return AsyncGoogleCloud(credentials, endpoints)

    @property
    def _way(self) -> str:
        if self.connection is None:
            return "your own credentials for Google Cloud"
        return f"connection {self.connection!r} to Google Cloud"

    def _resolved(self) -> tuple[Any, Endpoints]:
        """Return credentials and addresses. Blocks: not for the event loop."""
        if self.connection is None:
            endpoint = self.endpoint or os.environ.get(GOOGLE_ENDPOINT_VARIABLE, "")
            storage_endpoint = self.storage_endpoint or os.environ.get("STORAGE_EMULATOR_HOST", "")
            return _own_credentials(anonymous=bool(endpoint)), Endpoints(endpoint, storage_endpoint)
        from airflow.providers.google.common.hooks.base_google import GoogleBaseHook

        hook = GoogleBaseHook(gcp_conn_id=self.connection)
        endpoint = self.endpoint or hook.extras.get(GOOGLE_ENDPOINT_FIELD, "")
        storage_endpoint = self.storage_endpoint or hook.extras.get(STORAGE_ENDPOINT_FIELD, "")
        if not storage_endpoint and endpoint:
            storage_endpoint = os.environ.get("STORAGE_EMULATOR_HOST", "")
        return hook.get_credentials(), Endpoints(endpoint, storage_endpoint)


def _own_credentials(*, anonymous: bool) -> Any:
    """Return the environment's credentials; with other endpoints than Google's, none unless they are named."""
    import google.auth
    from google.auth.credentials import AnonymousCredentials

    if anonymous and not os.environ.get("GOOGLE_APPLICATION_CREDENTIALS"):
        return AnonymousCredentials()
    return google.auth.default(scopes=[SCOPE])[0]


def _session(credentials: Any) -> Any:
    from google.auth.transport.requests import AuthorizedSession

    return AuthorizedSession(credentials)


def _import(module: str) -> Any:
    import importlib

    return importlib.import_module(module)

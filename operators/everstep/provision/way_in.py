"""Before anything in a cluster is changed: does the way there lead to the cluster that the cluster file names?

A kubeconfig has one current context, and an Airflow connection may name any address; neither knows of the cluster file.
So the server's address is compared with those that GKE reports of the cluster. Behind a tunnel, a proxy or inside the
cluster it has an address of its own; there the certificate authority that the client trusts must be the cluster's.
"""

from __future__ import annotations

import base64
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from everstep.clients.errors import NotConfigured, NotFound
from everstep.provision.changes import Look
from everstep.provision.cloud import gcloud
from everstep.provision.cloud.under_way import cluster_of
from everstep.spec.findings import error, warning

if TYPE_CHECKING:
    from everstep.clients.kubernetes import Server
    from everstep.provision.site import Site

Object = Mapping[str, Any]

DEFAULT_KUBECONFIG = Path("~/.kube/config")


@dataclass(frozen=True)
class WayInStep:
    """The way into the cluster. Changes nothing; the steps after it get no client for another cluster."""

    site: Site
    title: str = "way into the cluster"

    def look(self) -> Look:
        """Compare the server's address, or its authority, with what GKE reports of the cluster."""
        spec = self.site.spec
        where, wanted = self.site.way, f"that of cluster {spec.name} in {spec.project}, {spec.location}"
        cluster = cluster_of(self.site.google(), spec)
        try:
            server = self.site.kubernetes().server()
        except (NotConfigured, NotFound) as absence:
            if cluster is None:
                # Steps after this one take everything for absent, which it is.
                return Look()
            return Look((error(where, f"no way there: {absence.message}", wanted, self._remedy()),))
        if cluster is None:
            found = f"it leads to {server.url}, while GKE has no cluster {spec.name} yet"
            self.site.refuse_cluster(found)
            return Look((warning(where, found, wanted, f"once there is one: {self._remedy()}"),))
        known = sorted(set(addresses(cluster)))
        if address(server.url) in known or _is_trusted(server, cluster):
            return Look()
        found = f"it leads to {server.url}"
        self.site.refuse_cluster(f"{found}, not to cluster {spec.name}")
        return Look((error(where, found, f"{wanted}: {' or '.join(known) or 'no address yet'}", self._remedy()),))

    def _remedy(self) -> str:
        command = gcloud.get_credentials(self.site.spec)
        kubeconfig = self.site.kubeconfig
        if kubeconfig is None:
            return f"{command}, and put that context's part of the kubeconfig into the connection"
        if Path(kubeconfig) == DEFAULT_KUBECONFIG.expanduser():
            return command
        return f"KUBECONFIG={shlex.quote(kubeconfig)} {command}"


def addresses(cluster: Object) -> Iterator[str]:
    """Return, as `host:port`, every address of its API that GKE reports: DNS name, public and private ones."""
    endpoints = cluster.get("controlPlaneEndpointsConfig") or {}
    dns, ip = endpoints.get("dnsEndpointConfig") or {}, endpoints.get("ipEndpointsConfig") or {}
    private = cluster.get("privateClusterConfig") or {}
    reported = (
        cluster.get("endpoint"),
        dns.get("endpoint"),
        *(each.get(field) for each in (ip, private) for field in ("publicEndpoint", "privateEndpoint")),
    )
    for each in reported:
        if each:
            yield address(f"https://{each}")


def address(url: str) -> str:
    """Return `host:port` of a server's URL."""
    parts = urlsplit(url)
    return f"{parts.hostname}:{parts.port or (80 if parts.scheme == 'http' else 443)}"


def _is_trusted(server: Server, cluster: Object) -> bool:
    """Say whether the client takes only an answer that the cluster's own authority vouches for."""
    encoded = (cluster.get("masterAuth") or {}).get("clusterCaCertificate") or ""
    return bool(encoded) and server.authority.split() == base64.b64decode(encoded).decode(errors="replace").split()

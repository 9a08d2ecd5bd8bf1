"""Where GKE says that a cluster's API is, and whether a client talks to that one. Pure."""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from everstep.clients.kubernetes import Server

Object = Mapping[str, Any]


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


def is_trusted(server: Server, cluster: Object) -> bool:
    """Say whether the client takes only an answer that the cluster's own authority vouches for."""
    encoded = (cluster.get("masterAuth") or {}).get("clusterCaCertificate") or ""
    return bool(encoded) and server.authority.split() == base64.b64decode(encoded).decode(errors="replace").split()

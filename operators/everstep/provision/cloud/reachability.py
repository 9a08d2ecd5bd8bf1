"""Whether a cluster's control plane can be reached from where this runs: what GKE says of it, and a try.

Triggerers often run elsewhere than workers. So the try is worth something only where it is made: call it in the
process that is to wait later.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from everstep.clients.errors import Forbidden, RemoteError, Unauthenticated
from everstep.provision.cloud import gcloud
from everstep.spec.findings import Finding, error, note

if TYPE_CHECKING:
    from everstep.clients.access import ClusterAccess
    from everstep.spec.cluster import ClusterSpec

Object = Mapping[str, Any]

# Whether there is an answer is known within seconds; a firewall that drops packets never says no.
TRY_SECONDS = 20.0


def reachability(cluster: Object, spec: ClusterSpec) -> list[Finding]:
    """Return what GKE's description of a cluster tells of the endpoint that the cluster file names.

    :param cluster: as `GoogleCloud.cluster` returns it
    """
    if spec.endpoint == "kubeconfig":
        # The address stands in a kubeconfig, of which GKE knows nothing.
        return []
    look = {"dns": _dns, "private": _private, "public": _public}[spec.endpoint]
    return list(look(cluster, spec))


async def tried(access: ClusterAccess, whence: str) -> list[Finding]:
    """Try a way to a cluster from here, and return what hinders; nothing when it answers.

    :param whence: where that is, in words
    """
    where = f"cluster {access.name}, endpoint {access.endpoint}"
    # A machine that imports slowly is no network that does not answer.
    await access.library()
    try:
        async with asyncio.timeout(TRY_SECONDS), access.open_async(patience=TRY_SECONDS / 2) as client:
            await client.version()
    except (Forbidden, Unauthenticated) as refusal:
        return [
            error(
                where,
                f"refused {whence}: {refusal.message}",
                "an answer",
                "the endpoint is reached, but the caller may not use it: grant container.clusters.connect (DNS "
                "endpoint) or container.clusters.get, and RBAC by everstep permissions",
            )
        ]
    except (RemoteError, TimeoutError) as failure:
        told = getattr(failure, "message", "") or f"none within {TRY_SECONDS:.0f} s"
        return [error(where, f"no answer {whence}: {told}", "an answer", _REMEDIES[access.endpoint])]
    return []


_REMEDIES = {
    "kubeconfig": "kubectl version, with the same kubeconfig and from the same machine",
    "dns": "the network has to let HTTPS to *.gke.goog out",
    "private": "the triggerer has to run in the cluster's network, or in one that is peered or connected with it",
    "public": "add this machine's outgoing address to the authorised networks, or use endpoint: dns",
}


def _dns(cluster: Object, spec: ClusterSpec) -> Iterator[Finding]:
    config = _endpoints(cluster).get("dnsEndpointConfig") or {}
    where = f"cluster {spec.name}"
    if not config.get("endpoint"):
        yield error(where, "no DNS endpoint", "one, since endpoint is dns", _enable_dns(spec))
    elif not config.get("allowExternalTraffic"):
        yield error(where, f"its DNS endpoint {config['endpoint']} is off", "on", _enable_dns(spec))


def _private(cluster: Object, spec: ClusterSpec) -> Iterator[Finding]:
    where, addresses = f"cluster {spec.name}", _endpoints(cluster).get("ipEndpointsConfig") or {}
    address = addresses.get("privateEndpoint") or (cluster.get("privateClusterConfig") or {}).get("privateEndpoint")
    if addresses.get("enabled") is False:
        yield error(
            where,
            "its IP endpoints are off",
            "a private one, since endpoint is private",
            f"endpoint: dns in the cluster file, or: {gcloud.update_cluster(spec, enable_ip_access=True)}",
        )
    elif not address:
        yield error(where, "no private address", "one, since endpoint is private", "endpoint: dns in the cluster file")
    else:
        if addresses.get("globalAccess") is False:
            yield note(
                where,
                f"its private address {address} answers within {spec.region} only",
                "triggerers in that region",
                gcloud.update_cluster(spec, enable_master_global_access=True),
            )
        yield from _authorised_networks(cluster, spec, f"private address {address}")


def _public(cluster: Object, spec: ClusterSpec) -> Iterator[Finding]:
    where, addresses = f"cluster {spec.name}", _endpoints(cluster).get("ipEndpointsConfig") or {}
    private = cluster.get("privateClusterConfig") or {}
    is_off = addresses.get("enabled") is False or addresses.get("enablePublicEndpoint") is False
    if is_off or private.get("enablePrivateEndpoint"):
        yield error(
            where, "no public address", "one, since endpoint is public", "endpoint: dns or private in the cluster file"
        )
        return
    yield from _authorised_networks(cluster, spec, "public address")


def _authorised_networks(cluster: Object, spec: ClusterSpec, what: str) -> Iterator[Finding]:
    config = (_endpoints(cluster).get("ipEndpointsConfig") or {}).get("authorizedNetworksConfig")
    config = config or cluster.get("masterAuthorizedNetworksConfig") or {}
    if not config.get("enabled"):
        return
    blocks = ", ".join(str(block.get("cidrBlock")) for block in config.get("cidrBlocks") or ()) or "none"
    yield note(
        f"cluster {spec.name}",
        f"its {what} answers to authorised networks only: {blocks}",
        "the network of every worker and triggerer among them",
        gcloud.update_cluster(
            spec,
            enable_master_authorized_networks=True,
            master_authorized_networks=f"{blocks},NETWORK".replace(" ", ""),
        ),
    )


def _endpoints(cluster: Object) -> Object:
    found: Object = cluster.get("controlPlaneEndpointsConfig") or {}
    return found


def _enable_dns(spec: ClusterSpec) -> str:
    return gcloud.update_cluster(spec, enable_dns_access=True)

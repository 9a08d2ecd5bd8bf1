"""Before anything in a cluster is changed: does the way there lead to the cluster that the cluster file names?

A kubeconfig has one current context, and an Airflow connection may name any address; neither knows of the cluster file.
So the server's address is compared with those that GKE reports of the cluster. Behind a tunnel, a proxy or inside the
cluster it has an address of its own; there the certificate authority that the client trusts must be the cluster's.
"""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from everstep.clients.errors import NotConfigured, NotFound
from everstep.provision.changes import Look
from everstep.provision.cloud import gcloud
from everstep.provision.cloud.endpoints import address, addresses, is_trusted
from everstep.provision.cloud.under_way import cluster_of
from everstep.spec.findings import error, warning

if TYPE_CHECKING:
    from everstep.provision.site import Site

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
        if address(server.url) in known or is_trusted(server, cluster):
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

"""Looking at a cluster that may not be there yet: then everything in it counts as absent, and can still be listed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from everstep.clients.errors import NotConfigured, NotFound
from everstep.clients.kubernetes import KubernetesClient, Object
from everstep.clients.resources import Resource
from everstep.spec.findings import Finding, note

if TYPE_CHECKING:
    from everstep.provision.site import Site


class Reader:
    """The cluster of a site, for steps. A cluster that does not answer is not taken for one that is not there."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self._seen = False

    @property
    def client(self) -> KubernetesClient:
        """Return the client."""
        return self._site.kubernetes()

    def exists(self) -> bool:
        """Say whether there is a cluster. Raises the other errors of `everstep.clients.errors`."""
        if not self._seen:
            try:
                self.client.version()
            except (NotConfigured, NotFound):
                return False
            self._seen = True
        return True

    def absence(self) -> tuple[Finding, ...]:
        """Return a note when there is no cluster yet."""
        if self.exists():
            return ()
        name = self._site.spec.name
        return (note(f"cluster {name}", "not reachable yet, so that everything in it counts as absent", "a cluster"),)

    def find(self, resource: Resource, name: str, namespace: str | None = None) -> Object | None:
        """Return an object; None when it, its kind or the whole cluster is not there."""
        return self.client.find(resource, name, namespace) if self.exists() else None

    def list_all(
        self, resource: Resource, namespace: str | None = None, *, labels: str = "", fields: str = ""
    ) -> list[Object]:
        """Return objects; none when their kind or the whole cluster is not there."""
        if not self.exists():
            return []
        try:
            return self.client.list_all(resource, namespace, labels=labels, fields=fields)
        except NotFound:
            return []

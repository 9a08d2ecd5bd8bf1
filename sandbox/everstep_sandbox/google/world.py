"""What stands behind the clusters: nothing when the server runs alone, the rest of the sandbox otherwise."""

from __future__ import annotations

from typing import Any, Protocol

Object = dict[str, Any]


class World(Protocol):
    """Brings about what GKE's operations promise. Each raises EffectFailed with a sentence where it can't."""

    def address(self, cluster: Object) -> Object:
        """What GKE shows of where the API of a cluster is that was made: its endpoint, and its authority if any."""
        ...

    async def cluster_made(self, cluster: Object) -> None:
        """The cluster answers from now on."""
        ...

    async def cluster_changed(self, cluster: Object) -> None:
        """Add-ons, Workload Identity or node pools (with their sizes) are those of `cluster` from now on."""
        ...

    async def cluster_gone(self, cluster: Object) -> None:
        """The cluster and all its machines are gone."""
        ...


class NoWorld:
    """Clusters that are only recorded."""

    def address(self, cluster: Object) -> Object:
        return {"endpoint": cluster.get("endpoint", "127.0.0.1")}

    async def cluster_made(self, cluster: Object) -> None:
        return None

    async def cluster_changed(self, cluster: Object) -> None:
        return None

    async def cluster_gone(self, cluster: Object) -> None:
        return None

"""Who runs on the nodes of a node pool: looked at before nodes are recreated, taken or deleted."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from everstep.launch import labels
from everstep.provision.in_cluster import users
from everstep.provision.in_cluster.reading import Reader
from everstep.provision.way_in import WayInStep
from everstep.spec.findings import Finding, error

if TYPE_CHECKING:
    from everstep.provision.site import Site


def in_use(site: Site, found: Mapping[str, Any], why: str) -> Iterator[Finding]:
    """Return an error for everybody whose pods would end; one as well where that can't be seen.

    :param found: the node pool
    :param why: what ends the pods, in words
    """
    if found.get("status") == "ERROR" or site.google().node_pool_size(found) == 0:
        return
    where, expected = f"node pool {found['name']}", f"nobody there: {why}"
    way = WayInStep(site).look().findings
    if way:
        # Another cluster would show nobody.
        yield error(where, f"who runs on its nodes can't be seen: {way[0].found}", expected, way[0].remedy)
        return
    for user in users.workloads(Reader(site), {labels.NODE_POOL: str(found["name"])}):
        yield error(where, f"{user} runs on its nodes", expected, "suspend it, or wait for its end, or force it")

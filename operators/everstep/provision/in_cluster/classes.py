"""The priority classes of a cluster file, as a step: made where they lack, never changed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from everstep.clients.resources import PRIORITY_CLASSES
from everstep.provision import priority_classes
from everstep.provision.changes import Change, Look
from everstep.provision.in_cluster import texts
from everstep.provision.in_cluster.reading import Reader
from everstep.spec.findings import Finding

if TYPE_CHECKING:
    from everstep.provision.site import Site


class PriorityClasses:
    """Every class of the cluster file, with its value, preempting and never the default."""

    title = "priority classes"

    def __init__(self, site: Site) -> None:
        self._priorities = site.spec.priorities
        self._reader = Reader(site)

    def look(self) -> Look:
        """Look at the classes; one that differs is an error with both values."""
        there = {each["metadata"]["name"]: each for each in self._reader.list_all(PRIORITY_CLASSES)}
        findings: list[Finding] = [*self._reader.absence(), *priority_classes.default_findings(there.values())]
        changes = []
        for name, value in self._priorities.items():
            if name not in there:
                changes.append(self._creation(name, value))
            elif (difference := priority_classes.compare(name, value, there[name])) is not None:
                findings.append(difference)
        return Look(tuple(findings), tuple(changes))

    def _creation(self, name: str, value: int) -> Change:
        body = priority_classes.desired(name, value)

        def act() -> None:
            priority_classes.create(self._reader.client, name, value)

        return Change(
            f"PriorityClass {name}",
            "create",
            "not there",
            f"value {value}",
            act,
            (texts.kubectl_create(body),),
            texts.terraform(body),
        )

"""Looking at a probe's JobSet, its pods, and what they have told."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from everstep.acceptance.items import NotJudged
from everstep.acceptance.probe_jobset import CONTAINER
from everstep.clients import errors
from everstep.clients.kubernetes import KubernetesClient
from everstep.clients.resources import JOBSETS, PODS
from everstep.launch import labels

Object = dict[str, Any]
Found = TypeVar("Found")
POLL_SECONDS = 1.0


@dataclass(frozen=True)
class ProbeView:
    """One JobSet of the probe, looked at from outside.

    :param patience: seconds that anything may take before an item is given up
    """

    cluster: KubernetesClient
    namespace: str
    name: str
    patience: float

    def wait_for(self, what: str, look: Callable[[], Found | None]) -> Found:
        """Return what `look()` gives once it is something. Raises NotJudged when that takes too long."""
        deadline = time.monotonic() + self.patience
        while (found := look()) is None:
            if time.monotonic() > deadline:
                raise NotJudged(f"{what} was not seen within {self.patience:.0f} s; {self.account()}")
            time.sleep(POLL_SECONDS)
        return found

    def jobset(self) -> Object:
        """Return the JobSet as it is now."""
        return self.cluster.get(JOBSETS, self.name, self.namespace)

    def pods(self, attempt: int | None = None) -> list[Object]:
        """Return its pods, of one attempt or of all."""
        selector = f"{labels.JOBSET_NAME}={self.name}"
        if attempt is not None:
            selector += f",{labels.RESTART_ATTEMPT}={attempt}"
        return self.cluster.list_all(PODS, self.namespace, labels=selector)

    def told(self, attempt: int) -> dict[str, list[Object]]:
        """Return what each pod of an attempt has told so far, by the pod's name; a pod that is gone is absent."""
        reports = {}
        for pod in self.pods(attempt):
            name = pod["metadata"]["name"]
            try:
                text = self.cluster.log(name, self.namespace, container=CONTAINER)
            except (errors.NotFound, errors.Invalid):
                continue
            reports[name] = [line for line in map(_parsed, text.splitlines()) if line is not None]
        return reports

    def items(self, attempt: int, item: str, count: int) -> list[Object] | None:
        """Return what `count` pods of an attempt have told of an item, the last of each; None while some have not."""
        found = [[line for line in lines if line["item"] == item][-1:] for lines in self.told(attempt).values()]
        return [line for lines in found for line in lines] if sum(map(len, found)) >= count else None

    def end(self, how: str) -> None:
        """Tell all pods how to end, by their annotation."""
        for pod in self.pods():
            try:
                self.cluster.patch(
                    PODS,
                    pod["metadata"]["name"],
                    {"metadata": {"annotations": {"everstep.dev/acceptance-end": how}}},
                    self.namespace,
                )
            except errors.NotFound:
                continue

    def delete(self) -> None:
        """Delete the JobSet, and wait until it is gone with its pods."""
        self.cluster.delete(JOBSETS, self.name, self.namespace)
        deadline = time.monotonic() + self.patience
        while self.cluster.find(JOBSETS, self.name, self.namespace) is not None or self.pods():
            if time.monotonic() > deadline:
                raise NotJudged(f"JobSet {self.name} did not go within {self.patience:.0f} s")
            time.sleep(POLL_SECONDS)

    def condition(self, kind: str) -> Mapping[str, Any] | None:
        """Return a condition of the JobSet that is true."""
        for one in (self.jobset().get("status") or {}).get("conditions") or []:
            if one["type"] == kind and one["status"] == "True":
                return dict(one)
        return None

    def account(self) -> str:
        """Return how its pods stand, in words."""
        phases: dict[str, int] = {}
        for pod in self.pods():
            phase = (pod.get("status") or {}).get("phase") or "Unknown"
            phases[phase] = phases.get(phase, 0) + 1
        return "pods: " + (", ".join(f"{count} {phase}" for phase, count in sorted(phases.items())) or "none")


def _parsed(line: str) -> Object | None:
    try:
        found = json.loads(line)
    except ValueError:
        return None
    return found if isinstance(found, dict) and "item" in found else None

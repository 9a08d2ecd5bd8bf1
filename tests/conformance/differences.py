"""Where the sandbox's control plane may differ from a real one, and why nobody has to mind.

`python -m tests.conformance.differences` prints the table of docs/reference/conformance.md.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Difference:
    """What each plane does, in words and as what the suite observes of it."""

    what: str
    sandbox: str
    real: str
    why: str
    observed: dict[str, Any]

    def expected(self, plane: str) -> Any:
        """What the suite has to observe on this plane."""
        return self.observed[plane]


DIFFERENCES = {
    "rights": Difference(
        "A user without rights",
        "is answered like everybody: there is no RBAC",
        "403 with a Status object",
        "The product's roles are data that `preflight` checks; that a refusal is understood, tests show by faults",
        {"sandbox": 200, "real": 403},
    ),
    "apply conflict": Difference(
        "Server-side apply of a field that somebody set without apply",
        "taken over: only appliers own fields",
        "409, unless forced",
        "The product applies nothing; it creates and merges",
        {"sandbox": 200, "real": 409},
    ),
    "managed fields": Difference(
        "`metadata.managedFields`",
        "only of those who apply",
        "of every writer",
        "Nothing reads them",
        {"sandbox": False, "real": True},
    ),
    "wrong type": Difference(
        "A JSON value of the wrong type in a JobSet",
        "422, every such field named with its index",
        "400 by the webhook that sets defaults, the first one named as a field of a Go struct",
        "Either is a refusal for good, whose text is shown as it is",
        {"sandbox": 422, "real": 400},
    ),
    "probe times": Difference(
        "Conditions of pods",
        "type, status, reason, message, transition time",
        "also `lastProbeTime` and `observedGeneration`",
        "Nothing reads these",
        {"sandbox": False, "real": True},
    ),
    "field selectors": Difference(
        "A field selector that a ConfigMap does not know",
        "400: field label not supported",
        "400: the fields that are known",
        "A mistake in a program; pods, nodes, events and JobSets answer alike",
        {"sandbox": "field label not supported: spec.x", "real": '"spec.x" is not a known field selector: only '},
    ),
    "tolerated time": Difference(
        "`tolerationSeconds`",
        "divided by `--speed`, like all long timers",
        "as written; only the node controller's own timers have flags",
        "Everything that takes minutes is to be seen in seconds; summaries print the speed",
        {"sandbox": 0.0, "real": 2.0},
    ),
    "namespaces": Difference(
        "A namespace that is deleted",
        "goes at once, what is in it soon after",
        "stays Terminating until nothing is in it",
        "The product makes and deletes none",
        {"sandbox": "Status", "real": "Namespace"},
    ),
}


def table() -> str:
    """The differences as a Markdown table."""
    rows = ["| what | sandbox | real | why it may stay so |", "|---|---|---|---|"]
    rows += [f"| {each.what} | {each.sandbox} | {each.real} | {each.why} |" for each in DIFFERENCES.values()]
    return "\n".join(rows)


if __name__ == "__main__":
    print(table())

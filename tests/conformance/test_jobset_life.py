"""A JobSet from its creation to its end: what it makes, how that is named and marked, what its status says."""

from __future__ import annotations

from tests.conformance.bodies import jobset
from tests.conformance.place import Place, conditions, essence, holding


def test_runs_and_completes(place: Place) -> None:
    place.add_nodes(2)
    place.create("jobsets", jobset("lm", node_selector=place.only_here))
    pods = place.wait_for_pods("lm", 4)
    assert [pod["metadata"]["name"].rpartition("-")[0] for pod in pods] == [
        "lm-slice-0-0",
        "lm-slice-0-1",
        "lm-slice-1-0",
        "lm-slice-1-1",
    ]
    for pod in pods:
        place.kubelet.finish(pod)
    ended = place.wait_for_end("lm")
    assert holding(ended) >= {"Completed"}
    assert essence(conditions(ended)["Completed"]) == ("True", "AllJobsCompleted", "jobset completed successfully")
    assert ended["status"]["terminalState"] == "Completed"

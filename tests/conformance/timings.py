"""How long the same things take on both control planes: `python -m tests.conformance.timings`.

Each figure goes from the request to the watch event that tells of the outcome, at a client of the API; pods start and
end at once, so what is measured is the control plane. Writes build/bench/conformance.json.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.conformance.api import Api
from tests.conformance.bodies import JOBSET_NAME, TPU, jobset
from tests.conformance.departed_node import DepartedNode
from tests.conformance.hollow_kubelet import HollowKubelet
from tests.conformance.place import Place, holding, is_going
from tests.conformance.planes import PLANES, SPEED, Plane

OUTPUT = Path(__file__).parents[2] / "build" / "bench" / "conformance.json"

Figures = dict[str, list[float]]


@contextmanager
def place_on(plane: Plane, api: Api, kubelet: HollowKubelet) -> Iterator[Place]:
    made = Place(plane, api, kubelet)
    try:
        yield made
    finally:
        made.clear()


class Clock:
    """Adds figures in milliseconds since it was made."""

    def __init__(self, figures: Figures) -> None:
        self._figures, self._began = figures, time.monotonic()

    def note(self, name: str) -> None:
        self._figures.setdefault(name, []).append((time.monotonic() - self._began) * 1000)


def start_and_restart(place: Place, figures: Figures) -> None:
    place.add_nodes(2)
    clock = Clock(figures)
    place.create("jobsets", jobset("lm", node_selector=place.only_here))
    pods = place.wait_for_pods("lm", 4)
    clock.note("created -> all 4 pods running")
    clock = Clock(figures)
    place.kubelet.finish(pods[0], 17)
    pods = place.wait_for_pods("lm", 4, attempt=1)
    clock.note("pod failed (17) -> all running anew")
    clock = Clock(figures)
    place.kubelet.finish(pods[0], 64)
    place.wait_for("jobsets", "lm", lambda found: "Failed" in holding(found))
    clock.note("pod failed (64) -> JobSet Failed")


def suspend_and_delete(place: Place, figures: Figures) -> None:
    place.add_nodes(2)
    place.create("jobsets", jobset("lm", node_selector=place.only_here))
    place.wait_for_pods("lm", 4)
    clock = Clock(figures)
    place.patch("jobsets", "lm", {"spec": {"suspend": True}})
    place.wait("pods", lambda found: not found)
    clock.note("suspended -> no pods")
    clock = Clock(figures)
    place.patch("jobsets", "lm", {"spec": {"suspend": False}})
    place.wait_for_pods("lm", 4)
    clock.note("resumed -> all running")
    clock = Clock(figures)
    place.delete("jobsets", "lm", propagationPolicy="Foreground")
    place.wait_gone("jobsets", "lm")
    clock.note("deleted in the foreground -> gone")


def preempt(place: Place, figures: Figures) -> None:
    low, high = place.priority("low", 1000), place.priority("high", 2000)
    nodes = place.add_nodes(2, resources={TPU: "4"})
    place.create("jobsets", jobset("filler", slices=1, tpu=4, priority=low, node_selector=place.only_here))
    place.wait_for_pods("filler", 2)
    selector: dict[str, Any] = {"labelSelector": f"{JOBSET_NAME}=train"}
    with place.kubelet.holding_ends(*nodes):
        clock = Clock(figures)
        place.create("jobsets", jobset("train", slices=1, tpu=4, priority=high, node_selector=place.only_here))
        place.wait(
            "pods",
            lambda found: sum(bool(pod["status"].get("nominatedNodeName")) for pod in found.values()) == 2,
            **selector,
        )
        clock.note("preemptor created -> both pods nominated")
        place.wait("pods", lambda found: sum(map(is_going, found.values())) == 2)
    clock = Clock(figures)
    place.wait_for_pods("train", 2)
    clock.note("victims ended -> preemptor running")


SCENARIOS: tuple[Callable[[Place, Figures], None], ...] = (start_and_restart, suspend_and_delete, preempt)


def measure(plane: Plane, samples: int) -> Figures:
    """Figures of one plane, in milliseconds, by name."""
    figures: Figures = {}
    api = Api(plane.kubeconfig)
    kubelet = HollowKubelet(api)
    kubelet.start()
    try:
        for _ in range(samples):
            for scenario in SCENARIOS:
                with place_on(plane, api, kubelet) as place:
                    scenario(place, figures)
        lost = DepartedNode(plane, api, kubelet)
        clock = Clock(figures)
        lost.place.wait_for_pods("lm", 4, attempt=1, seconds=plane.timing.node_gone + 30)
        clock.note("Node deleted -> all running anew")
        lost.close()
    finally:
        kubelet.stop()
        api.close()
    return figures


def summary(figures: Figures) -> dict[str, dict[str, float]]:
    """Median, least, most and the number of samples of each figure."""
    return {
        name: {
            "ms_p50": round(statistics.median(found), 1),
            "ms_min": round(min(found), 1),
            "ms_max": round(max(found), 1),
            "samples": len(found),
        }
        for name, found in figures.items()
    }


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.conformance.timings", description=__doc__)
    parser.add_argument("--planes", default=",".join(PLANES), help="which, separated by commas")
    parser.add_argument("--samples", type=int, default=5, help="how often each thing is done")
    arguments = parser.parse_args()
    # What is not measured this time stays.
    result: dict[str, object] = json.loads(OUTPUT.read_text()) if OUTPUT.exists() else {}
    result["speed_of_long_timers"] = SPEED
    for name in arguments.planes.split(","):
        with tempfile.TemporaryDirectory(prefix="conformance-") as directory, PLANES[name](Path(directory)) as plane:
            result[name] = summary(measure(plane, arguments.samples))
        print_plane(name, result[name])
    OUTPUT.parent.mkdir(parents=True, exist_ok=True)
    OUTPUT.write_text(json.dumps(result, indent=2) + "\n")
    print(OUTPUT)


def print_plane(name: str, figures: object) -> None:
    assert isinstance(figures, dict)
    print(f"{name}: median (least - most) of so many")
    for what, found in figures.items():
        spread = f"({found['ms_min']:8.0f} - {found['ms_max']:8.0f})"
        print(f"  {what:42} {found['ms_p50']:8.0f} ms {spread} {found['samples']}", flush=True)


if __name__ == "__main__":
    main()

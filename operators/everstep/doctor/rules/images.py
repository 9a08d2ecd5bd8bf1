"""Images that can't be pulled and containers that can't start, after a grace time. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from everstep.doctor import objects
from everstep.doctor.case import Case
from everstep.doctor.diagnosis import Confidence, Diagnosis, Symptom, quote
from everstep.doctor.evidence import Object
from everstep.spec.findings import Severity

# Registries hiccup, and a pull is tried again after 10 s, 20 s, 40 s …
GRACE_SECONDS = 180.0
CANT_PULL = frozenset({"ErrImagePull", "ImagePullBackOff", "ErrImageNeverPull", "RegistryUnavailable"})
# No later try can mend these.
HOPELESS = frozenset({"InvalidImageName", "ErrImageNeverPull"})
CANT_START = frozenset({"CreateContainerConfigError", "CreateContainerError", "RunContainerError", "StartError"})

SYMPTOMS = (
    Symptom("image", "an image can't be pulled", ("driver-not-ready", "run-not-started", "restarts-in-vain")),
    Symptom("container", "a container can't be started", ("driver-not-ready", "run-not-started", "restarts-in-vain")),
)


def images(case: Case) -> Iterator[Diagnosis]:
    """Whose image can't be pulled?"""
    events = [*case.evidence.all("events"), *case.evidence.all("driver-events")]
    for (image, reason), stuck in _stuck(case, CANT_PULL | HOPELESS).items():
        pods = sorted(objects.full_name(pod) for pod, _ in stuck)
        oldest = max(objects.seconds_since(pod["metadata"].get("creationTimestamp"), case.now) or 0 for pod, _ in stuck)
        message = next((text for _, text in stuck if text), "")
        names = {name.partition("/")[2] for name in pods}
        told = [one for one in events if objects.about(one)[1] in names and "image" in str(one.get("message")).lower()]
        hopeless = reason in HOPELESS
        yield Diagnosis(
            "image",
            f"image {image}",
            _why(reason, f"{message} {' '.join(str(one.get('message')) for one in told)}"),
            (quote(f"{len(pods)} pods ({pods[0]}, …) {reason}: {message}"), *list(objects.told(told))[:2]),
            (
                f"gcloud artifacts docker images describe {image}   # is it there, and may you read it?",
                "correct trainer.image in the run file, or let the nodes' service account read the registry "
                "(roles/artifactregistry.reader)",
            ),
            severity=Severity.ERROR if hopeless or oldest >= GRACE_SECONDS else Severity.WARNING,
            confidence=Confidence.CERTAIN if hopeless or oldest >= GRACE_SECONDS else Confidence.POSSIBLE,
        )


def containers(case: Case) -> Iterator[Diagnosis]:
    """Whose container can't be started?"""
    for (image, reason), stuck in _stuck(case, CANT_START).items():
        pod, message = stuck[0]
        yield Diagnosis(
            "container",
            f"pod {objects.full_name(pod)}",
            f"its container can't be started: {quote(message) or reason}",
            (quote(f"{len(stuck)} pods, image {image}, {reason}: {message}"),),
            (f"kubectl describe pod -n {pod['metadata'].get('namespace')} {objects.name(pod)}",),
        )


RULES = (images, containers)


def is_stuck(pod: Object) -> bool:
    """Say whether a pod waits for an image or can't start a container, which has a diagnosis of its own."""
    return any(
        (state.get("waiting") or {}).get("reason") in CANT_PULL | HOPELESS | CANT_START
        for _, state, _ in objects.container_states(pod)
    )


def _stuck(case: Case, reasons: frozenset[str]) -> dict[tuple[str, str], list[tuple[Object, str]]]:
    """Return pods with a container that waits for one of these reasons, by image and reason."""
    found: dict[tuple[str, str], list[tuple[Object, str]]] = defaultdict(list)
    for pod in [*case.pods, *case.evidence.all("driver-pods")]:
        spec = pod.get("spec") or {}
        declared = [*(spec.get("containers") or []), *(spec.get("initContainers") or [])]
        image_of = {each.get("name"): str(each.get("image")) for each in declared}
        for container, state, _ in objects.container_states(pod):
            waiting = state.get("waiting") or {}
            if waiting.get("reason") in reasons:
                # A pull that fails alternates between the two.
                reason = "ErrImagePull" if waiting["reason"] == "ImagePullBackOff" else str(waiting["reason"])
                found[image_of.get(container, "?"), reason].append((pod, str(waiting.get("message") or "")))
    return found


def _why(reason: str, text: str) -> str:
    lowered = text.lower()
    if reason == "InvalidImageName":
        return "its name is no name of an image, so waiting is useless"
    if "not found" in lowered or "notfound" in lowered or "manifest unknown" in lowered:
        return "the registry has no such image or tag"
    if any(word in lowered for word in ("403", "401", "denied", "forbidden", "unauthorized")):
        return "the registry refuses it to the nodes"
    if "429" in lowered or "toomanyrequests" in lowered or "rate limit" in lowered:
        return "the registry has too many requests; the pull is tried again by itself"
    return "it can't be pulled"

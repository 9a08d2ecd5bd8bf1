"""The JobSet controller, as a step: there, new enough, and with the resources that large sets need."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from everstep.clients.errors import Conflict, Forbidden
from everstep.clients.kubernetes import Object
from everstep.clients.resources import (
    CUSTOM_RESOURCE_DEFINITIONS,
    DEPLOYMENTS,
    JOBSET_DEFINITION,
    JOBSET_NAMESPACE,
    JOBSET_RELEASE,
)
from everstep.provision.changes import Change, Look, Waiting
from everstep.provision.in_cluster import texts
from everstep.provision.in_cluster.reading import Reader
from everstep.provision.in_cluster.resources_raised import Patch, raised
from everstep.spec.findings import Finding, FindingsError, error, note, warning

if TYPE_CHECKING:
    from everstep.provision.site import Site

# Scoping of exclusive placement by priority, without which no slice can be preempted (jobset#687, #1077).
HOT_SWAP_VERSION = (0, 11)
AVAILABLE_SECONDS = 600.0
_IMAGE = re.compile(r"(?:^|/)jobset[^:@]*:v?(\d+)\.(\d+)(?:\.\d+)?")
# What other documents of a manifest need is made first, whatever the order in the file.
_FIRST = ("Namespace", "CustomResourceDefinition")


class JobSetController:
    """The controller of JobSets, in namespace jobset-system.

    :param seconds: how long it may take to become available
    """

    title = "JobSet controller"

    def __init__(self, site: Site, *, seconds: float = AVAILABLE_SECONDS) -> None:
        self._spec = site.spec
        self._folder = site.folder
        self._runs = site.runs
        self._reader = Reader(site)
        self._seconds = seconds

    def look(self) -> Look:
        """Look at definition, Deployment, version and resources. Raises FindingsError for a manifest that is unfit."""
        documents = self._documents()
        absence = self._reader.absence()
        defined = self._reader.find(CUSTOM_RESOURCE_DEFINITIONS, JOBSET_DEFINITION) is not None
        deployment = manager(self._reader.list_all(DEPLOYMENTS, JOBSET_NAMESPACE))
        if documents and defined and deployment is None and not self._was_begun(documents):
            return Look((*absence, self._elsewhere()))
        if documents and (deployment is None or image(deployment) == _image_of(documents)):
            lacking = [each for each in documents if deployment is None or not self._is_there(each)]
            if lacking:
                found = "not there"
                if deployment is not None:
                    found = f"{len(documents) - len(lacking)} of {len(documents)} objects"
                elif defined:
                    found = "its Deployment is not there"
                return Look(absence, (self._installation(documents, lacking, found),))
        if not defined:
            return Look((*absence, self._not_installed()))
        if deployment is None:
            seen = note(
                "JobSet", f"its Deployment is not in namespace {JOBSET_NAMESPACE}", "one whose version can be told"
            )
            return Look((*absence, seen))
        findings = (*absence, *self._too_old(deployment))
        patch = self._raised(deployment)
        if patch is not None:
            return Look(findings, (self._raise(deployment, patch),))
        return Look(findings, waiting=None if is_available(deployment) else self._availability(deployment))

    def _was_begun(self, documents: list[Object]) -> bool:
        """Say whether it is an installation of this manifest that was cut short: that begins with the namespace."""
        return any(each["kind"] == "Namespace" and self._is_there(each) for each in documents)

    def _is_there(self, document: Object) -> bool:
        resource = self._reader.client.resource_of(document["apiVersion"], document["kind"])
        metadata = document["metadata"]
        namespace = metadata.get("namespace", "default") if resource.namespaced else None
        return self._reader.find(resource, metadata["name"], namespace) is not None

    def _installation(self, documents: list[Object], lacking: list[Object], found: str) -> Change:
        def act() -> Waiting | None:
            for document in lacking:
                self._create(document)
            # What is raised next is rolled out anew: waiting before that would be in vain.
            return None if patch is not None else self._availability(made)

        path = self._spec.jobset.manifest
        (made,) = (each for each in documents if each["kind"] == "Deployment")
        patch = self._raised(made)
        return Change(
            "JobSet controller",
            "install",
            found,
            f"{_image_of(documents)}: {len(documents)} objects of {path}"
            + (f"; then its manager raised to {patch.wanted}" if patch is not None else ""),
            act,
            (
                texts.kubectl("apply", "--server-side", "-f", str(self._folder / str(path))),
                *(() if patch is None else (_patch_command(made, patch),)),
                texts.kubectl(
                    "wait",
                    "-n",
                    JOBSET_NAMESPACE,
                    "--for=condition=Available",
                    f"--timeout={self._seconds:.0f}s",
                    "deployment",
                    made["metadata"]["name"],
                ),
            ),
            note="takes the rights of a cluster administrator, since it grants the controller its own",
        )

    def _create(self, document: Object) -> None:
        client = self._reader.client
        resource = client.resource_of(document["apiVersion"], document["kind"])
        namespace = document["metadata"].get("namespace", "default") if resource.namespaced else None
        try:
            client.create(resource, document, namespace)
        except Conflict:
            # There already: what somebody else made is not written over.
            return
        except Forbidden as failure:
            raise FindingsError(
                "the JobSet controller can't be installed",
                [
                    error(
                        f"{document['kind']} {document['metadata']['name']}",
                        failure.message,
                        "leave to make it: only a cluster administrator may grant the controller its rights",
                        texts.kubectl("apply", "--server-side", "-f", str(self._spec.jobset.manifest)),
                    )
                ],
            ) from failure

    def _raised(self, deployment: Object) -> Patch | None:
        wanted = self._spec.jobset
        return raised(
            deployment, cpu=wanted.manager_cpu, memory=wanted.manager_memory, memory_limit=wanted.manager_memory_limit
        )

    def _raise(self, deployment: Object, patch: Patch) -> Change:
        name = deployment["metadata"]["name"]

        def act() -> Waiting:
            self._reader.client.patch(DEPLOYMENTS, name, patch.body, JOBSET_NAMESPACE, strategic=True)
            return self._availability(deployment)

        return Change(
            f"Deployment {JOBSET_NAMESPACE}/{name}",
            "update",
            patch.found,
            patch.wanted,
            act,
            (_patch_command(deployment, patch),),
            note="restarts the controller's pod; running sets go on",
        )

    def _availability(self, deployment: Mapping[str, Any]) -> Waiting:
        name, namespace = deployment["metadata"]["name"], deployment["metadata"].get("namespace", JOBSET_NAMESPACE)
        return Waiting(
            "deployment_available",
            {"name": name, "namespace": namespace},
            f"Deployment {namespace}/{name} to be available",
            self._seconds,
        )

    def _not_installed(self) -> Finding:
        return warning(
            "JobSet",
            "not installed",
            "the JobSet controller: without it nothing can be launched",
            f"kubectl apply --server-side -f {JOBSET_RELEASE}, "
            "or name such a file as jobset.manifest in the cluster file",
        )

    def _elsewhere(self) -> Finding:
        return error(
            "JobSet",
            f"its kind is served, but no controller of it is in namespace {JOBSET_NAMESPACE}",
            "one controller: a second one would fight the one that is installed elsewhere",
            "if it is: take jobset.manifest out of the cluster file; if the kind was only left behind: "
            + texts.kubectl("create", "namespace", JOBSET_NAMESPACE)
            + ", and run it again",
        )

    def _too_old(self, deployment: Object) -> list[Finding]:
        version = version_of(deployment)
        if version is None or version >= HOT_SWAP_VERSION:
            return []
        swapping = [run.name for run in self._runs if run.slices.spare == "preempt"]
        tell = error if swapping else warning
        return [
            tell(
                "JobSet",
                f"version {version[0]}.{version[1]}",
                "0.11 or newer, since older ones keep a slice from being preempted"
                + (f" and runs {', '.join(swapping)} rely on that" if swapping else ""),
                f"kubectl apply --server-side --force-conflicts -f {self._spec.jobset.manifest or JOBSET_RELEASE}",
            )
        ]

    def _documents(self) -> list[Object]:
        path = self._spec.jobset.manifest
        return [] if path is None else read_manifest(self._folder / path)


def _patch_command(deployment: Object, patch: Patch) -> str:
    shown = texts.flow({"spec": patch.body["spec"]})
    name = deployment["metadata"]["name"]
    return texts.kubectl("patch", "deployment", name, "-n", JOBSET_NAMESPACE, "--type=strategic", "-p", shown)


def manager(deployments: Iterable[Object]) -> Object | None:
    """Return the Deployment of the JobSet controller's manager."""
    return next((each for each in deployments if image(each) is not None), None)


def image(deployment: Mapping[str, Any]) -> str | None:
    """Return the controller's image, None when the Deployment runs something else."""
    containers = ((deployment["spec"].get("template") or {}).get("spec") or {}).get("containers") or []
    return next((each["image"] for each in containers if "jobset" in each.get("image", "").rpartition("/")[2]), None)


def version_of(deployment: Mapping[str, Any]) -> tuple[int, int] | None:
    """Return major and minor version by the image's tag; None when it does not tell."""
    match = _IMAGE.search(image(deployment) or "")
    return (int(match[1]), int(match[2])) if match else None


def is_available(deployment: Mapping[str, Any]) -> bool:
    """Say whether a Deployment's present spec is rolled out and available."""
    status = deployment.get("status") or {}
    current = int(status.get("observedGeneration") or 0) >= int(deployment["metadata"].get("generation") or 0)
    wanted = int(deployment["spec"].get("replicas", 1))
    return (
        current
        and int(status.get("updatedReplicas") or 0) >= wanted
        and any(
            each.get("type") == "Available" and each.get("status") == "True" for each in status.get("conditions") or ()
        )
    )


def read_manifest(path: Path) -> list[Object]:
    """Return the documents of a release's manifest, what others need first. Raises FindingsError when it is unfit."""
    where = f"jobset.manifest {path}"
    try:
        documents = [each for each in yaml.safe_load_all(path.read_text(encoding="utf-8")) if each]
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as failure:
        raise FindingsError(
            "the JobSet controller's manifest can't be read",
            [error(where, " ".join(str(failure).split()), "a release's manifest", f"curl -Lo {path} {JOBSET_RELEASE}")],
        ) from None
    unfit = [each for each in documents if not _is_object(each)]
    names = [str(each["metadata"]["name"]) for each in documents if _is_object(each)]
    if unfit or JOBSET_DEFINITION not in names or _image_of([each for each in documents if _is_object(each)]) is None:
        found = f"{len(unfit)} documents that are no objects" if unfit else f"objects {', '.join(names[:5])}"
        expected = f"CustomResourceDefinition {JOBSET_DEFINITION} and one Deployment of the controller"
        raise FindingsError(
            "the JobSet controller's manifest is unfit",
            [error(where, found, expected, f"curl -Lo {path} {JOBSET_RELEASE}")],
        )
    return sorted(documents, key=lambda each: _FIRST.index(each["kind"]) if each["kind"] in _FIRST else len(_FIRST))


def _image_of(documents: Iterable[Object]) -> str | None:
    deployments = [each for each in documents if each["kind"] == "Deployment"]
    return image(deployments[0]) if len(deployments) == 1 else None


def _is_object(document: Any) -> bool:
    return (
        isinstance(document, dict)
        and isinstance(document.get("apiVersion"), str)
        and isinstance(document.get("kind"), str)
        and bool((document.get("metadata") or {}).get("name"))
    )

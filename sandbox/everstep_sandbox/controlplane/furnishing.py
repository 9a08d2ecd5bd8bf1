"""What a cluster holds before anybody uses it: the JobSet controller's objects, GKE's namespaces and its checkpointing.

The JobSet controller runs beside the API server instead of in a pod, so its webhooks are reached by address, and its
rights are bound to a user instead of a ServiceAccount. Everything else is its own manifests.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import yaml

from everstep_sandbox.controlplane.settings import Settings
from everstep_sandbox.kubernetes.bootstrap import CSI_DRIVER, NAMESPACES, definition
from everstep_sandbox.kubernetes.resources import RESOURCES
from everstep_sandbox.stack.furnish import RequestError

Object = dict[str, Any]
Ask = Callable[[str, str, Object | None], Object]

_RBAC = "/apis/rbac.authorization.k8s.io/v1"
_WEBHOOKS = "/apis/admissionregistration.k8s.io/v1"
_DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"


def furnish(ask: Ask, settings: Settings, manifests: Path) -> None:
    """Creates what is missing and renews what is the JobSet controller's: its version may be another one than before.

    Webhooks come last: from then on JobSets need their controller.

    :param ask: carries out one request (method, path, body) as an administrator
    """
    for name in NAMESPACES:
        _ensure(ask, "/api/v1/namespaces", {"metadata": {"name": name}})
    for definition_ in _documents(manifests / "crd" / "bases"):
        _renew(ask, _DEFINITIONS, definition_)
    for resource in RESOURCES:
        if resource.group == "checkpointing.gke.io":
            _ensure(ask, _DEFINITIONS, {key: value for key, value in definition(resource).items() if key != "status"})
    _ensure(
        ask,
        "/apis/storage.k8s.io/v1/csidrivers",
        {
            "metadata": {"name": CSI_DRIVER},
            "spec": {"attachRequired": False, "podInfoOnMount": True, "volumeLifecycleModes": ["Ephemeral"]},
        },
    )
    role = next(_documents(manifests / "rbac" / "role.yaml"))
    role["metadata"]["name"] = "jobset-manager-role"
    _renew(ask, f"{_RBAC}/clusterroles", role)
    _ensure(
        ask,
        f"{_RBAC}/clusterrolebindings",
        {
            "metadata": {"name": "jobset-manager-rolebinding"},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "jobset-manager-role"},
            "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "jobset-controller"}],
        },
    )


def furnish_webhooks(ask: Ask, settings: Settings, manifests: Path) -> None:
    """Names the JobSet controller's webhooks, once it serves them; port and certificate may be others than before."""
    bundle = base64.b64encode(settings.credentials.authority.read_bytes()).decode()
    patches = manifests / "webhook" / "patches"
    for webhooks in _documents(manifests / "webhook" / "manifests.yaml"):
        kind = webhooks["kind"]
        mutating = kind.startswith("Mutating")
        for operation in yaml.safe_load((patches / f"{'mutating' if mutating else 'validating'}-patch.yaml").open()):
            webhooks["webhooks"][int(operation["path"].rpartition("/")[2])] = operation["value"]
        webhooks["metadata"]["name"] = f"jobset-{webhooks['metadata']['name']}"
        for webhook in webhooks["webhooks"]:
            path = webhook["clientConfig"]["service"]["path"]
            webhook["clientConfig"] = {"url": settings.webhooks + path, "caBundle": bundle}
        _renew(ask, f"{_WEBHOOKS}/{kind.lower()}s", webhooks)


def _ensure(ask: Ask, path: str, body: Object) -> bool:
    """Creates an object unless there is one of its name; returns whether it did."""
    try:
        ask("POST", path, body)
    except RequestError as error:
        if error.code != 409:
            raise
        return False
    return True


def _renew(ask: Ask, path: str, body: Object) -> None:
    """Creates an object, or puts it in the place of the one of its name."""
    if not _ensure(ask, path, body):
        own = f"{path}/{body['metadata']['name']}"
        version = ask("GET", own, None)["metadata"]["resourceVersion"]
        ask("PUT", own, {**body, "metadata": {**body["metadata"], "resourceVersion": version}})


def _documents(path: Path) -> Iterator[Object]:
    for file in sorted(path.glob("*.yaml")) if path.is_dir() else [path]:
        yield from (document for document in yaml.safe_load_all(file.read_text()) if document)

"""Service Usage v1: which APIs the project has enabled, and enabling them."""

from __future__ import annotations

from typing import Any

from everstep_sandbox.google import errors
from everstep_sandbox.google.exchange import Request
from everstep_sandbox.google.state import State, unique

Object = dict[str, Any]

TITLES = {
    "artifactregistry.googleapis.com": "Artifact Registry API",
    "cloudkms.googleapis.com": "Cloud Key Management Service (KMS) API",
    "cloudresourcemanager.googleapis.com": "Cloud Resource Manager API",
    "compute.googleapis.com": "Compute Engine API",
    "container.googleapis.com": "Kubernetes Engine API",
    "iam.googleapis.com": "Identity and Access Management (IAM) API",
    "iamcredentials.googleapis.com": "IAM Service Account Credentials API",
    "logging.googleapis.com": "Cloud Logging API",
    "monitoring.googleapis.com": "Cloud Monitoring API",
    "serviceusage.googleapis.com": "Service Usage API",
    "storage.googleapis.com": "Google Cloud Storage JSON API",
    "sts.googleapis.com": "Security Token Service API",
    "tpu.googleapis.com": "Cloud TPU API",
}
_BROUGHT_ALONG = {
    "container.googleapis.com": ("compute.googleapis.com", "iam.googleapis.com", "iamcredentials.googleapis.com"),
}
_MOST_AT_ONCE = 20


class Services:
    """Handlers of `projects/P/services…`. What is enabled is so at once; the operation is DONE when answered."""

    def __init__(self, state: State) -> None:
        self._state = state

    def get(self, request: Request, project: str, name: str) -> Object:
        return self._shown(name)

    def list_all(self, request: Request, project: str) -> Object:
        only = request.first("filter")
        if only not in ("", "state:ENABLED", "state:DISABLED"):
            raise errors.invalid(f"Invalid filter {only!r}: expected state:ENABLED or state:DISABLED.")
        found = [self._shown(name) for name in sorted({*TITLES, *self._state.services})]
        return {"services": [one for one in found if not only or one["state"] == only.partition(":")[2]]}

    def batch_get(self, request: Request, project: str) -> Object:
        names = [name.rpartition("/")[2] for name in request.query.get("names", ())]
        return {"services": [self._shown(name) for name in names]}

    def enable(self, request: Request, project: str, name: str) -> Object:
        self._enable([name])
        return self._operation({"service": self._shown(name)}, "EnableServiceResponse")

    def batch_enable(self, request: Request, project: str) -> Object:
        names = request.document().get("serviceIds") or []
        if not names or len(names) > _MOST_AT_ONCE:
            raise errors.invalid(f"Between 1 and {_MOST_AT_ONCE} services can be enabled at once; found {len(names)}.")
        self._enable(names)
        return self._operation({"services": [self._shown(name) for name in names]}, "BatchEnableServicesResponse")

    def disable(self, request: Request, project: str, name: str) -> Object:
        self._shown(name)
        self._state.document["services"] = [one for one in self._state.services if one != name]
        self._state.save()
        return self._operation({"service": self._shown(name)}, "DisableServiceResponse")

    def operation(self, request: Request, name: str) -> Object:
        return {"name": f"operations/{name}", "done": True}

    def check(self, name: str) -> None:
        """Raises GoogleError 403 when the API is not enabled."""
        if name not in self._state.services:
            raise errors.service_disabled(name, TITLES[name], self._state.project, self._state.number)

    def _enable(self, names: list[str]) -> None:
        for name in names:
            self._shown(name)
        for name in names:
            for one in (name, *_BROUGHT_ALONG.get(name, ())):
                if one not in self._state.services:
                    self._state.services.append(one)
        self._state.save()

    def _shown(self, name: str) -> Object:
        if name not in TITLES:
            raise errors.GoogleError(
                "NOT_FOUND", f"Service '{name}' not found or permission denied. (the sandbox knows {', '.join(TITLES)})"
            )
        return {
            "name": f"projects/{self._state.number}/services/{name}",
            "config": {"name": name, "title": TITLES[name]},
            "state": "ENABLED" if name in self._state.services else "DISABLED",
            "parent": f"projects/{self._state.number}",
        }

    def _operation(self, response: Object, kind: str) -> Object:
        typed = {"@type": f"type.googleapis.com/google.api.serviceusage.v1.{kind}", **response}
        return {"name": f"operations/acf.p2-{self._state.number}-{unique()}", "done": True, "response": typed}

"""Which request goes to which handler, what right and which enabled API it takes, and whether it changes anything."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from everstep_sandbox.google import errors
from everstep_sandbox.google.exchange import Request
from everstep_sandbox.google.gke import Gke
from everstep_sandbox.google.policies import Policies
from everstep_sandbox.google.services import Services
from everstep_sandbox.google.state import State

Object = dict[str, Any]

_PROJECT = r"/v\d/projects/([^/:]+)"
_PLACE = _PROJECT + r"/(?:locations|zones)/([^/:]+)"
_CLUSTER = _PLACE + r"/clusters/([^/:]+)"
_POOL = _CLUSTER + r"/nodePools/([^/:]+)"
_KEY = r"/v1/projects/([^/]+)/locations/([^/]+)/keyRings/([^/]+)/cryptoKeys/([^/:]+)"


@dataclass(frozen=True)
class Route:
    """One method of an API."""

    method: str
    pattern: re.Pattern[str]
    permission: str
    service: str
    handler: Callable[..., Object]
    mutates: bool


class Router:
    """The whole of the APIs as one function of a request; knows nothing of the network."""

    def __init__(self, state: State, gke: Gke) -> None:
        self._state = state
        self.policies = Policies(state)
        self._services = Services(state)
        gke_api, usage, resources = "container", "serviceusage", "cloudresourcemanager"
        routes: list[tuple[str, str, str, str, Callable[..., Object]]] = [
            ("GET", _PLACE + "/serverConfig", "container.clusters.list", gke_api, gke.server_config),
            ("GET", _PLACE + "/clusters", "container.clusters.list", gke_api, gke.list_all),
            ("POST", _PLACE + "/clusters", "container.clusters.create", gke_api, gke.create),
            ("GET", _CLUSTER, "container.clusters.get", gke_api, gke.get),
            ("PUT", _CLUSTER, "container.clusters.update", gke_api, gke.update),
            ("DELETE", _CLUSTER, "container.clusters.delete", gke_api, gke.delete),
            ("POST", _CLUSTER + ":setResourceLabels", "container.clusters.update", gke_api, gke.set_labels),
            ("GET", _CLUSTER + "/nodePools", "container.clusters.get", gke_api, gke.pools.list_all),
            ("POST", _CLUSTER + "/nodePools", "container.clusters.update", gke_api, gke.pools.create),
            ("GET", _POOL, "container.clusters.get", gke_api, gke.pools.get),
            ("PUT", _POOL, "container.clusters.update", gke_api, gke.pools.update),
            ("DELETE", _POOL, "container.clusters.update", gke_api, gke.pools.delete),
            ("POST", _POOL + ":setSize", "container.clusters.update", gke_api, gke.pools.set_size),
            ("GET", _PLACE + "/operations", "container.operations.list", gke_api, gke.operations_of),
            ("GET", _PLACE + "/operations/([^/:]+)", "container.operations.get", gke_api, gke.operation),
            (
                "GET",
                r"/compute/v1/projects/([^/]+)/zones/([^/]+)/instanceGroupManagers/([^/]+)",
                "compute.instanceGroupManagers.get",
                "compute",
                gke.pools.instance_group,
            ),
            ("GET", _PROJECT + "/services", "serviceusage.services.list", usage, self._services.list_all),
            ("GET", _PROJECT + "/services:batchGet", "serviceusage.services.get", usage, self._services.batch_get),
            (
                "POST",
                _PROJECT + "/services:batchEnable",
                "serviceusage.services.enable",
                usage,
                self._services.batch_enable,
            ),
            ("GET", _PROJECT + "/services/([^/:]+)", "serviceusage.services.get", usage, self._services.get),
            (
                "POST",
                _PROJECT + "/services/([^/:]+):enable",
                "serviceusage.services.enable",
                usage,
                self._services.enable,
            ),
            (
                "POST",
                _PROJECT + "/services/([^/:]+):disable",
                "serviceusage.services.disable",
                usage,
                self._services.disable,
            ),
            ("GET", r"/v1/operations/([^/:]+)", "", usage, self._services.operation),
            ("GET", _PROJECT, "resourcemanager.projects.get", resources, self.policies.project),
            (
                "POST",
                _PROJECT + ":getIamPolicy",
                "resourcemanager.projects.getIamPolicy",
                resources,
                self.policies.get_of_project,
            ),
            (
                "POST",
                _PROJECT + ":setIamPolicy",
                "resourcemanager.projects.setIamPolicy",
                resources,
                self.policies.set_of_project,
            ),
            ("GET", _KEY, "cloudkms.cryptoKeys.get", "cloudkms", self.policies.key),
            ("GET", _KEY + ":getIamPolicy", "cloudkms.cryptoKeys.getIamPolicy", "cloudkms", self.policies.get_of_key),
            ("POST", _KEY + ":setIamPolicy", "cloudkms.cryptoKeys.setIamPolicy", "cloudkms", self.policies.set_of_key),
            ("GET", _PROJECT + "/roles/([^/:]+)", "iam.roles.get", "iam", self.policies.role),
            ("POST", _PROJECT + "/roles", "iam.roles.create", "iam", self.policies.create_role),
            ("PATCH", _PROJECT + "/roles/([^/:]+)", "iam.roles.update", "iam", self.policies.patch_role),
        ]
        self._routes = [
            Route(
                method,
                re.compile(pattern),
                permission,
                f"{service}.googleapis.com",
                handler,
                method != "GET" and ":getIamPolicy" not in pattern,
            )
            for method, pattern, permission, service, handler in routes
        ]

    def route(self, method: str, path: str) -> tuple[Route, tuple[str, ...]] | None:
        """The route of a request and the parts of its path; None where there is none."""
        for route in self._routes:
            match = route.pattern.fullmatch(path) if route.method == method else None
            if match is not None:
                return route, match.groups()
        return None

    def handle(self, request: Request) -> Object:
        """Raises GoogleError for a request that is refused."""
        found = self.route(request.method, request.path)
        if found is None:
            raise errors.GoogleError("NOT_FOUND", f"Method not found: {request.method} {request.path}")
        route, parts = found
        self._services.check(route.service)
        if "/projects/" in request.path and parts[0] not in (self._state.project, self._state.number):
            # Whether there is such a project is not told to those who have no right on it.
            raise errors.GoogleError(
                "PERMISSION_DENIED",
                f"Permission '{route.permission}' denied on resource '//cloudresourcemanager.googleapis.com/projects/"
                f"{parts[0]}' (or it may not exist).",
            )
        resource = request.path.partition("/v1/")[2].partition(":")[0] if route.service.startswith("cloudkms") else ""
        if route.permission and not self.policies.may(request.caller, route.permission, resource):
            raise errors.denied(route.permission, request.path.split("/", 2)[2].partition(":")[0])
        return route.handler(request, *parts)

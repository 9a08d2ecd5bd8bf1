"""Kubernetes for operators and the command line: plain JSON objects over the official client's connection."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from everstep.clients import errors
from everstep.clients.resources import PODS, Resource
from everstep.clients.retrying import Backoff, Refresh, Tries

Object = dict[str, Any]
MERGE_PATCH = "application/merge-patch+json"
STRATEGIC_PATCH = "application/strategic-merge-patch+json"
USER_AGENT = "everstep"
REQUEST_SECONDS = 30.0
PAGE = 500


@dataclass(frozen=True)
class Server:
    """Whom a client talks to.

    :param url: the API server's address
    :param authority: the certificates (PEM) that vouch for it; empty when the machine's own, or none, are trusted
    """

    url: str
    authority: str


class KubernetesClient:
    """A cluster's API. Every method raises the errors of `everstep.clients.errors`.

    :param open_client: opens a `kubernetes.client.ApiClient` with fresh credentials
    """

    def __init__(self, open_client: Callable[[], Any], *, backoff: Backoff | None = None) -> None:
        self._open_client = open_client
        self._backoff = backoff or Backoff()
        self._client: Any = None

    def close(self) -> None:
        """Close the connections."""
        if self._client is not None:
            self._client.close()
            self._client = None

    def __enter__(self) -> KubernetesClient:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def get(self, resource: Resource, name: str, namespace: str | None = None) -> Object:
        """Return one object. Raises NotFound."""
        return self._request("GET", resource.path(namespace, name))

    def find(self, resource: Resource, name: str, namespace: str | None = None) -> Object | None:
        """Return one object, or None when there is none."""
        try:
            return self.get(resource, name, namespace)
        except errors.NotFound:
            return None

    def list_all(
        self, resource: Resource, namespace: str | None = None, *, labels: str = "", fields: str = ""
    ) -> list[Object]:
        """Return all objects that selectors choose, in a namespace or in all of them."""
        return list(self._pages(resource.path(namespace), list_query(labels, fields)))

    def list_most(
        self, resource: Resource, namespace: str | None = None, *, labels: str = "", fields: str = "", most: int
    ) -> list[Object]:
        """Return the first objects that selectors choose, at most so many."""
        return list(islice(self._pages(resource.path(namespace), list_query(labels, fields)), most))

    def create(
        self, resource: Resource, body: Object, namespace: str | None = None, *, dry_run: bool = False
    ) -> Object:
        """Create an object. Raises Conflict when it exists.

        A try whose answer was lost is repeated, so Conflict can also mean that this very call made the object.

        :param dry_run: only ask whether it would be taken
        """
        query = [("dryRun", "All")] if dry_run else []
        return self._request("POST", resource.path(namespace), query=query, body=body)

    def patch(
        self, resource: Resource, name: str, body: Object, namespace: str | None = None, *, strategic: bool = False
    ) -> Object:
        """Merge `body` into an object. Raises Conflict when `body` names another uid or resourceVersion than it has.

        :param strategic: items of lists such as containers are merged by their names; not for custom objects
        """
        content_type = STRATEGIC_PATCH if strategic else MERGE_PATCH
        return self._request("PATCH", resource.path(namespace, name), body=body, content_type=content_type)

    def delete(self, resource: Resource, name: str, namespace: str | None = None, *, uid: str | None = None) -> bool:
        """Delete an object and, before it, all that it owns. Return False when there was none.

        :param uid: delete only this very object; raises Conflict when another one has the name
        """
        body: Object = {"kind": "DeleteOptions", "apiVersion": "v1", "propagationPolicy": "Foreground"}
        if uid is not None:
            body["preconditions"] = {"uid": uid}
        try:
            self._request("DELETE", resource.path(namespace, name), body=body)
        except errors.NotFound:
            return False
        return True

    def log(self, pod: str, namespace: str, *, container: str | None = None, lines: int = 1000) -> str:
        """Return the last lines of a container's log. Raises NotFound, or Invalid while it has not started."""
        query = [("tailLines", str(lines))] + ([("container", container)] if container is not None else [])
        return self._send("GET", PODS.path(namespace, pod, "log"), query, None, "application/json").decode(
            errors="replace"
        )

    def resource_of(self, api_version: str, kind: str) -> Resource:
        """Return how the server serves a kind of object. Raises NotFound when it does not."""
        group, _, version = api_version.rpartition("/")
        path = f"/apis/{api_version}" if group else f"/api/{version}"
        for served in self._request("GET", path).get("resources") or []:
            if served["kind"] == kind and "/" not in served["name"]:
                return Resource(group, version, served["name"], bool(served["namespaced"]))
        raise errors.NotFound(f"GET {path}: no kind {kind}", status=404)

    def version(self) -> str:
        """Return the server's version, such as `v1.34.1-gke.200`."""
        return str(self._request("GET", "/version").get("gitVersion", ""))

    def server(self) -> Server:
        """Return whom this client talks to, without asking anybody. Raises NotConfigured when that is not said."""
        configuration = self._opened().configuration
        authority = configuration.ssl_ca_cert if configuration.verify_ssl else None
        with errors.translated("the cluster's certificate authority"):
            return Server(str(configuration.host), Path(authority).read_text() if authority else "")

    def _pages(self, path: str, query: list[tuple[str, str]]) -> Iterator[Object]:
        token = ""
        while True:
            page = self._request("GET", path, query=query + ([("continue", token)] if token else []))
            yield from page.get("items") or []
            token = (page.get("metadata") or {}).get("continue") or ""
            if not token:
                return

    def _request(
        self,
        method: str,
        path: str,
        *,
        query: list[tuple[str, str]] | None = None,
        body: Mapping[str, Any] | None = None,
        content_type: str = "application/json",
    ) -> Object:
        answer = self._send(method, path, query or [], body, content_type)
        return json.loads(answer) if answer else {}

    def _send(
        self, method: str, path: str, query: list[tuple[str, str]], body: Mapping[str, Any] | None, content_type: str
    ) -> bytes:
        tries = Tries(self._backoff)
        while True:
            try:
                return self._send_once(method, path, query, body, content_type)
            except Exception as failure:
                error = errors.translate(failure, f"{method} {path}")
                if error is None:
                    raise
                wait = tries.after(error)
            if wait is Refresh.CREDENTIALS:
                self.close()
            else:
                time.sleep(wait)

    def _send_once(
        self, method: str, path: str, query: list[tuple[str, str]], body: Mapping[str, Any] | None, content_type: str
    ) -> bytes:
        client = self._opened()
        headers = {"Accept": "application/json, */*"}
        if body is not None:
            headers["Content-Type"] = content_type
        response = client.call_api(
            path,
            method,
            query_params=query,
            header_params=headers,
            body=body,
            auth_settings=["BearerToken"],
            _preload_content=False,
            _request_timeout=REQUEST_SECONDS,
        )
        return bytes(response.data)

    def _opened(self) -> Any:
        if self._client is None:
            self._client = self._open_client()
            self._client.user_agent = USER_AGENT
        return self._client


def list_query(labels: str, fields: str) -> list[tuple[str, str]]:
    """Return the query of one page of a list."""
    query = [("limit", str(PAGE))]
    if labels:
        query.append(("labelSelector", labels))
    if fields:
        query.append(("fieldSelector", fields))
    return query

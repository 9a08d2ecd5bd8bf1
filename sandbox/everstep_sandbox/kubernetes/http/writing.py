"""POST, PUT, PATCH and DELETE of objects and collections, and the pods' eviction and binding."""

from __future__ import annotations

from typing import Any, cast

from everstep_sandbox.kubernetes import errors
from everstep_sandbox.kubernetes.admission.fields import invalid, required
from everstep_sandbox.kubernetes.apply import apply
from everstep_sandbox.kubernetes.http.access import review
from everstep_sandbox.kubernetes.http.requests import Call
from everstep_sandbox.kubernetes.http.schemas import check_fields
from everstep_sandbox.kubernetes.object_rules import Propagation
from everstep_sandbox.kubernetes.objects import Object, clone
from everstep_sandbox.kubernetes.resources import Resource
from everstep_sandbox.kubernetes.store import PatchKind, Store

_PATCH_KINDS: dict[str, PatchKind] = {
    "application/json-patch+json": "json",
    "application/merge-patch+json": "merge",
    "application/strategic-merge-patch+json": "strategic",
}
_APPLY = ("application/apply-patch+yaml", "application/apply-patch+cbor")
_PATCH_OPTIONS = Resource("patchoptions", "PatchOptions", "meta.k8s.io")
_ACCEPTED_FOR_CUSTOM = ("application/json-patch+json", "application/merge-patch+json", "application/apply-patch+yaml")


class Writer:
    """Turns write requests into calls of the store. Every method returns (HTTP status, answer)."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def create(self, call: Call) -> tuple[int, Object]:
        body = await _object(call)
        if call.resource.create_only and call.resource.kind != "Binding":
            return 201, review(call.resource.kind, body)
        if call.resource.kind == "Binding":
            return self._bind(call, str(body.get("metadata", {}).get("name", "")), body)
        _check_kind(call.resource, body)
        _check_namespace(call, body)
        if call.strict:
            check_fields(call.resource, body)
        created = self._store.create(
            call.resource.plural, call.namespace, body, user_agent=call.user_agent, dry_run=call.dry_run
        )
        return 201, created

    async def subresource(self, call: Call) -> tuple[int, Object]:
        body = await _object(call)
        if call.subresource == "binding":
            return self._bind(call, call.name or "", body)
        if call.subresource == "eviction":
            return self._evict(call, body)
        raise errors.method_not_allowed(f"POST is not supported on {call.resource.plural}/{call.subresource}")

    async def replace(self, call: Call) -> tuple[int, Object]:
        body = await _object(call)
        _check_kind(call.resource, body)
        _check_namespace(call, body)
        given = body.setdefault("metadata", {}).setdefault("name", call.name)
        if given != call.name:
            raise errors.bad_request(
                f"the name of the object ({given}) does not match the name on the URL ({call.name})"
            )
        if call.strict:
            check_fields(call.resource, body)
        if call.resource.custom and not body["metadata"].get("resourceVersion"):
            cause = invalid("metadata.resourceVersion", 0, "must be specified for an update")
            raise errors.invalid(call.resource, given, [cause])
        return 200, self._store.update(
            call.resource.plural,
            call.namespace,
            body,
            subresource=call.subresource,
            user_agent=call.user_agent,
            dry_run=call.dry_run,
        )

    async def patch(self, call: Call) -> tuple[int, Object]:
        content_type = call.request.headers.get("Content-Type", "").partition(";")[0].strip()
        body = await call.body()
        if content_type in _APPLY:
            return self._apply(call, body)
        kind = _PATCH_KINDS.get(content_type)
        if kind is None or (kind == "strategic" and call.resource.custom):
            accepted = [*_PATCH_KINDS, _APPLY[0]]
            raise errors.unsupported_media_type(_ACCEPTED_FOR_CUSTOM if call.resource.custom else accepted)
        if (kind == "json") != isinstance(body, list):
            form = "array" if kind == "json" else "object"
            raise errors.bad_request(f"a patch of type {content_type} must be a JSON {form}")
        if call.strict and kind != "json":
            check_fields(call.resource, body)
        return 200, self._store.patch(
            call.resource.plural,
            call.namespace,
            call.name or "",
            body,
            kind=kind,
            subresource=call.subresource,
            user_agent=call.user_agent,
            dry_run=call.dry_run,
        )

    async def delete(self, call: Call) -> tuple[int, Object]:
        options = _DeleteOptions(call, await call.body())
        found = self._store.peek(call.resource.plural, call.namespace, call.name or "")
        left = self._delete(call, call.name or "", options)
        if left is not None:
            return 200, left
        details = {"name": call.name, "kind": call.resource.plural}
        if call.resource.group:
            details["group"] = call.resource.group
        if found is not None:
            details["uid"] = found["metadata"]["uid"]
        return 200, {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details}

    async def delete_collection(self, call: Call) -> tuple[int, Object]:
        options = _DeleteOptions(call, await call.body())
        items = self._store.list(call.resource.plural, call.namespace, where=call.predicate())
        for item in items:
            call.namespace = item["metadata"].get("namespace")
            self._delete(call, item["metadata"]["name"], options)
        return 200, {
            "kind": f"{call.resource.kind}List",
            "apiVersion": call.resource.api_version,
            "metadata": {"resourceVersion": str(self._store.version)},
            "items": items,
        }

    def _delete(self, call: Call, name: str, options: _DeleteOptions) -> Object | None:
        return self._store.delete(
            call.resource.plural,
            call.namespace,
            name,
            grace_period_seconds=options.grace_period_seconds,
            propagation=options.propagation,
            uid=options.uid,
            resource_version=options.resource_version,
            user_agent=call.user_agent,
            dry_run=call.dry_run or options.dry_run,
        )

    def _apply(self, call: Call, body: Any) -> tuple[int, Object]:
        if not isinstance(body, dict):
            raise errors.bad_request("an apply patch must be an object")
        manager = call.query.get("fieldManager")
        if not manager:
            raise errors.invalid(_PATCH_OPTIONS, "", [required("fieldManager", "is required for apply patch")])
        _check_kind(call.resource, body)
        body.setdefault("metadata", {}).setdefault("name", call.name)
        if call.strict:
            check_fields(call.resource, body)
        existing = self._store.get(call.resource.plural, call.namespace, call.name or "")
        merged = apply(existing, body, manager, force=call.flag("force"), resource=call.resource, part=call.subresource)
        if existing is None:
            if call.subresource:
                raise errors.not_found(call.resource, call.name or "")
            return 201, self._store.create(
                call.resource.plural, call.namespace, merged, user_agent=call.user_agent, dry_run=call.dry_run
            )
        return 200, self._store.update(
            call.resource.plural,
            call.namespace,
            merged,
            subresource=call.subresource,
            user_agent=call.user_agent,
            dry_run=call.dry_run,
            verb="patch",
        )

    def _bind(self, call: Call, pod: str, body: Object) -> tuple[int, Object]:
        node = (body.get("target") or {}).get("name")
        if not node:
            raise errors.bad_request("binding: target.name is missing; expected the name of a node")
        self._store.bind(call.namespace or "default", pod, node, user_agent=call.user_agent)
        return 201, _success()

    def _evict(self, call: Call, body: Object) -> tuple[int, Object]:
        options = _DeleteOptions(call, body.get("deleteOptions") or {})
        if call.dry_run or options.dry_run:
            return 201, _success()
        self._store.evict(
            call.namespace or "default",
            call.name or "",
            grace_period_seconds=options.grace_period_seconds,
            uid=options.uid,
            user_agent=call.user_agent,
        )
        return 201, _success()


class _DeleteOptions:
    """DeleteOptions of the body, with the query's as defaults."""

    def __init__(self, call: Call, body: Any) -> None:
        given = body if isinstance(body, dict) else {}
        grace = given.get("gracePeriodSeconds", call.integer("gracePeriodSeconds"))
        self.grace_period_seconds = None if grace is None else float(grace)
        self.propagation = _propagation(call, given)
        preconditions = given.get("preconditions") or {}
        self.uid: str | None = preconditions.get("uid")
        self.resource_version: str | None = preconditions.get("resourceVersion")
        self.dry_run = "All" in (given.get("dryRun") or ())


def _propagation(call: Call, given: dict[str, Any]) -> Propagation | None:
    policy = given.get("propagationPolicy") or call.query.get("propagationPolicy")
    if policy is None and (given.get("orphanDependents") or call.flag("orphanDependents")):
        return "Orphan"
    if policy is None and call.resource.plural == "jobs":
        # batch/v1 still orphans the pods of a job that is deleted without a policy.
        return "Orphan"
    if policy not in (None, "Background", "Foreground", "Orphan"):
        raise errors.bad_request(
            f'DeleteOptions.meta.k8s.io "" is invalid: propagationPolicy: Unsupported value: {policy!r}: '
            'supported values: "Background", "Foreground", "Orphan"'
        )
    return cast("Propagation | None", policy)


async def _object(call: Call) -> Object:
    body = await call.body()
    if not isinstance(body, dict):
        raise errors.bad_request("the body of the request is not an object")
    if not isinstance(body.get("metadata", {}), dict):
        raise errors.bad_request("metadata: expected an object")
    return cast(Object, clone(body))


def _check_kind(resource: Resource, body: Object) -> None:
    found = (body.get("apiVersion", resource.api_version), body.get("kind", resource.kind))
    if found != (resource.api_version, resource.kind):
        raise errors.bad_request(
            f"{found[1]} in version {found[0]!r} cannot be handled as a {resource.kind} of {resource.api_version!r}"
        )


def _check_namespace(call: Call, body: Object) -> None:
    given = (body.get("metadata") or {}).get("namespace")
    if call.resource.namespaced and given and call.namespace and given != call.namespace:
        raise errors.bad_request(
            "the namespace of the provided object does not match the namespace sent on the request: "
            f"{given} is not {call.namespace}"
        )


def _success() -> Object:
    return {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201}

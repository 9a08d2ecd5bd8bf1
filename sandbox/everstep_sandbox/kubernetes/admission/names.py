"""Rules for names and labels, as apimachinery's validation states them."""

from __future__ import annotations

import re

from everstep_sandbox.kubernetes import errors
from everstep_sandbox.kubernetes.errors import Cause
from everstep_sandbox.kubernetes.objects import Object
from everstep_sandbox.kubernetes.resources import Resource
from everstep_sandbox.kubernetes.store import Store

_LABEL = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_SUBDOMAIN = re.compile(rf"{_LABEL}(\.{_LABEL})*")
_DNS_1035 = re.compile("[a-z]([-a-z0-9]*[a-z0-9])?")
_DNS_1123 = re.compile(_LABEL)
_QUALIFIED_NAME = re.compile("[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?")

_SUBDOMAIN_RULE = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start "
    "and end with an alphanumeric character (e.g. 'example.com', regex used for validation is "
    r"'[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
)
_DNS_1123_RULE = (
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end "
    "with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is "
    "'[a-z0-9]([-a-z0-9]*[a-z0-9])?')"
)
_DNS_1035_RULE = (
    "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, "
    "and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for validation is "
    "'[a-z]([-a-z0-9]*[a-z0-9])?')"
)
TOO_LONG_LABEL = "must be no more than 63 characters"
_LABEL_VALUE_RULE = (
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and "
    "end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is "
    "'(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')"
)


def subdomain_errors(name: str) -> list[str]:
    found = [] if len(name) <= 253 else ["must be no more than 253 characters"]
    return found if _SUBDOMAIN.fullmatch(name) else [*found, _SUBDOMAIN_RULE]


def dns_1035_errors(name: str) -> list[str]:
    found = [] if len(name) <= 63 else [TOO_LONG_LABEL]
    return found if _DNS_1035.fullmatch(name) else [*found, _DNS_1035_RULE]


def dns_1123_errors(name: str) -> list[str]:
    found = [] if len(name) <= 63 else [TOO_LONG_LABEL]
    return found if _DNS_1123.fullmatch(name) else [*found, _DNS_1123_RULE]


def label_value_errors(value: str) -> list[str]:
    found = [] if len(value) <= 63 else [TOO_LONG_LABEL]
    return found if value == "" or _QUALIFIED_NAME.fullmatch(value) else [*found, _LABEL_VALUE_RULE]


def label_key_errors(key: str) -> list[str]:
    prefix, slash, name = key.rpartition("/")
    found = subdomain_errors(prefix) if slash else []
    if not name or len(name) > 63 or not _QUALIFIED_NAME.fullmatch(name):
        found.append("name part must consist of at most 63 alphanumeric characters, '-', '_' or '.'")
    return found


def admit(store: Store, resource: Resource, new: Object, old: Object | None, subresource: str | None) -> None:
    """Every object has a valid name, labels and annotations. Raises ApiError 422 with all findings."""
    meta = new["metadata"]
    name = meta.get("name")
    if not name:
        raise errors.invalid(
            resource,
            "",
            [Cause("metadata.name", "Required value: name or generateName is required", "FieldValueRequired")],
        )
    causes: list[Cause] = []
    if old is None:
        check = _NAME_CHECKS.get(resource.plural, subdomain_errors)
        causes += [Cause("metadata.name", f'Invalid value: "{name}": {text}') for text in check(name)]
    for key, value in (meta.get("labels") or {}).items():
        causes += [Cause("metadata.labels", f'Invalid value: "{key}": {text}') for text in label_key_errors(key)]
        if not isinstance(value, str):
            raise errors.bad_request(
                f'{resource.kind} in version "{resource.version}" cannot be handled as a {resource.kind}: '
                f"metadata.labels[{key}]: found {value!r}, expected a string"
            )
        causes += [Cause("metadata.labels", f'Invalid value: "{value}": {text}') for text in label_value_errors(value)]
    for key, value in (meta.get("annotations") or {}).items():
        if not isinstance(value, str):
            raise errors.bad_request(
                f'{resource.kind} in version "{resource.version}" cannot be handled as a {resource.kind}: '
                f"metadata.annotations[{key}]: found {value!r}, expected a string"
            )
        texts = label_key_errors(key.lower())
        causes += [Cause("metadata.annotations", f'Invalid value: "{key}": {text}') for text in texts]
    if causes:
        raise errors.invalid(resource, name, causes)


_NAME_CHECKS = {"namespaces": dns_1123_errors, "services": dns_1035_errors}

"""Findings about fields, in the words of apimachinery's field errors."""

from __future__ import annotations

import json
from typing import Any

from everstep_sandbox.kubernetes.errors import Cause


def shown(value: Any) -> str:
    """A value as it stands in an error: text quoted, objects as JSON."""
    return json.dumps(value, separators=(",", ":"))


def required(field: str, why: str = "") -> Cause:
    return Cause(field, f"Required value: {why}" if why else "Required value", "FieldValueRequired")


def invalid(field: str, value: Any, why: str) -> Cause:
    return Cause(field, f"Invalid value: {shown(value)}: {why}", "FieldValueInvalid")


def forbidden(field: str, why: str) -> Cause:
    return Cause(field, f"Forbidden: {why}", "FieldValueForbidden")


def duplicate(field: str, value: Any) -> Cause:
    return Cause(field, f"Duplicate value: {shown(value)}", "FieldValueDuplicate")


def not_found(field: str, value: Any) -> Cause:
    return Cause(field, f"Not found: {shown(value)}", "FieldValueNotFound")


def not_supported(field: str, value: Any, supported: list[str]) -> Cause:
    listed = ", ".join(shown(item) for item in supported)
    return Cause(field, f"Unsupported value: {shown(value)}: supported values: {listed}", "FieldValueNotSupported")


def immutable(field: str, old: Any, new: Any) -> list[Cause]:
    """One finding when a field that may not change does."""
    return [] if old == new else [invalid(field, new, "field is immutable")]

"""Terraform's language, as much of it as resources need: attributes and nested blocks. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Block:
    """A nested block; a value that is one (or a sequence of them) is written without `=`."""

    values: Mapping[str, Any]


@dataclass(frozen=True)
class Raw:
    """An expression, such as a reference to another resource."""

    text: str


def resource(kind: str, name: str, values: Mapping[str, Any]) -> str:
    """Return a resource. Values that are None are left out.

    :param name: what Terraform calls it; made of an object's name by `identifier`
    """
    return f'resource "{kind}" "{name}" {{\n{_body(values, 1)}}}\n'


def identifier(*parts: str) -> str:
    """Return a name for Terraform: letters, digits, `_` and `-`, not beginning with a digit."""
    text = "_".join("".join(sign if sign.isalnum() or sign in "_-" else "_" for sign in part) for part in parts)
    return text if text[:1].isalpha() else f"_{text}"


def comment(text: str) -> str:
    """Return lines of comment."""
    return "".join(f"# {line}\n" for line in text.splitlines())


def _body(values: Mapping[str, Any], depth: int) -> str:
    indent = "  " * depth
    lines = []
    for key, value in values.items():
        if value is None:
            continue
        blocks = [value] if isinstance(value, Block) else value
        if isinstance(blocks, Sequence) and blocks and all(isinstance(each, Block) for each in blocks):
            lines += [f"{indent}{key} {{\n{_body(each.values, depth + 1)}{indent}}}\n" for each in blocks]
        else:
            lines.append(f"{indent}{key} = {_expression(value)}\n")
    return "".join(lines)


def _expression(value: Any) -> str:
    if isinstance(value, Raw):
        return value.text
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return str(value)
    if isinstance(value, str):
        # ${ and %{ begin templates in a string.
        return json.dumps(value, ensure_ascii=False).replace("${", "$${").replace("%{", "%%{")
    if isinstance(value, Mapping):
        inner = ", ".join(f"{_expression(str(key))} = {_expression(each)}" for key, each in value.items())
        return f"{{ {inner} }}" if inner else "{}"
    return f"[{', '.join(_expression(each) for each in value)}]"

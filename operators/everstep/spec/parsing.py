"""From a YAML file to a checked model, with every mistake told at once."""

from __future__ import annotations

import difflib
import types
import typing
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

import yaml
from pydantic import BaseModel, ConfigDict, ValidationError

from everstep.spec.findings import Finding, FindingsError, error


class Strict(BaseModel):
    """Base of all models of run and cluster files: unknown keys are mistakes, values don't change."""

    model_config = ConfigDict(extra="forbid", frozen=True, validate_default=True)


Model = TypeVar("Model", bound=Strict)


def parse(model: type[Model], data: Any, source: str) -> Model:
    """Return `data` as `model`. Raises FindingsError with one finding per mistake, each naming source and key."""
    try:
        return model.model_validate(data)
    except ValidationError as mistakes:
        raise FindingsError(
            f"{source} is not valid", [_finding(model, mistake, source) for mistake in mistakes.errors()]
        ) from None


def read_yaml(path: Path) -> dict[str, Any]:
    """Return the mapping in a YAML file. Raises FindingsError when it is absent, broken or repeats a key."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as failure:
        why = getattr(failure, "strerror", None) or str(failure)
        raise FindingsError(
            f"{path} can't be read", [error(str(path), why, "a readable YAML file in UTF-8", "check the path")]
        ) from None
    try:
        data = yaml.load(text, Loader=_NoRepeatedKeys)  # noqa: S506, TID251 - a subclass of SafeLoader
    except yaml.YAMLError as failure:
        raise FindingsError(
            f"{path} is not YAML",
            [error(str(path), " ".join(str(failure).split()), "YAML", "mend the line that is named")],
        ) from None
    if not isinstance(data, dict):
        raise FindingsError(
            f"{path} is not valid", [error(str(path), f"a {type(data).__name__}", "a mapping of keys to values")]
        )
    return data


def merge(base: Mapping[str, Any], overrides: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return `base` with overrides laid over it.

    Overrides are nested mappings or dotted keys (`checkpoints.local.every_steps`). None means "not given", so that
    empty fields of a form change nothing.
    """
    merged = dict(base)
    for key, given in (overrides or {}).items():
        if given is None:
            continue
        head, _, rest = key.partition(".")
        value = {rest: given} if rest else given
        below = merged.get(head)
        if isinstance(value, Mapping) and (isinstance(below, Mapping) or below is None or rest):
            merged[head] = merge(below if isinstance(below, Mapping) else {}, value)
        else:
            merged[head] = value
    return merged


class _NoRepeatedKeys(yaml.SafeLoader):
    """YAML keeps the last of two equal keys silently; here it is an error."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen: set[Any] = set()
        for key_node, _ in node.value:
            key = self.construct_object(key_node, deep=True)
            if isinstance(key, str | int | float | bool) and key in seen:
                raise yaml.constructor.ConstructorError(
                    None, None, f"the key {key!r} stands twice in one mapping", key_node.start_mark
                )
            if isinstance(key, str | int | float | bool):
                seen.add(key)
        return typing.cast("dict[Any, Any]", super().construct_mapping(node, deep))


def _finding(model: type[BaseModel], mistake: Any, source: str) -> Finding:
    location = tuple(mistake["loc"])
    key = ".".join(str(part) for part in location) or "(the whole file)"
    kind = mistake["type"]
    where = f"{source}: {key}"
    if kind == "extra_forbidden":
        known = _keys_at(model, location[:-1])
        nearest = difflib.get_close_matches(str(location[-1]), known, n=1, cutoff=0.5)
        remedy = f"did you mean {nearest[0]!r}?" if nearest else "remove it"
        return error(where, "an unknown key", f"one of {', '.join(known)}" if known else "no such key", remedy)
    if kind == "missing":
        return error(where, "nothing", "a value, because the key is required", f"add {location[-1]!r}")
    # What is wrong with several keys together is said of the mapping that holds them.
    given = mistake["input"]
    found = repr(given) if given == {} or not isinstance(given, Mapping) else "these keys together"
    return error(where, found if len(found) <= 200 else found[:200] + "…", _expected(mistake))


def _expected(mistake: Any) -> str:
    """Return what should stand there, in words of the file's writer."""
    context = mistake.get("ctx") or {}
    in_words = {
        "string_type": "text (in quotes, if it looks like a number)",
        "string_too_short": "some text",
        "string_pattern_mismatch": f"text of the form {context.get('pattern')}",
        "tuple_type": "a list",
        "dict_type": "a mapping of keys to values",
        "model_type": "a mapping of keys to values",
        "too_short": "at least one entry",
    }
    given: str = in_words.get(mistake["type"], mistake["msg"])
    return given.removeprefix("Value error, ").removeprefix("Input should be ")


def _keys_at(model: type[BaseModel], location: tuple[Any, ...]) -> list[str]:
    """Return the keys that the model at `location` knows; empty where there is none."""
    annotation: Any = model
    for part in location:
        found = _model_in(annotation)
        if found is not None and part in found.model_fields:
            annotation = found.model_fields[part].annotation
        elif typing.get_origin(annotation) is dict:
            annotation = typing.get_args(annotation)[1]
        elif found is None and typing.get_origin(annotation) is None:
            return []
    target = _model_in(annotation)
    return list(target.model_fields) if target else []


def _model_in(annotation: Any) -> type[BaseModel] | None:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    if typing.get_origin(annotation) in (typing.Union, types.UnionType):
        for option in typing.get_args(annotation):
            found = _model_in(option)
            if found is not None:
                return found
    return None

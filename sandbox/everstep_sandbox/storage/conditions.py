"""Conditions of IAM bindings: the part of CEL that buckets' policies use.

`resource.name`, `resource.type`, `resource.service`, `api.getAttribute(name, default)`, text in quotes, `==`, `!=`,
`.startsWith()`, `.endsWith()`, `&&`, `||`, `!` and parentheses.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

_TOKEN = re.compile(r"""\s*(?:("(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')|([A-Za-z_][\w.]*)|(&&|\|\||==|!=|[!(),.]))""")


class BadCondition(Exception):
    """The expression is no condition that is known here; the text says where."""


@dataclass(frozen=True)
class Subject:
    """What a condition is asked of: a resource, and attributes of the call."""

    name: str
    type: str = "storage.googleapis.com/Object"
    attributes: Mapping[str, str] = field(default_factory=dict)


def check(expression: str) -> None:
    """Raises BadCondition for an expression that can't be evaluated."""
    _Parser(expression, Subject("")).whole()


def holds(expression: str, subject: Subject) -> bool:
    """Raises BadCondition."""
    return _Parser(expression, subject).whole()


class _Parser:
    """Recursive descent; evaluates while it reads."""

    def __init__(self, expression: str, subject: Subject) -> None:
        self._subject = subject
        self._tokens: list[str] = []
        position = 0
        text = expression.rstrip()
        while position < len(text):
            match = _TOKEN.match(text, position)
            if match is None:
                raise BadCondition(f"{expression!r}: not understood at {text[position : position + 20]!r}")
            self._tokens.append(match.group().strip())
            position = match.end()
        self._tokens.append("")

    def whole(self) -> bool:
        found = self._or()
        if self._tokens != [""]:
            raise BadCondition(f"unexpected {self._tokens[0]!r}")
        return found

    def _or(self) -> bool:
        found = self._and()
        while self._accept("||"):
            found = self._and() or found
        return found

    def _and(self) -> bool:
        found = self._not()
        while self._accept("&&"):
            found = self._not() and found
        return found

    def _not(self) -> bool:
        if self._accept("!"):
            return not self._not()
        if self._accept("("):
            found = self._or()
            self._expect(")")
            return found
        return self._comparison()

    def _comparison(self) -> bool:
        text, method = self._operand()
        if method in ("startsWith", "endsWith"):
            self._expect("(")
            wanted, _ = self._operand()
            self._expect(")")
            return text.startswith(wanted) if method == "startsWith" else text.endswith(wanted)
        sign = self._tokens.pop(0)
        if sign not in ("==", "!="):
            raise BadCondition(f"expected ==, !=, .startsWith() or .endsWith(), found {sign!r}")
        other, _ = self._operand()
        return (text == other) == (sign == "==")

    def _operand(self) -> tuple[str, str]:
        """A text, and the method that is called on it ("" for none)."""
        token = self._tokens.pop(0)
        if token[:1] in ('"', "'"):
            return re.sub(r"\\(.)", r"\1", token[1:-1]), self._method()
        if token == "api.getAttribute":
            self._expect("(")
            name, _ = self._operand()
            self._expect(",")
            default, _ = self._operand()
            self._expect(")")
            return self._subject.attributes.get(name, default), self._method()
        known = {
            "resource.name": self._subject.name,
            "resource.type": self._subject.type,
            "resource.service": "storage.googleapis.com",
        }
        base, _, method = token.rpartition(".") if token not in known else (token, "", "")
        if base not in known:
            raise BadCondition(f"{token!r} is not known; known are {', '.join(known)} and api.getAttribute")
        return known[base], method

    def _method(self) -> str:
        return self._tokens.pop(0) if self._accept(".") else ""

    def _accept(self, token: str) -> bool:
        if self._tokens[0] == token:
            self._tokens.pop(0)
            return True
        return False

    def _expect(self, token: str) -> None:
        if not self._accept(token):
            raise BadCondition(f"expected {token!r}, found {self._tokens[0]!r}")

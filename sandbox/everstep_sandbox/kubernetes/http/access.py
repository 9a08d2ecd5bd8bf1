"""Who is asking: bearer tokens, and the review objects by which clients ask what they may do (everything)."""

from __future__ import annotations

import secrets
from pathlib import Path

from aiohttp import web

from everstep_sandbox.kubernetes.errors import unauthorized
from everstep_sandbox.kubernetes.objects import Object, clone, timestamp

_USER = {"username": "everstep-sandbox", "groups": ["system:masters", "system:authenticated"]}


def load_token(directory: Path) -> str:
    """The sandbox's token, made at the first call and kept in a file that only its owner can read."""
    path = directory / "kubernetes" / "token"
    if path.exists():
        return path.read_text(encoding="utf-8").strip()
    path.parent.mkdir(parents=True, exist_ok=True)
    token = secrets.token_urlsafe(24)
    path.touch(mode=0o600)
    path.write_text(token, encoding="utf-8")
    return token


def check_token(request: web.Request, token: str) -> None:
    """Raises ApiError 401 unless the request carries the token."""
    scheme, _, given = request.headers.get("Authorization", "").partition(" ")
    if scheme.lower() != "bearer" or not secrets.compare_digest(given.strip(), token):
        raise unauthorized()


def review(kind: str, body: Object) -> Object:
    """Answers SelfSubjectAccessReview, SelfSubjectRulesReview and SelfSubjectReview."""
    answer = clone(body)
    answer.setdefault("metadata", {})["creationTimestamp"] = timestamp()
    if kind == "SelfSubjectAccessReview":
        answer["status"] = {"allowed": True, "reason": "the sandbox allows everything"}
    elif kind == "SelfSubjectRulesReview":
        rule = {"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}
        answer["status"] = {"resourceRules": [rule], "nonResourceRules": [], "incomplete": False}
    else:
        answer["status"] = {"userInfo": _USER}
    return answer

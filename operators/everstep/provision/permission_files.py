"""The rights of each identity as files: Kubernetes objects and IAM roles, with the reason beside each right.

`everstep permissions` prints them, and `permissions/` of the repository holds them for who reads it there. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import PurePosixPath
from typing import Any

import yaml

from everstep.provision.permissions import IDENTITIES, Identity, Rule, granted, iam_role, roles

RBAC_FILE = "rbac.yaml"
IAM_FILE = "iam-role.yaml"


def all_files(namespace: str) -> dict[PurePosixPath, str]:
    """Return path -> content of the files of every identity, without bindings: who gets them is the reader's to say.

    :param namespace: of the runs
    """
    files: dict[PurePosixPath, str] = {}
    for identity in IDENTITIES.values():
        texts = {RBAC_FILE: rbac_text(identity, namespace=namespace), IAM_FILE: iam_text(identity)}
        files |= {PurePosixPath(identity.name, name): text for name, text in texts.items() if text}
    return files


def rbac_text(identity: Identity, *, namespace: str, subject: Mapping[str, Any] | None = None) -> str:
    """Return the roles, and with a subject also the bindings, for `kubectl apply -f`; nothing if there are none.

    :param subject: a ServiceAccount, User or Group as a binding names it
    """
    documents = []
    for place, rules in roles(identity, namespace=namespace):
        role, binding = granted(identity, place, rules, subject or {})
        documents.append(_role_text(role, rules))
        if subject is not None:
            documents.append(_dumped(binding))
    return _headed(identity, "---\n".join(documents))


def iam_text(identity: Identity) -> str:
    """Return the custom IAM role for `gcloud iam roles create --file`; nothing if it needs none."""
    role = iam_role(identity)
    if role is None:
        return ""
    head = {key: value for key, value in role.items() if key != "includedPermissions"}
    permissions = [f"- {each}{_because(identity.project.get(each))}\n" for each in role["includedPermissions"]]
    text = yaml.safe_dump(head, sort_keys=False, width=1000)
    return _headed(identity, "".join((text, "includedPermissions:\n", *permissions)))


def _role_text(role: Mapping[str, Any], rules: Iterable[Rule]) -> str:
    head = {key: value for key, value in role.items() if key != "rules"}
    return _dumped(head) + "".join(("rules:\n", *_rule_texts(rules)))


def _rule_texts(rules: Iterable[Rule]) -> Iterator[str]:
    for rule in rules:
        yield f"# {rule.why}\n{_dumped([rule.as_rbac()])}"


def _headed(identity: Identity, text: str) -> str:
    return f"# {identity.name}: {identity.work}\n{text}" if text else ""


def _because(why: str | None) -> str:
    return f"  # {why}" if why else ""


def _dumped(document: object) -> str:
    return yaml.safe_dump(document, sort_keys=False, default_flow_style=None, width=1000)

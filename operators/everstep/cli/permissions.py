"""``everstep permissions --for IDENTITY``: the exact rights of each of Everstep's identities, ready to apply."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from argparse import _SubParsersAction

    from everstep.provision.permissions import Identity

DESCRIPTION = """Prints the least rights that one of Everstep's identities needs: RBAC for `kubectl apply -f -`, or the
IAM role on the runs' bucket or project for `gcloud iam roles create --file`. Without --for it explains all of them."""


def add_commands(subparsers: _SubParsersAction[argparse.ArgumentParser]) -> None:
    """Adds the verb."""
    parser = subparsers.add_parser(
        "permissions", help="the least rights of each of Everstep's identities", description=DESCRIPTION
    )
    parser.add_argument("--for", dest="identity", metavar="IDENTITY", help="launcher, watcher, provisioner or trainer")
    parser.add_argument("--format", choices=("rbac", "iam"), default="rbac", help="for Kubernetes, or for Google Cloud")
    parser.add_argument("--namespace", default="default", help="namespace of the runs (default: default)")
    parser.add_argument(
        "--subject",
        metavar="NAME",
        help="who gets the RBAC rules: a user (for GKE the e-mail address of a Google service account), or "
        "NAMESPACE/NAME of a Kubernetes service account",
    )
    parser.set_defaults(run=permissions)


def permissions(arguments: argparse.Namespace) -> int:
    """Prints what was asked for; raises FindingsError when it can't be known."""
    from everstep.provision.permissions import IDENTITIES
    from everstep.spec.findings import FindingsError, error

    if arguments.identity is None:
        for each in IDENTITIES.values():
            print("\n".join(explain(each, arguments.namespace)))
        return 0
    identity = IDENTITIES.get(arguments.identity)
    if identity is None:
        raise FindingsError(
            "permissions can't be shown", [error("--for", repr(arguments.identity), f"one of {', '.join(IDENTITIES)}")]
        )
    _print_files(identity, arguments)
    return 0


def explain(identity: Identity, namespace: str) -> list[str]:
    """Return in lines what an identity may do, and why."""
    lines = [f"{identity.name}: {identity.work}"]
    places = {"in the cluster": identity.anywhere, f"in {namespace}": identity.own}
    places |= {f"in {where}": rules for where, rules in identity.elsewhere.items()}
    for place, rules in places.items():
        for rule in rules:
            what = f"{' '.join(rule.verbs)} {rule.resource.plural}" + (f" {' '.join(rule.names)}" if rule.names else "")
            lines.append(f"  {place}: {what}  ({rule.why})")
    if identity.bucket:
        lines.append(f"  on the bucket: {' '.join(sorted(identity.bucket))}")
    lines += [f"  on the project: {permission}  ({why})" for permission, why in identity.project.items()]
    return lines


def _print_files(identity: Identity, arguments: argparse.Namespace) -> None:
    import yaml

    from everstep.provision import permissions as data
    from everstep.spec.findings import FindingsError, error

    if arguments.format == "iam":
        role = data.iam_role(identity)
        if role is None:
            raise FindingsError(
                f"{identity.name} has no IAM role", [error("--format", "'iam'", "'rbac': it never asks Google Cloud")]
            )
        print(yaml.safe_dump(role, sort_keys=False), end="")
        return
    if not (identity.anywhere or identity.own):
        raise FindingsError(
            f"{identity.name} has no RBAC rules", [error("--format", "'rbac'", "'iam': it never asks the cluster")]
        )
    if not arguments.subject:
        raise FindingsError(
            f"the rules of {identity.name} need somebody who gets them",
            [error("--subject", "nothing", "a user, or NAMESPACE/NAME of a service account")],
        )
    documents = data.rbac(identity, namespace=arguments.namespace, subject=_subject(arguments.subject))
    print(yaml.safe_dump_all(documents, sort_keys=False), end="")


def _subject(text: str) -> dict[str, Any]:
    from everstep.provision import permissions as data

    namespace, slash, name = text.partition("/")
    return data.service_account_subject(namespace, name) if slash else data.user_subject(text)

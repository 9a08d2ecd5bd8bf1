"""``everstep permissions --for IDENTITY``: the exact rights of each of Everstep's identities, ready to apply."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from argparse import _SubParsersAction

    from everstep.provision.permissions import Identity

DESCRIPTION = """Prints the least rights that one of Everstep's identities needs: RBAC for `kubectl apply -f -`, or the
IAM role on the runs' bucket or project for `gcloud iam roles create --file`. Without --for it explains all of them;
with --to it writes all of them to files."""


def add_commands(subparsers: _SubParsersAction[argparse.ArgumentParser]) -> None:
    """Adds the verb."""
    parser = subparsers.add_parser(
        "permissions", help="the least rights of each of Everstep's identities", description=DESCRIPTION
    )
    parser.add_argument(
        "--for", dest="identity", metavar="IDENTITY", help="launcher, watcher, provisioner, sweeper or trainer"
    )
    parser.add_argument("--to", type=Path, metavar="DIRECTORY", help="write the files of all identities there")
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
    """Prints or writes what was asked for; raises FindingsError when it can't be known."""
    from everstep.provision.permissions import IDENTITIES
    from everstep.spec.findings import FindingsError, error

    if arguments.to is not None:
        _write_files(arguments.to, arguments.namespace)
        return 0
    if arguments.identity is None:
        for each in IDENTITIES.values():
            print("\n".join(explain(each, arguments.namespace)))
        return 0
    identity = IDENTITIES.get(arguments.identity)
    if identity is None:
        raise FindingsError(
            "permissions can't be shown", [error("--for", repr(arguments.identity), f"one of {', '.join(IDENTITIES)}")]
        )
    _print_file(identity, arguments)
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


def _print_file(identity: Identity, arguments: argparse.Namespace) -> None:
    from everstep.provision import permission_files as files
    from everstep.spec.findings import FindingsError, error

    if arguments.format == "iam":
        text, refusal = files.iam_text(identity), ("IAM role", "'iam'", "'rbac': it never asks Google Cloud")
    else:
        subject = _subject(arguments.subject) if arguments.subject else None
        text = files.rbac_text(identity, namespace=arguments.namespace, subject=subject)
        refusal = ("RBAC rules", "'rbac'", "'iam': it never asks the cluster")
    if not text:
        what, found, expected = refusal
        raise FindingsError(f"{identity.name} has no {what}", [error("--format", found, expected)])
    print(text, end="")
    if arguments.format == "rbac" and not arguments.subject:
        print("roles only: with --subject also the bindings that give them to somebody", file=sys.stderr)


def _write_files(directory: Path, namespace: str) -> None:
    from everstep.provision.permission_files import all_files

    for path, text in all_files(namespace).items():
        file = directory / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
        print(file)


def _subject(text: str) -> dict[str, Any]:
    from everstep.provision import permissions as data

    namespace, slash, name = text.partition("/")
    return data.service_account_subject(namespace, name) if slash else data.user_subject(text)

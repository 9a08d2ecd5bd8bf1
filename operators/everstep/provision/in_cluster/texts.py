"""Commands and Terraform that make Kubernetes objects, for people who apply things in their own way. Pure."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Mapping
from typing import Any

import yaml


def manifest(body: Mapping[str, Any]) -> str:
    """Return an object as YAML."""
    return yaml.safe_dump(dict(body), sort_keys=False, width=1000)


def flow(body: Mapping[str, Any]) -> str:
    """Return an object in one line, for a command's argument."""
    return json.dumps(dict(body), separators=(",", ":"))


def kubectl_create(body: Mapping[str, Any]) -> str:
    """Return a command with the object in it."""
    return f"kubectl create -f - <<'EVERSTEP'\n{manifest(body)}EVERSTEP"


def kubectl(*words: str) -> str:
    """Return a kubectl command, quoted for a shell."""
    return shlex.join(("kubectl", *words))


def terraform(body: Mapping[str, Any]) -> str:
    """Return HCL for Terraform's `kubernetes` provider that declares the object.

    That provider asks the cluster for an object's kind when it plans, so that the cluster has to be there by then.
    """
    name = re.sub(r"\W", "_", f"{body['kind']}_{body['metadata']['name']}".lower())
    # In a heredoc `${` and `%{` would begin expressions.
    text = manifest(body).replace("${", "$${").replace("%{", "%%{")
    indented = "".join(f"    {line}\n" for line in text.splitlines())
    order = "# Planned once the cluster is there and serves the kind: apply what is above first.\n"
    return (
        f'{order}resource "kubernetes_manifest" "{name}" {{\n  manifest = yamldecode(<<-EOT\n{indented}  EOT\n  )\n}}'
    )

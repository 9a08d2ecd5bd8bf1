"""The kubeconfig by which kubectl and the clients find the sandbox."""

from __future__ import annotations

import yaml

NAME = "everstep-sandbox"


def kubeconfig(address: str, token: str) -> str:
    """A kubeconfig with one cluster, one user with a bearer token, and one context, all named everstep-sandbox."""
    return yaml.safe_dump(
        {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": NAME, "cluster": {"server": address}}],
            "users": [{"name": NAME, "user": {"token": token}}],
            "contexts": [{"name": NAME, "context": {"cluster": NAME, "user": NAME, "namespace": "default"}}],
            "current-context": NAME,
        },
        sort_keys=False,
    )

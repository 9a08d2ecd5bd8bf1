"""The kubeconfig by which kubectl and the clients find the sandbox, and how its own parts read it."""

from __future__ import annotations

import base64
import ssl
from dataclasses import dataclass
from pathlib import Path

import yaml

NAME = "everstep-sandbox"


@dataclass(frozen=True, slots=True)
class Address:
    """Where a cluster's API is, and what to bring along. `context` is None for plain HTTP."""

    server: str
    token: str | None
    context: ssl.SSLContext | None


def kubeconfig(address: str, token: str, authority: str = "") -> str:
    """A kubeconfig with one cluster, one user with a bearer token, and one context, all named everstep-sandbox.

    :param authority: the certificate (PEM) that the server's is signed by
    """
    cluster = {"server": address}
    if authority:
        cluster["certificate-authority-data"] = base64.b64encode(authority.encode()).decode()
    return yaml.safe_dump(
        {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": NAME, "cluster": cluster}],
            "users": [{"name": NAME, "user": {"token": token}}],
            "contexts": [{"name": NAME, "context": {"cluster": NAME, "user": NAME, "namespace": "default"}}],
            "current-context": NAME,
        },
        sort_keys=False,
    )


def read(path: Path) -> Address:
    """The current context of a kubeconfig that holds a bearer token and its authority's certificate, if any."""
    config = yaml.safe_load(path.read_text(encoding="utf-8"))
    contexts = {entry["name"]: entry["context"] for entry in config["contexts"]}
    clusters = {entry["name"]: entry["cluster"] for entry in config["clusters"]}
    users = {entry["name"]: entry.get("user") or {} for entry in config.get("users") or ()}
    chosen = contexts[config["current-context"]]
    cluster = clusters[chosen["cluster"]]
    server = str(cluster["server"]).rstrip("/")
    context = None
    if server.startswith("https://"):
        encoded = cluster.get("certificate-authority-data", "")
        context = ssl.create_default_context(cadata=base64.b64decode(encoded).decode() or None)
    return Address(server, users.get(chosen.get("user"), {}).get("token"), context)

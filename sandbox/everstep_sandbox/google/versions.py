"""GKE versions that the sandbox offers, and how a request's version is understood."""

from __future__ import annotations

import re
from typing import Any

from everstep_sandbox.google import errors

VALID = (
    "1.35.0-gke.2398000",
    "1.34.1-gke.3355002",
    "1.34.1-gke.1829001",
    "1.33.5-gke.1308000",
    "1.32.9-gke.1130000",
    "1.32.4-gke.1415000",
    "1.32.3-gke.1170000",
    "1.32.2-gke.1182003",
    "1.31.13-gke.1023000",
)
"""Newest first. Two of them are older than what multi-tier checkpointing needs."""

DEFAULT = "1.34.1-gke.1829001"
_CHANNELS = {"RAPID": VALID[0], "REGULAR": DEFAULT, "STABLE": "1.33.5-gke.1308000", "EXTENDED": "1.32.9-gke.1130000"}


def resolve(asked: str, what: str, channel: str = "") -> str:
    """The version that "", "-", "latest", "1.34", "1.34.1" or a whole one stands for. Raises GoogleError 400."""
    if asked in ("", "-"):
        return _CHANNELS.get(channel, DEFAULT)
    if asked == "latest":
        return VALID[0]
    for version in VALID:
        if version == asked or (re.fullmatch(r"\d+\.\d+(\.\d+)?", asked) and re.match(rf"{asked}[.-]", version)):
            return version
    raise errors.invalid(
        f'{what} version "{asked}" is unsupported.'
        if "gke" in asked
        else f'No valid versions with the prefix "{asked}" found.'
    )


def key(version: str) -> tuple[int, ...]:
    """What versions are compared by."""
    return tuple(int(number) for number in re.findall(r"\d+", version))


def server_config() -> dict[str, Any]:
    return {
        "defaultClusterVersion": DEFAULT,
        "validMasterVersions": list(VALID),
        "validNodeVersions": list(VALID),
        "defaultImageType": "COS_CONTAINERD",
        "validImageTypes": ["COS_CONTAINERD", "UBUNTU_CONTAINERD"],
        "channels": [
            {"channel": channel, "defaultVersion": version, "validVersions": list(VALID)}
            for channel, version in _CHANNELS.items()
        ],
    }

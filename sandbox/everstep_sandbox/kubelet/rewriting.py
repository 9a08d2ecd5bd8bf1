"""Rewrites what a container would find by its mounts and by cluster DNS: mount paths and pod names in texts.

Without root there is no mount namespace and no resolver of our own, so a container's arguments and environment are
told the host's paths and the pods' addresses instead.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Rewriter:
    """`mounts`: mount path -> host path; `hosts`: pod DNS name (`hostname.subdomain`) -> IP address."""

    mounts: Mapping[str, str]
    hosts: Mapping[str, str] = field(default_factory=dict)

    def text(self, text: str) -> str:
        """Replaces every mount path that stands as a whole path prefix, then every known pod name."""
        if "/" in text:
            # Longest first: of two nested mounts the inner one decides. All in one pass, since a host path
            # may itself contain what looks like another mount path.
            paths = sorted(self.mounts, key=len, reverse=True)
            if paths:
                text = _paths_pattern(paths).sub(lambda found: self.mounts[found[0]], text)
        if self.hosts and "." in text:
            text = _POD_NAME.sub(lambda found: self.hosts.get(found["name"], found[0]), text)
        return text


def _paths_pattern(paths: list[str]) -> re.Pattern[str]:
    """A path is whole when nothing that may be part of a file name touches it."""
    return re.compile(r"(?<![\w./\-])(?:" + "|".join(map(re.escape, paths)) + r")(?![\w.\-])")


_POD_NAME = re.compile(
    r"(?<![\w.\-])(?P<name>[a-z0-9](?:[a-z0-9\-]*[a-z0-9])?\.[a-z0-9](?:[a-z0-9\-]*[a-z0-9])?)"
    r"(?:\.[a-z0-9\-]+\.svc(?:\.cluster\.local)?)?(?![\w.\-])"
)


def expand(text: str, variables: Mapping[str, str]) -> str:
    """$(VAR) as Kubernetes does: unknown names stay as they are, $$ is a dollar sign."""
    return _REFERENCE.sub(lambda found: "$" if found[0] == "$$" else variables.get(found["name"], found[0]), text)


_REFERENCE = re.compile(r"\$\$|\$\((?P<name>[^()\s]+)\)")

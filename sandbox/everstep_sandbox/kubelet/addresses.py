"""Loopback addresses: one network for each sandbox, a range for each node, one address for each pod."""

from __future__ import annotations

import hashlib
import socket
from pathlib import Path

_NETWORKS = range(16, 240)


class Network:
    """127.<network>.0.0/16, held against all other sandboxes of this machine as long as this process lives.

    Two sandboxes must not share addresses: a training coordinator binds its port with port reuse, so that the
    processes of one run would be served by the other's.
    """

    def __init__(self, directory: Path) -> None:
        """Takes the network that the directory has by its name, or the next one that is free."""
        start = int.from_bytes(hashlib.sha256(str(directory).encode()).digest()[:4], "big") % len(_NETWORKS)
        for offset in range(len(_NETWORKS)):
            number = _NETWORKS[(start + offset) % len(_NETWORKS)]
            # An abstract socket's name is free again as soon as its process ends, however it ends.
            holder = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            try:
                holder.bind(f"\0everstep-sandbox-network-{number}")
            except OSError:
                holder.close()
                continue
            self.number = number
            self._holder = holder
            return
        raise RuntimeError(
            f"All {len(_NETWORKS)} loopback networks are taken by other sandboxes on this machine; "
            "end some of them (everstep sandbox down)"
        )

    def node(self, number: int) -> NodeAddresses:
        return NodeAddresses(f"127.{self.number}.{number + 1}")


class NodeAddresses:
    """The range of one node: .1 is the node, the rest its pods', used in turn so that none comes back soon."""

    def __init__(self, prefix: str) -> None:
        self._prefix = prefix
        self._last = 1
        self._taken: set[str] = set()

    @property
    def node(self) -> str:
        return f"{self._prefix}.1"

    def take(self, wanted: str | None = None) -> str:
        """An address for a pod: `wanted` if it is free and of this range; raises RuntimeError when all are taken."""
        if wanted and wanted.startswith(f"{self._prefix}.") and wanted not in self._taken:
            self._taken.add(wanted)
            return wanted
        for _ in range(253):
            self._last = self._last + 1 if self._last < 254 else 2
            address = f"{self._prefix}.{self._last}"
            if address not in self._taken:
                self._taken.add(address)
                return address
        raise RuntimeError(f"All pod addresses of {self._prefix}.0/24 are taken")

    def release(self, address: str) -> None:
        self._taken.discard(address)

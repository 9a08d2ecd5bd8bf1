"""Starts ``jax.distributed``, and what hosts tell each other through its key-value store.

Two defaults of JAX are changed: the coordinator binds the pod's own address only (with the default it shares its port
with other jobs of the machine), and the preemption notifier stays off (it swallows SIGTERM).
"""

from __future__ import annotations

import json
import logging
import secrets
from collections.abc import Callable
from typing import Any

from everstep_trainer.errors import PeerLost
from everstep_trainer.handshake import InitInfo
from everstep_trainer.waiting import Deadline

logger = logging.getLogger(__name__)


class Coordination:
    """The key-value store of an attempt, which ends with it. All hosts call each method alike, with the same key."""

    def __init__(self, client: Any, rank: int, nodes: int) -> None:
        self._client = client
        self._rank = rank
        self._nodes = nodes

    def broadcast(self, key: str, make: Callable[[], dict[str, Any]], *, seconds: float) -> dict[str, Any]:
        """What rank 0 makes, on every host. Raises PeerLost if it does not come in time."""
        if self._rank == 0:
            made = make()
            self._client.key_value_set(f"everstep/{key}", json.dumps(made))
            return made
        return self._get(f"everstep/{key}", seconds)

    def gather(self, key: str, mine: dict[str, Any], *, seconds: float) -> list[dict[str, Any]]:
        """Every host's value by rank on rank 0, an empty list on the others. Raises PeerLost if one does not come."""
        self._client.key_value_set(f"everstep/{key}/{self._rank}", json.dumps(mine))
        if self._rank != 0:
            return []
        return [self._get(f"everstep/{key}/{rank}", seconds) for rank in range(self._nodes)]

    def _get(self, key: str, seconds: float) -> dict[str, Any]:
        from jax.errors import JaxRuntimeError

        try:
            text = self._client.blocking_key_value_get(key, max(1, int(seconds * 1000)))
        except JaxRuntimeError as error:
            raise PeerLost(f"{key} was not told within {seconds:.0f} s: {error}") from error
        value: dict[str, Any] = json.loads(text)
        return value


def new_token() -> str:
    return secrets.token_urlsafe(18)


def initialize(info: InitInfo, nodes: int, deadline: Deadline) -> Coordination:
    """Connect this process to the attempt's coordinator. Blocks until all processes have come, or the deadline."""
    import jax
    from jax._src import distributed
    from jax.errors import JaxRuntimeError

    jax.config.update("jax_enable_preemption_service", False)
    try:
        jax.distributed.initialize(
            coordinator_address=info.coordinator,
            num_processes=nodes,
            process_id=info.rank,
            initialization_timeout=max(1, int(deadline.remaining)),
            coordinator_bind_address=info.coordinator if info.rank == 0 else None,
        )
    except JaxRuntimeError as error:
        raise PeerLost(f"not all {nodes} processes came to coordinator {info.coordinator}: {error}") from error
    return Coordination(distributed.global_state.client, info.rank, nodes)

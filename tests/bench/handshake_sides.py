"""One side of the handshake bench, as a process: `python -m tests.bench.handshake_sides everstep|orbax`.

Reads a checkpoint directory per line, makes one handshake in it, and answers with when it noticed what
(`time.monotonic`), and the processor seconds that it spent from its start to its end. Orbax's side makes the steps of
its `initialize_multi_tier_checkpointing`, all but that of `jax.distributed`, which has no part in the handshake.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path

JOB = "bench"
NODES = 2
BACKUP_MINUTES = 30

Noticed = dict[str, float]


def everstep(directory: Path) -> Noticed:
    """Make the handshake as the trainer does."""
    from everstep_trainer.handshake import Handshake
    from everstep_trainer.replicator_config import ReplicatorConfig
    from everstep_trainer.waiting import Deadline, wait_for

    noticed = {}
    handshake = Handshake(directory, JOB, Deadline(60))
    rank = handshake.init_info().rank
    noticed["rank"] = time.monotonic()
    handshake.hand_over(ReplicatorConfig(JOB, "orbax", rank, NODES, (1 - rank,), BACKUP_MINUTES, NODES))
    # restore_point() waits for this too; waited for here first, so that it can be timed.
    wait_for(directory, lambda: None if (directory / "replicator.yaml").exists() else True, Deadline(60))
    noticed["consumed"] = time.monotonic()
    handshake.restore_point()
    noticed["marker"] = time.monotonic()
    return noticed


def orbax(directory: Path) -> Noticed:
    """Make the handshake by Orbax's own functions, in the order of its initialisation."""
    from etils import epath
    from orbax.checkpoint.experimental.emergency.multi_tier_checkpointing import initialization

    path, noticed = epath.Path(directory), {}
    rank = int(initialization._retrieve_jax_init_info(path)[0])
    noticed["rank"] = time.monotonic()
    initialization._wait_for_replicator_file_to_disappear(path, check_for_errors=False)
    initialization._create_replicator_file(
        path,
        run_name=JOB,
        num_nodes=NODES,
        data_parallelism=NODES,
        node_rank=rank,
        peer_ranks=[1 - rank],
        backup_interval_minutes=BACKUP_MINUTES,
        backup_interval_steps=None,
    )
    initialization._wait_for_replicator_file_to_disappear(path)
    noticed["consumed"] = time.monotonic()
    initialization._block_and_process_restore_dir(path)
    noticed["marker"] = time.monotonic()
    return noticed


SIDES: dict[str, Callable[[Path], Noticed]] = {"everstep": everstep, "orbax": orbax}


def main() -> None:
    handshake = SIDES[sys.argv[1]]
    # Imports are no part of a handshake.
    if sys.argv[1] == "orbax":
        import orbax.checkpoint.experimental.emergency.multi_tier_checkpointing.initialization  # noqa: F401
    else:
        import watchfiles._rust_notify  # noqa: F401

        import everstep_trainer.handshake  # noqa: F401
    print("ready", flush=True)
    for line in sys.stdin:
        began, spent = time.monotonic(), time.process_time()
        noticed = handshake(Path(line.strip()))
        answer = {"began": began, "cpu": time.process_time() - spent, "noticed": noticed}
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()

"""The same training without interruption and without checkpoints, for comparison, in processes of its own.

``python -m everstep_trainer.examples.stdlib_lm.reference --slices 2 --nodes-per-slice 2 --steps 300 --output FILE``
starts one process per node with the layout of the real run, since sums over devices depend on it in the last bit.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

MODULE = "everstep_trainer.examples.stdlib_lm.reference"


def main(arguments: list[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    if options.rank is None:
        return _spawn(options)
    _train(options)
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--slices", type=int, required=True)
    parser.add_argument("--nodes-per-slice", type=int, required=True)
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--skip-batch", type=int, default=None, help="leave out the batch of this step")
    parser.add_argument("--output", type=Path, required=True, help="JSON file for the result")
    parser.add_argument("--rank", type=int, default=None, help=argparse.SUPPRESS)
    parser.add_argument("--coordinator", default=None, help=argparse.SUPPRESS)
    return parser


def _spawn(options: argparse.Namespace) -> int:
    """Start all ranks in this process's group and wait. The first that fails ends the others."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        coordinator = f"127.0.0.1:{probe.getsockname()[1]}"
    environment = {**os.environ, "JAX_PLATFORMS": os.environ.get("JAX_PLATFORMS", "cpu")}
    command = [sys.executable, "-m", MODULE, *_own_arguments(options), f"--coordinator={coordinator}"]
    ranks = range(options.slices * options.nodes_per_slice)
    processes = [subprocess.Popen([*command, f"--rank={rank}"], env=environment) for rank in ranks]
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        return next((code for process in processes if (code := process.wait())), 0)
    finally:
        for process in processes:
            process.kill()
            process.wait()


def _own_arguments(options: argparse.Namespace) -> list[str]:
    skip = [] if options.skip_batch is None else [f"--skip-batch={options.skip_batch}"]
    return [
        f"--slices={options.slices}",
        f"--nodes-per-slice={options.nodes_per_slice}",
        f"--steps={options.steps}",
        f"--output={options.output}",
        *skip,
    ]


def _train(options: argparse.Namespace) -> None:
    began = time.monotonic()
    import jax

    jax.config.update("jax_enable_preemption_service", False)
    jax.distributed.initialize(
        coordinator_address=options.coordinator,
        num_processes=options.slices * options.nodes_per_slice,
        process_id=options.rank,
        coordinator_bind_address=options.coordinator if options.rank == 0 else None,
    )
    from everstep_trainer.examples.stdlib_lm import model
    from everstep_trainer.examples.stdlib_lm.data import Corpus

    size = model.Size()
    corpus = Corpus.of_standard_library()
    mesh = model.make_mesh(options.slices)
    train_step = model.make_step(size, mesh)
    state = model.fresh_state(size, mesh)
    loss = None
    marks: list[float] = []
    for step in range(1, options.steps + 1):
        skipped = options.skip_batch is not None and step >= options.skip_batch
        rows = corpus.batch(step + skipped, sequences=size.sequences, length=size.length)
        state, loss = train_step(state, rows)
        if step == 1 or step == options.steps * 3 // 4 or step == options.steps:
            jax.block_until_ready(loss)
            marks.append(time.monotonic())
    digest = model.weights_sha256(state)
    if options.rank == 0:
        result = {
            "final_step": options.steps,
            "loss": None if loss is None else float(loss),
            "weights_sha256": digest,
            "seconds": round(time.monotonic() - began, 3),
            # Until the first step was done, and of one step in the last quarter.
            "start_seconds": round(marks[0] - began, 3),
            "step_seconds": round((marks[-1] - marks[-2]) / max(1, options.steps - options.steps * 3 // 4), 4),
        }
        aside = options.output.with_name(options.output.name + ".tmp")
        aside.write_text(json.dumps(result) + "\n", encoding="utf-8")
        os.replace(aside, options.output)
    jax.distributed.shutdown()


if __name__ == "__main__":
    sys.exit(main())

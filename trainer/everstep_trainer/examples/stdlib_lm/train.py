"""Train the model under Everstep: ``python -m everstep_trainer.examples.stdlib_lm.train --steps=300``."""

from __future__ import annotations

import argparse
import logging
import sys

import everstep_trainer


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=None, help="last step; default: the run's final step")
    parser.add_argument("--print-every", type=int, default=10, help="steps between two printed losses")
    options = parser.parse_args(arguments)

    logging.getLogger("absl").setLevel(logging.ERROR)
    with everstep_trainer.join() as run:
        from everstep_trainer.examples.stdlib_lm import model
        from everstep_trainer.examples.stdlib_lm.data import Corpus

        size = model.Size()
        corpus = Corpus.of_standard_library()
        mesh = model.make_mesh(run.data_parallelism)
        train_step = model.make_step(size, mesh)
        state = run.restore(model.abstract_state(size, mesh))
        if state is None:
            state = model.fresh_state(size, mesh)
        loss = None
        for step in run.steps(to=options.steps):
            rows = corpus.batch(step, sequences=size.sequences, length=size.length)
            state, loss = train_step(state, rows)
            if step % options.print_every == 0:
                sys.stdout.write(f"step {step} loss {float(loss):.4f}\n")
                sys.stdout.flush()
            run.save(step, state)
            run.report(loss=loss)
        digest = model.weights_sha256(state)
        run.report(final={"weights_sha256": digest} | ({} if loss is None else {"loss": float(loss)}))


if __name__ == "__main__":
    main()

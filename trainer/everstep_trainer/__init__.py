"""What training pods import: three lines around the training code that make it survive losing slices.

    with everstep_trainer.join() as run:
        state = run.restore(abstract_state)
        for step in run.steps(to=100_000):
            state, loss = train_step(state, data(step))
            run.save(step, state)
            run.report(loss=loss)

Importing this package imports neither JAX nor Orbax nor a cloud client; joining does.
"""

from everstep_trainer.errors import (
    ConfigurationError,
    HandshakeFailed,
    NoRestorePoint,
    PeerLost,
    StartRefused,
    TrainerError,
)
from everstep_trainer.exit_codes import ExitCode
from everstep_trainer.joining import join
from everstep_trainer.run import Run

__all__ = [
    "ConfigurationError",
    "ExitCode",
    "HandshakeFailed",
    "NoRestorePoint",
    "PeerLost",
    "Run",
    "StartRefused",
    "TrainerError",
    "join",
]

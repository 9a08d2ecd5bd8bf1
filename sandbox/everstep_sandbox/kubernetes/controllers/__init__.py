"""What a control plane does by itself: controllers of jobs, sets, daemons, nodes and namespaces, and the scheduler.

All of them run in one event loop on the store. Each looks at the objects as they are, computes what should be and
commits it; changes of the store wake them, and timers where something falls due later. Decisions stand in pure
modules beside their controllers.
"""

from everstep_sandbox.kubernetes.controllers.run import run_all

__all__ = ["run_all"]

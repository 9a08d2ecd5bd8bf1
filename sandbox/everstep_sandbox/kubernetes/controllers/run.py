"""Starts all controllers and the scheduler on a store."""

from __future__ import annotations

from pathlib import Path

from everstep_sandbox.kubernetes.controllers.daemonset import DaemonSetController
from everstep_sandbox.kubernetes.controllers.installed import DefinitionController, JobSetDeploymentController
from everstep_sandbox.kubernetes.controllers.job.controller import JobController
from everstep_sandbox.kubernetes.controllers.jobset import placement
from everstep_sandbox.kubernetes.controllers.jobset.controller import JobSetController
from everstep_sandbox.kubernetes.controllers.node_life import NodeLifeController
from everstep_sandbox.kubernetes.controllers.pod_garbage import PodGarbageController
from everstep_sandbox.kubernetes.controllers.quota import QuotaController
from everstep_sandbox.kubernetes.controllers.runtime import Runtime
from everstep_sandbox.kubernetes.controllers.service_accounts import ServiceAccountController
from everstep_sandbox.kubernetes.controllers.taint_eviction import TaintEvictionController
from everstep_sandbox.kubernetes.scheduler.controller import SchedulerController
from everstep_sandbox.kubernetes.store import Store


async def run_all(store: Store, *, speed: float, directory: Path) -> None:
    """Runs for ever. `speed` divides the real system's long timers. `directory` is the sandbox's, for records."""
    store.add_admission(placement.admit)
    await Runtime(
        store,
        [
            JobSetController(store),
            JobController(store, speed=speed),
            DaemonSetController(store),
            SchedulerController(store),
            NodeLifeController(store, speed=speed),
            TaintEvictionController(store, speed=speed),
            PodGarbageController(store, speed=speed),
            ServiceAccountController(store),
            QuotaController(store),
            DefinitionController(store),
            JobSetDeploymentController(store),
        ],
    ).run()

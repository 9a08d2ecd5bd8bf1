"""Admission: defaults, mutation and validation of objects as the real API server and JobSet's webhooks do them.

Each module looks after a family of kinds with one function per step; `register` puts them before every commit, for
writes over HTTP and by controllers alike.
"""

from __future__ import annotations

from everstep_sandbox.kubernetes.admission import custom, jobs, jobsets, names, pods, quotas, scheduling
from everstep_sandbox.kubernetes.admission import namespaces as namespace_rules
from everstep_sandbox.kubernetes.store import Store


def register(store: Store) -> None:
    """Adds all hooks: defaults first, then what depends on other objects, then validation."""
    for hook in (
        namespace_rules.admit,
        custom.admit,
        names.admit,
        pods.admit,
        jobs.admit,
        jobsets.admit,
        scheduling.admit,
        quotas.admit,
    ):
        store.add_admission(hook)

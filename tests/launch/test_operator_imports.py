"""What importing operators and triggers costs: no cloud or Kubernetes library, and little time."""

from __future__ import annotations

import subprocess
import sys

MODULES = (
    "everstep.launch.operator",
    "everstep.watch.sensors",
    "everstep.watch.triggers",
    "everstep.watch.sensor_triggers",
    "everstep.provision.operators",
    "everstep.resume.gate",
)
SCRIPT = """
import importlib, sys, time
import airflow.providers.common.compat.sdk as sdk
sdk.BaseOperator, sdk.conf, sdk.BaseOperatorLink
import airflow.triggers.base
before = set(sys.modules)
started = time.perf_counter()
for module in sys.argv[1:]:
    importlib.import_module(module)
seconds = time.perf_counter() - started
heavy = ("google", "kubernetes", "kubernetes_asyncio", "gcloud", "airflow.providers.google", "airflow.providers.cncf")
loaded = sorted(m for m in set(sys.modules) - before if any(m == h or m.startswith(h + ".") for h in heavy))
print(seconds, *loaded)
"""


def test_importing_loads_no_client_library() -> None:
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, *MODULES], capture_output=True, text=True, check=True, timeout=120
    )
    seconds, *loaded = done.stdout.split()
    assert loaded == []
    assert float(seconds) < 2.0


def test_a_dag_file_that_names_its_run_loads_neither_models_nor_clients() -> None:
    script = "import sys, everstep.resilient_training; print(*(m for m in sys.modules if m.startswith('everstep.')))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=120)
    loaded = set(done.stdout.split())
    assert "everstep.launch.operator" in loaded
    assert not loaded & {"everstep.spec.training", "everstep.spec.cluster", "everstep.clients.access"}

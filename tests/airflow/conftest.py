"""One sandbox and one Airflow for the whole tier: both are real, and starting them costs most of a minute."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from everstep_sandbox.demo.progress import Progress
from everstep_sandbox.demo.stack import DemoStack

# A worker that was killed is noticed after seconds instead of five minutes.
QUICK_DETECTION = {
    "AIRFLOW__SCHEDULER__TASK_INSTANCE_HEARTBEAT_TIMEOUT": "15",
    "AIRFLOW__SCHEDULER__TASK_INSTANCE_HEARTBEAT_TIMEOUT_DETECTION_INTERVAL": "5",
    "AIRFLOW__SCHEDULER__SCHEDULER_HEALTH_CHECK_THRESHOLD": "10",
    "AIRFLOW__SCHEDULER__ORPHANED_TASKS_CHECK_INTERVAL": "10",
    "AIRFLOW__TRIGGERER__TRIGGERER_HEALTH_CHECK_THRESHOLD": "10",
}


@pytest.fixture(scope="session")
def stack() -> Iterator[DemoStack]:
    # Unix sockets below it need a short path, which pytest's own directories are not.
    with tempfile.TemporaryDirectory(prefix="everstep-", ignore_cleanup_errors=True) as directory:
        started = DemoStack(Path(directory), Progress(), airflow_options=QUICK_DETECTION)
        before = dict(os.environ)
        try:
            started.start_sandbox()
            os.environ.update(started.client_environment())
            started.start_airflow()
            started.airflow.wait_for_dag("train_resilient")
            yield started
        finally:
            started.stop()
            os.environ.clear()
            os.environ.update(before)

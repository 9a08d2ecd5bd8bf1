"""What only whole processes show: what is imported, what signals do, what codes they end with."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

HEAVY = ("jax", "orbax", "google.cloud.storage", "google.auth", "gcsfs", "airflow", "kubernetes", "tensorstore")


def python(code: str, **environment: str) -> subprocess.Popen[str]:
    clean = {name: value for name, value in os.environ.items() if not name.startswith("EVERSTEP_")}
    return subprocess.Popen(
        [sys.executable, "-c", code],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**clean, **environment},
    )


def test_importing_the_library_is_cheap() -> None:
    process = python(
        "import sys, everstep_trainer, everstep_trainer.observer\n"
        f"print([name for name in {HEAVY!r} if name in sys.modules])"
    )
    output, errors = process.communicate(timeout=30)
    assert output.strip() == "[]", errors


def test_a_pod_that_everstep_did_not_start_ends_with_a_configuration_error() -> None:
    process = python("import everstep_trainer\nwith everstep_trainer.join(): print('trained')")
    output, errors = process.communicate(timeout=30)
    assert process.returncode == 64
    assert "EVERSTEP_RUN is not set" in errors
    assert "trained" not in output


def test_sigterm_reaches_a_process_that_is_stuck_outside_python() -> None:
    process = python(
        "import ctypes, os\n"
        "from everstep_trainer import signals\n"
        "signals.on_sigterm(lambda: os._exit(76))\n"
        "print('ready', flush=True)\n"
        "while True: ctypes.CDLL(None).sleep(60)"
    )
    assert process.stdout is not None and process.stdout.readline() == "ready\n"
    began = time.monotonic()
    process.send_signal(signal.SIGTERM)
    assert process.wait(5) == 76
    assert time.monotonic() - began < 0.5
    process.communicate()


def test_an_abort_leaves_time_to_end_properly() -> None:
    process = python(
        "import ctypes, os, threading, time\n"
        "from everstep_trainer import signals\n"
        "signals.delay_abort()\n"
        "threading.Thread(target=ctypes.CDLL(None).abort, daemon=True).start()\n"
        "time.sleep(0.5)\n"
        "os._exit(75)"
    )
    assert process.wait(10) == 75
    process.communicate()


def test_an_abort_still_ends_a_process_that_nobody_ends() -> None:
    process = python("import os\nfrom everstep_trainer import signals\nsignals.delay_abort()\nos.abort()")
    assert process.wait(20) == -signal.SIGABRT
    process.communicate()

"""Provisioning that is killed at every change: python -m tests.provision.killed_provisioning DIRECTORY seen|unanswered

Each try is a process of its own that carries `everstep provision --mode apply` out, and gets SIGKILL at the first
change that it makes: when the change is seen (`seen`), or before its answer arrives (`unanswered`). The next try goes
on from there, until one comes to its end. Prints, as JSON, how many changes each killed try had made.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from pathlib import Path

from tests.provision.provisioned_project import ProvisionedProject

# Imported once, here: a process that is forked begins its work at once.
from everstep.cli.main import main as everstep_command

TRIES_AT_MOST = 40


def main() -> None:
    """Kill at each change, until a try comes to its end before it makes one."""
    directory, moment = sys.argv[1:]
    project = ProvisionedProject(Path(directory))
    os.environ.update(project.environment())
    changes: list[int] = []
    while (made := one_try(project, unanswered=moment == "unanswered")) is not None:
        changes.append(made)
        if len(changes) > TRIES_AT_MOST:
            sys.exit(f"it does not end: {changes}")
    project.answer_at_once()
    print(json.dumps(changes))


def one_try(project: ProvisionedProject, *, unanswered: bool) -> int | None:
    """Return how many changes a try had made when it was killed; None when it came to its end."""
    if unanswered:
        project.delay_answers()
    before = len(project.calls())
    child = os.fork()
    if child == 0:
        code = 1
        try:
            os.dup2(2, 1)
            code = everstep_command(project.words("apply"))
        finally:
            sys.stdout.flush()
            os._exit(code)
    while True:
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            break
        if len(project.calls()) > before:
            os.kill(child, signal.SIGKILL)
            _, status = os.waitpid(child, 0)
            break
        time.sleep(0.005)
    if os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL:
        return len(project.calls()) - before
    code = os.waitstatus_to_exitcode(status)
    if code != 0:
        sys.exit(f"a try ended with {code}")
    return None


if __name__ == "__main__":
    main()

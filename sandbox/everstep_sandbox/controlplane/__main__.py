"""`python -m everstep_sandbox.controlplane`: a real control plane, in place of `everstep_sandbox.kubernetes`.

Writes DIR/kubeconfig and the port file when it is ready. SIGTERM ends it and its programs; what they hold stays on
disk. Ends with an error when one of them ends.
"""

from __future__ import annotations

import argparse
import logging
import signal
import sys
from pathlib import Path

from everstep_sandbox.controlplane import programs
from everstep_sandbox.controlplane.plane import ControlPlane
from everstep_sandbox.kubernetes.files import write_atomically
from everstep_sandbox.stack.furnish import RequestError
from everstep_sandbox.stack.parts import PartError

_SIGNALS = {signal.SIGTERM, signal.SIGINT, signal.SIGCHLD}


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m everstep_sandbox.controlplane", description=__doc__)
    parser.add_argument("--directory", type=Path, required=True, help="the sandbox's state directory")
    parser.add_argument("--port-file", type=Path, help="where to write the API's port once it answers")
    parser.add_argument("--speed", type=float, default=1.0, help="divides those long timers that are settings")
    arguments = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        plane = ControlPlane(arguments.directory.resolve(), programs.find(), speed=arguments.speed)
    except programs.ProgramsMissing as missing:
        logging.error("%s", missing)
        return 3
    except (PartError, OSError) as error:
        logging.error("%s", error)
        return 1
    try:
        plane.start()
        if arguments.port_file is not None:
            write_atomically(arguments.port_file, str(plane.settings.ports["api"]))
        logging.info("Kubernetes API at %s", plane.server)
        signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
        plane.check()
        while signal.sigwait(_SIGNALS) == signal.SIGCHLD:
            plane.check()
    except KeyboardInterrupt:
        pass
    except (PartError, RequestError, OSError) as error:
        logging.error("%s", error)
        return 1
    finally:
        signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
        plane.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())

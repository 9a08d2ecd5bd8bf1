"""HTTP routes through which `everstep sandbox fault` reaches the machines: POST /faults/<kind> with JSON arguments."""

from __future__ import annotations

import signal
from collections.abc import Awaitable, Callable
from typing import Any

import aiohttp
from aiohttp import web

from everstep_sandbox.kubelet.api import ApiFailure
from everstep_sandbox.kubelet.fleet import Fleet, FleetError

Object = dict[str, Any]


def fault_routes(fleet: Fleet) -> list[web.RouteDef]:
    """200 with what was done; 409 with a sentence where it can't be done; 400 for arguments that make no sense."""
    kinds: dict[str, Callable[[Object], Awaitable[Object]]] = {
        "node-gone": lambda body: fleet.lose_node(body["node"], body.get("repair_after")),
        "node-silent": lambda body: fleet.silence_node(body["node"], body.get("repair_after")),
        "pool-gone": lambda body: fleet.lose_pool(body["pool"], body.get("repair_after")),
        "token-failure": lambda body: fleet.break_tokens(bool(body.get("undo"))),
        "restart-drivers": lambda body: fleet.restart_drivers(),
        "image-missing": lambda body: _at_once(fleet.lose_image(str(body["image"]), bool(body.get("undo")))),
        "resize": lambda body: fleet.resize(list(body["machines"])),
        "wipe-ram": lambda body: fleet.wipe_ram(list(body.get("nodes") or ())),
        "kill-pod": lambda body: fleet.kill_pod(
            body["namespace"], body["pod"], signal.Signals(int(body.get("signal", signal.SIGKILL)))
        ),
    }

    async def fault(request: web.Request) -> web.Response:
        kind = request.match_info["kind"]
        if kind not in kinds:
            return web.json_response({"error": f"No fault {kind!r}; known are {', '.join(kinds)}"}, status=400)
        try:
            return web.json_response(await kinds[kind](await request.json()))
        except FleetError as error:
            return web.json_response({"error": str(error)}, status=409)
        except (KeyError, ValueError) as error:
            return web.json_response({"error": f"Fault {kind}: {error!r} in its arguments"}, status=400)
        except (ApiFailure, aiohttp.ClientError) as error:
            return web.json_response({"error": f"Fault {kind}: the Kubernetes API failed: {error}"}, status=502)

    return [web.post("/faults/{kind}", fault)]


async def _at_once(done: Object) -> Object:
    return done

"""Startup and readiness probes: exec, httpGet and tcpSocket."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp

Object = dict[str, Any]


async def until_success(probe: Object, address: str, directory: Path, speed: float) -> None:
    """Returns when the probe has succeeded once. (A startup probe's failures restart nothing here.)"""
    async for succeeded in results(probe, address, directory, speed):
        if succeeded:
            return


async def results(probe: Object, address: str, directory: Path, speed: float) -> AsyncIterator[bool]:
    """The probe's judgement after every period (sped up), with its success and failure thresholds applied."""
    await asyncio.sleep(float(probe.get("initialDelaySeconds") or 0) / speed)
    needed = {True: int(probe.get("successThreshold") or 1), False: int(probe.get("failureThreshold") or 3)}
    last, streak = False, 0
    while True:
        succeeded = await _attempt(probe, address, directory)
        streak = streak + 1 if succeeded == last else 1
        last = succeeded
        if streak >= needed[succeeded]:
            yield succeeded
        await asyncio.sleep(float(probe.get("periodSeconds") or 10) / speed)


async def _attempt(probe: Object, address: str, directory: Path) -> bool:
    timeout = float(probe.get("timeoutSeconds") or 1)
    with contextlib.suppress(OSError, TimeoutError, aiohttp.ClientError):
        if "exec" in probe:
            return await _exec(probe["exec"]["command"], directory, timeout)
        if "tcpSocket" in probe:
            host = probe["tcpSocket"].get("host") or address
            async with asyncio.timeout(timeout):
                _, writer = await asyncio.open_connection(host, int(probe["tcpSocket"]["port"]))
            writer.close()
            return True
        if "httpGet" in probe:
            wanted = probe["httpGet"]
            url = f"http://{wanted.get('host') or address}:{int(wanted['port'])}{wanted.get('path') or '/'}"
            async with (
                aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=timeout)) as session,
                session.get(url) as answer,
            ):
                return 200 <= answer.status < 400
    return False


async def _exec(command: list[str], directory: Path, timeout: float) -> bool:
    process = await asyncio.create_subprocess_exec(
        *command,
        cwd=directory,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.DEVNULL,
    )
    try:
        async with asyncio.timeout(timeout):
            return await process.wait() == 0
    except TimeoutError:
        process.kill()
        await process.wait()
        return False

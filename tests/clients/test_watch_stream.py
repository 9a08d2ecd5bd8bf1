"""The events of a watch's answer, read from a stream of bytes."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from everstep.clients import errors
from everstep.clients.access import ClusterAccess
from everstep.clients.resources import JOBSETS
from everstep.clients.watch_stream import Stalled, events


def stream(*lines: Any, end: bool = True) -> Any:
    """An answer whose body has come already."""
    reader = asyncio.StreamReader(limit=2**26)
    for line in lines:
        reader.feed_data(line if isinstance(line, bytes) else json.dumps(line).encode() + b"\n")
    if end:
        reader.feed_eof()
    return SimpleNamespace(content=reader)


async def read(answer: Any, silence: float = 5.0) -> list[dict[str, Any]]:
    return [event async for event in events(answer, silence, "watch /x")]


def error(code: int, message: str) -> dict[str, Any]:
    return {"type": "ERROR", "object": {"code": code, "reason": "R", "message": message}}


async def test_events_come_in_order_and_empty_lines_are_none() -> None:
    assert await read(stream({"type": "A"}, b"\n", {"type": "B"})) == [{"type": "A"}, {"type": "B"}]


@pytest.mark.parametrize(
    ("line", "kind"),
    [
        (error(410, "too old resource version"), errors.Gone),
        (error(504, "Timeout: Too large resource version: 9, current: 5"), errors.Gone),
        (error(504, "Timeout: something else"), errors.Unavailable),
        (error(500, "broken"), errors.Unavailable),
        (b'{"type": "MODI', errors.Unavailable),
    ],
)
async def test_what_is_no_event_is_raised_as_what_it_means(line: Any, kind: type[Exception]) -> None:
    with pytest.raises(kind):
        await read(stream({"type": "A"}, line))


async def test_silence_is_told_apart_from_an_end() -> None:
    with pytest.raises(Stalled, match=r"nothing came for 0\.1 s"):
        await read(stream({"type": "A"}, end=False), silence=0.1)


async def test_a_burst_leaves_room_for_other_work() -> None:
    event = {"type": "MODIFIED", "object": {str(number): {"of": "some", "size": number} for number in range(200)}}
    answer = stream(*[event] * 2000)
    turns = 0

    async def other_work() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    working = asyncio.create_task(other_work())
    assert len(await read(answer)) == 2000
    working.cancel()
    assert turns > 5


@pytest.mark.parametrize("status", ["503 Service Unavailable", "200 OK"])
async def test_a_server_that_stalls_in_the_middle_of_an_answer_counts_as_away(tmp_path: Path, status: str) -> None:
    async def stall(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(f"HTTP/1.1 {status}\r\nContent-Length: 100\r\n\r\n{{".encode())
        await reader.read()
        writer.close()

    stalling = await asyncio.start_server(stall, "127.0.0.1")
    cluster = {"server": f"http://127.0.0.1:{stalling.sockets[0].getsockname()[1]}"}
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text(
        json.dumps(
            {
                "current-context": "c",
                "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
                "clusters": [{"name": "c", "cluster": cluster}],
                "users": [{"name": "u", "user": {"token": "t"}}],
            }
        )
    )
    async with stalling, ClusterAccess.of_kubeconfig(kubeconfig).open_async() as client, asyncio.timeout(20):
        with pytest.raises(errors.Unavailable):
            async with client.watch(JOBSETS, "default", "1", silence=0.2) as told:
                async for _ in told:
                    pass

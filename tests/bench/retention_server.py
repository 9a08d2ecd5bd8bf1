"""A storage server that is faster than every client: what the retention bench lists, deletes and renames.

It knows as much of Cloud Storage's JSON API as the contestants ask for. Every answer comes so many milliseconds after
its request; changes are noted with their times, so that rates can be told from the outside.

    python -m tests.bench.retention_server --latency 0.025 --backups 1000 --large 10 --runs 8 --flat
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import json
import re
import time
from bisect import bisect_left
from collections import Counter
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

import uvloop
from tests.bench import retention_bucket as made

BUCKET = "bench"
PAGE = 1000
CREATED = "2026-01-01T00:00:00.000Z"
_DELETES = re.compile(rb"DELETE /storage/v1/b/[^/]+/o/([^ ?]+)")


class Content:
    """Made-up backups but for those that were renamed or deleted, and the few objects that somebody wrote."""

    def __init__(self, runs: list[made.Run], hierarchical: bool) -> None:
        made.PLACES[:] = runs
        self.hierarchical = hierarchical
        self.runs = {run.name: number for number, run in enumerate(runs)}
        self.there = {run.name: set(run.backups) for run in runs}
        self.gone: dict[tuple[str, str], set[str]] = {}
        self.loose: dict[str, tuple[bytes, int]] = {}
        self.trash: dict[str, set[str]] = {}
        self.generation = 10
        self.requests: Counter[str] = Counter()
        self.deleted_at: list[tuple[float, int]] = []
        self.renames: dict[str, tuple[str, str]] = {}
        for run in runs:
            shape = run.shape
            record = {"nodes": shape.nodes, "workers_per_node": 1, "data_parallelism": shape.data_parallelism}
            self.write(f"{run.name}/everstep/run.json", json.dumps({**record, "lineage": "first"}).encode())

    def write(self, name: str, body: bytes) -> int:
        self.generation += 1
        self.loose[name] = (body, self.generation)
        return self.generation

    def all_names(self, prefix: str, after: str, limit: int) -> list[tuple[str, str | None]]:
        """Return names in order, each with its md5 where it is a meta; after a name, at most so many."""
        found: list[tuple[str, str | None]] = []
        parts = prefix.split("/")
        for run in sorted(self.runs):
            if not (run + "/").startswith(prefix) and not prefix.startswith(run + "/"):
                continue
            start = after.split("/")
            if after and run < start[0]:
                continue
            for backup in sorted(self.there[run]):
                folder = f"{run}/{backup}/"
                if len(parts) > 1 and not folder.startswith(prefix) and not prefix.startswith(folder):
                    continue
                if after >= folder + "\x7f":
                    continue
                names = made.names(run, backup, self.runs[run])
                gone = self.gone.get((run, backup), ())
                first = bisect_left(names, after.removeprefix(folder) + "\0") if after.startswith(folder) else 0
                checksums = dict(made.level(run, backup, self.runs[run])[0])
                for name in names[first:]:
                    if name not in gone and (folder + name).startswith(prefix):
                        found.append((folder + name, checksums.get(name)))
                        if len(found) > limit:
                            return found
            loose = sorted(name for name in self.loose if name.startswith(run + "/") and name.startswith(prefix))
            found += [(name, None) for name in loose if name > after]
        return found

    def delete(self, name: str) -> bool:
        run, _, rest = name.partition("/")
        backup, _, inner = rest.partition("/")
        if name in self.loose:
            del self.loose[name]
            return True
        if run not in self.there or backup not in self.there[run]:
            return False
        gone = self.gone.setdefault((run, backup), set())
        if inner in gone:
            return False
        gone.add(inner)
        if len(gone) == made.PLACES[self.runs[run]].shape.objects:
            self.there[run].discard(backup)
            del self.gone[run, backup]
        return True


class Api:
    """Answers requests: (status, body) of (method, path, query, body)."""

    def __init__(self, content: Content) -> None:
        self.content = content

    def answer(self, method: str, target: str, headers: bytes, body: bytes) -> tuple[int, bytes, bytes]:
        parts = urlsplit(target)
        path, query = parts.path, dict(parse_qsl(parts.query, keep_blank_values=True))
        content = self.content
        base = f"/storage/v1/b/{BUCKET}"
        if path == "/_bench":
            return self._figures(method)
        kind, answered = "other", (404, b'{"error":{"message":"no such thing","code":404}}')
        if path == f"{base}/o" and method == "GET":
            kind, answered = "list", (200, self._list(query))
        elif path.startswith(f"{base}/o/") and method == "DELETE":
            kind = "delete"
            answered = (204, b"") if self._deleted([unquote(path[len(base) + 3 :])])[0] else answered
        elif path.startswith((f"{base}/o/", f"/download{base}/o/")) and method == "GET":
            kind, answered = "read", self._read(unquote(path.partition(f"{base}/o/")[2]), query, answered)
        elif path == f"/upload{base}/o":
            kind, answered = "write", self._write(query, headers, body)
        elif path.startswith("/batch"):
            kind = "batch"
            return self._counted(kind, 200, *self._batch(body))
        elif path == base:
            document = {"name": BUCKET, "hierarchicalNamespace": {"enabled": content.hierarchical}, "metageneration": 1}
            kind, answered = "bucket", (200, json.dumps(document).encode())
        elif path.startswith(f"{base}/folders"):
            kind, answered = self._folders(method, path[len(base) :], query, answered)
        elif path.startswith(f"{base}/operations"):
            kind, answered = "poll", (200, b'{"name":"x/operations/1","done":true}')
        media = b"application/json"
        if kind == "read" and answered[0] == 200:
            _, generation = content.loose[unquote(path.partition(f"{base}/o/")[2])]
            media += b"\r\nX-Goog-Generation: %d\r\nX-Goog-Metageneration: 1" % generation
        return self._counted(kind, *answered, media)

    def _counted(self, kind: str, status: int, body: bytes, media: bytes) -> tuple[int, bytes, bytes]:
        self.content.requests[kind] += 1
        return status, body, media

    def _figures(self, method: str) -> tuple[int, bytes, bytes]:
        content = self.content
        left = sum(
            made.PLACES[number].shape.objects * len(content.there[run])
            - sum(len(gone) for (of, _), gone in content.gone.items() if of == run)
            for run, number in content.runs.items()
        )
        document = {
            "requests": content.requests,
            "objects": left,
            "backups": sum(map(len, content.there.values())),
            "deleted_at": content.deleted_at,
        }
        if method == "DELETE":
            content.requests, content.deleted_at = Counter(), []
        return 200, json.dumps(document).encode(), b"application/json"

    def _list(self, query: dict[str, str]) -> bytes:
        prefix = query.get("prefix", "")
        limit = min(int(query.get("maxResults") or PAGE), PAGE)
        token = base64.urlsafe_b64decode(query["pageToken"]).decode() if query.get("pageToken") else ""
        fields = query.get("fields", "")
        if query.get("delimiter") == "/":
            return self._level(prefix, limit, token)
        found = self.content.all_names(prefix, token, limit)
        is_more, found = len(found) > limit, found[:limit]
        render = _short if fields and "md5Hash" not in fields else _resource
        items = ",".join([render(name, checksum) for name, checksum in found])
        more = f',"nextPageToken":"{_token(found[-1][0])}"' if is_more else ""
        return f'{{"kind":"storage#objects","items":[{items}]{more}}}'.encode()

    def _level(self, prefix: str, limit: int, token: str) -> bytes:
        """One level: of the bucket, a run, its records, a backup, or anything else that somebody wrote."""
        content = self.content
        run, _, rest = prefix.partition("/")
        backup = rest.rstrip("/")
        if run in content.there and backup in content.there[run] and rest.count("/") == 1:
            gone = content.gone.get((run, backup), ())
            metas, data = made.level(run, backup, content.runs[run])
            entries: list[tuple[str, str | None]] = [(prefix + name, sum_) for name, sum_ in metas if name not in gone]
            if gone:
                left = {
                    name.partition("/")[0] + "/"
                    for name in made.names(run, backup, content.runs[run])
                    if name not in gone
                }
                data = tuple(each for each in data if each in left)
            entries += [(prefix + name, None) for name in data]
        else:
            entries = self._other_level(prefix)
        entries = sorted(each for each in entries if each[0] > token)
        is_more, entries = len(entries) > limit, entries[:limit]
        items = ",".join(
            _entry(name, checksum, content.loose[name][1] if name in content.loose else None)
            for name, checksum in entries
            if not name.endswith("/")
        )
        prefixes = json.dumps([name for name, _ in entries if name.endswith("/")])
        more = f',"nextPageToken":"{_token(entries[-1][0])}"' if is_more else ""
        return f'{{"kind":"storage#objects","items":[{items}],"prefixes":{prefixes}{more}}}'.encode()

    def _other_level(self, prefix: str) -> list[tuple[str, str | None]]:
        content = self.content
        entries: dict[str, str | None] = {}
        for name in content.loose:
            if name.startswith(prefix):
                head, slash, _ = name[len(prefix) :].partition("/")
                entries[prefix + head + slash] = None
        for name in [
            *(f"{run}/{each}/" for run, backups in content.there.items() for each in backups),
            *(each for inside in content.trash.values() for each in inside),
            *content.trash,
        ]:
            if name.startswith(prefix) and name != prefix:
                entries[prefix + name[len(prefix) :].partition("/")[0] + "/"] = None
        return list(entries.items())

    def _read(self, name: str, query: dict[str, str], absent: tuple[int, bytes]) -> tuple[int, bytes]:
        found = self.content.loose.get(name)
        if found is None:
            return absent
        if query.get("alt") == "media":
            return 200, found[0]
        return 200, _entry(name, None, found[1]).encode()

    def _write(self, query: dict[str, str], headers: bytes, body: bytes) -> tuple[int, bytes]:
        name = query.get("name", "")
        if query.get("uploadType") == "multipart":
            match = re.search(rb"boundary=\"?([^\";\r\n]+)", headers)
            assert match is not None
            _, described, media, *_ = body.split(b"--" + match.group(1))
            name = json.loads(described.partition(b"\r\n\r\n")[2])["name"]
            body = media.partition(b"\r\n\r\n")[2][:-2]
        expected, present = query.get("ifGenerationMatch"), self.content.loose.get(name, (b"", 0))[1]
        if expected is not None and int(expected) != present:
            return 412, b'{"error":{"message":"conditionNotMet","code":412}}'
        return 200, _entry(name, None, self.content.write(name, body)).encode()

    def _batch(self, body: bytes) -> tuple[bytes, bytes]:
        names = [unquote(found.decode()) for found in _DELETES.findall(body)]
        identifiers = re.findall(rb"(?i)content-id: ?<([^>]+)>", body)
        parts = []
        for place, was_there in enumerate(self._deleted(names)):
            status = b"204 No Content" if was_there else b"404 Not Found"
            identifier = identifiers[place] if place < len(identifiers) else str(place).encode()
            parts.append(
                b"--b\r\nContent-Type: application/http\r\nContent-ID: <response-%s>\r\n\r\nHTTP/1.1 %s\r\n"
                b"Content-Length: 0\r\n\r\n\r\n" % (identifier, status)
            )
        return b"".join(parts) + b"--b--\r\n", b"multipart/mixed; boundary=b"

    def _deleted(self, names: list[str]) -> list[bool]:
        done = [self.content.delete(name) for name in names]
        self.content.deleted_at.append((time.time(), len(names)))
        return done

    def _folders(
        self, method: str, path: str, query: dict[str, str], absent: tuple[int, bytes]
    ) -> tuple[str, tuple[int, bytes]]:
        content = self.content
        done = b'{"name":"x/operations/1","done":false}'
        if method == "POST" and path == "/folders":
            return "create folder", (200, b'{"name":"made/","metageneration":"1"}')
        renamed = re.fullmatch(r"/folders/(.+?)/renameTo/folders/(.+)", path)
        if renamed:
            source, target = (unquote(each) for each in renamed.groups())
            run, _, rest = source.partition("/")
            name = rest.rstrip("/")
            if name in content.there.get(run, ()):
                content.there[run].discard(name)
                content.trash.setdefault(target.removesuffix(f"{name}/"), set()).add(target)
                return "rename", (200, done)
            if source in content.trash:
                inside = content.trash.pop(source)
                content.trash[target] = {target + each.removeprefix(source) for each in inside}
                return "rename", (200, done)
            return "rename", absent
        if path.endswith("/deleteRecursive"):
            content.trash.pop(unquote(path[len("/folders/") : -len("/deleteRecursive")]), None)
            return "deleteRecursive", (200, done)
        return "folder", absent


class Connection(asyncio.Protocol):
    """One HTTP/1.1 connection; requests are answered in order, each after the latency."""

    def __init__(self, api: Api, latency: float) -> None:
        self._api, self._latency, self._buffer = api, latency, b""

    def connection_made(self, transport: Any) -> None:
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        while (end := self._buffer.find(b"\r\n\r\n")) >= 0:
            head = self._buffer[:end]
            match = re.search(rb"(?i)content-length: *([0-9]+)", head)
            length = int(match.group(1)) if match else 0
            if b"chunked" in head.lower():
                raise ValueError("chunked bodies are not served")
            if len(self._buffer) < end + 4 + length:
                return
            body = self._buffer[end + 4 : end + 4 + length]
            self._buffer = self._buffer[end + 4 + length :]
            method, target, _ = head.split(b"\r\n", 1)[0].decode().split(" ")
            if self._latency:
                loop = asyncio.get_running_loop()
                loop.call_later(self._latency, self._respond, method, target, head, body)
            else:
                self._respond(method, target, head, body)

    def _respond(self, method: str, target: str, head: bytes, body: bytes) -> None:
        status, answer, media = self._api.answer(method, target, head, body)
        self._transport.write(
            b"HTTP/1.1 %d X\r\nContent-Type: %s\r\nContent-Length: %d\r\n\r\n%s" % (status, media, len(answer), answer)
        )


def _token(name: str) -> str:
    return base64.urlsafe_b64encode(name.encode()).decode()


def _short(name: str, _: str | None) -> str:
    return f'{{"name":"{name}","generation":"7","size":"1000000","timeCreated":"{CREATED}","updated":"{CREATED}"}}'


def _entry(name: str, checksum: str | None, generation: int | None = None) -> str:
    """What Everstep's own listings ask for."""
    generation = generation if generation is not None else 7
    return (
        f'{{"name":"{name}","size":"65","md5Hash":"{checksum or ""}","timeCreated":"{CREATED}",'
        f'"generation":"{generation}","metageneration":"1"}}'
    )


def _resource(name: str, checksum: str | None) -> str:
    """An object as it is listed without a choice of fields."""
    quoted = name.replace("/", "%2F")
    return (
        f'{{"kind":"storage#object","id":"{BUCKET}/{name}/7","selfLink":"https://www.googleapis.com/storage/v1/b/'
        f'{BUCKET}/o/{quoted}","mediaLink":"https://storage.googleapis.com/download/storage/v1/b/{BUCKET}/o/{quoted}?'
        f'generation=7&alt=media","name":"{name}","bucket":"{BUCKET}","generation":"7","metageneration":"1",'
        f'"contentType":"application/octet-stream","storageClass":"STANDARD","size":"1000000",'
        f'"md5Hash":"{checksum or "1B2M2Y8AsgTpgAmY7PhCfg=="}","crc32c":"AAAAAA==","etag":"CAc=",'
        f'"timeCreated":"{CREATED}","updated":"{CREATED}","timeStorageClassUpdated":"{CREATED}"}}'
    )


async def serve(options: argparse.Namespace) -> None:
    """Serve until the process ends."""
    content = Content(made.runs(options.backups, options.large, options.runs), not options.flat)
    api = Api(content)
    server = await asyncio.get_running_loop().create_server(
        lambda: Connection(api, options.latency), "127.0.0.1", 0, backlog=512
    )
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


def main() -> None:
    """Serve until the process ends; prints its port."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--latency", type=float, default=0.0)
    parser.add_argument("--backups", type=int, default=1000)
    parser.add_argument("--large", type=int, default=10)
    parser.add_argument("--runs", type=int, default=8)
    parser.add_argument("--flat", action="store_true")
    uvloop.run(serve(parser.parse_args()))


if __name__ == "__main__":
    main()

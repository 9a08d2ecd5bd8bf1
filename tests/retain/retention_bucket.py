"""A bucket in memory that carries out steps, for tests of readings and plans; and how backups are laid in it."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from everstep.checkpoints import checksums
from everstep.checkpoints.catalogue import ListedObject
from everstep.clients.requests import Listing, ListRequest, ReadRequest, SizeRequest, Sizes, StoredObject


def digest_of(text: str) -> str:
    return "D" + hashlib.sha256(text.encode()).hexdigest()


@dataclass
class Bucket:
    """Objects by whole name: (body, generation, created). Folders exist by themselves too."""

    objects: dict[str, tuple[bytes, int, datetime | None]] = field(default_factory=dict)
    folders: set[str] = field(default_factory=set)
    asked: Counter[str] = field(default_factory=Counter)
    generation: int = 0

    def put(self, name: str, body: bytes | str = b"x", created: datetime | None = None) -> None:
        self.generation += 1
        self.objects[name] = (body.encode() if isinstance(body, str) else body, self.generation, created)

    def backup(
        self,
        run: str,
        name: str,
        step: int,
        *,
        nodes: int = 2,
        without: Sequence[int] = (),
        created: datetime | None = None,
        data: bool = True,
    ) -> None:
        for node in range(nodes):
            digest = digest_of(f"{run} {name} {step} {node}")
            if node in without:
                continue
            self.put(f"{run}/{name}/{run}-s{step}-n{node}-w0.meta", digest, created)
            if data:
                self.put(f"{run}/{name}/{digest}.data/manifest.ocdbt", b"0123456789", created)

    def run_record(self, run: str, nodes: int = 2, data_parallelism: int | None = None, **more: Any) -> None:
        record = {"nodes": nodes, "workers_per_node": 1, "data_parallelism": data_parallelism, **more}
        self.put(f"{run}/everstep/run.json", json.dumps(record))

    def carry_out(self, steps: Any) -> Any:
        answers = None
        try:
            while True:
                batch = next(steps) if answers is None else steps.send(answers)
                answers = [self.answer(each) for each in batch]
        except StopIteration as done:
            return done.value

    def answer(self, request: Any) -> Any:
        self.asked[type(request).__name__] += 1
        if isinstance(request, ListRequest):
            return self.level(request.prefix)
        if isinstance(request, SizeRequest):
            found = [body for name, (body, _, _) in self.objects.items() if name.startswith(request.prefix)]
            return Sizes(len(found), sum(map(len, found)))
        assert isinstance(request, ReadRequest)
        found_object = self.objects.get(request.name)
        return None if found_object is None else StoredObject(request.name, found_object[0], found_object[1])

    def level(self, prefix: str) -> Listing:
        objects, folders = [], set()
        for name, (body, generation, created) in self.objects.items():
            if name.startswith(prefix):
                head, slash, _ = name.removeprefix(prefix).partition("/")
                if slash:
                    folders.add(head)
                else:
                    md5 = checksums.md5_base64(body)
                    objects.append(ListedObject(head, len(body), md5, None, created, generation, 1))
        for name in self.folders:
            if name.startswith(prefix) and name != prefix:
                folders.add(name.removeprefix(prefix).partition("/")[0])
        return Listing(tuple(objects), tuple(sorted(folders)))

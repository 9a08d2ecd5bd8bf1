"""The bucket in memory with all that a sweep asks of one, hierarchical or flat."""

from __future__ import annotations

import copy
import json
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from tests.retain.retention_bucket import Bucket

from everstep.clients import bulk_requests as bulk
from everstep.clients.bulk_requests import Outcome

PAGE = 4


@dataclass
class SweptBucket(Bucket):
    """`clock` dates what is written. In a flat one folders are nothing but parts of names."""

    hierarchical: bool = True
    clock: datetime = datetime(2026, 1, 1, tzinfo=UTC)

    def put(self, name: str, body: bytes | str = b"x", created: datetime | None = None) -> None:
        super().put(name, body, created or self.clock)

    def copy(self) -> SweptBucket:
        return replace(self, objects=dict(self.objects), folders=set(self.folders), asked=copy.copy(self.asked))

    def answer(self, request: Any) -> Any:
        match request:
            case bulk.ObjectsRequest():
                return self._page(request)
            case bulk.DeleteObjects():
                return tuple(self._delete(each) for each in request.objects)
            case bulk.WriteRequest():
                return self._write(request)
            case bulk.CreateFolder():
                assert self.hierarchical
                self.folders.add(request.name)
                return Outcome.DONE
            case bulk.RenameFolder():
                return self._rename(request)
            case bulk.DeleteTree():
                assert self.hierarchical
                self.objects = {name: each for name, each in self.objects.items() if not name.startswith(request.name)}
                self.folders = {name for name in self.folders if not name.startswith(request.name)}
                return Outcome.DONE
            case bulk.DeleteFolder():
                return self._delete_folder(request.name)
        return super().answer(request)

    def has(self, prefix: str) -> bool:
        return any(name.startswith(prefix) for name in (*self.objects, *self.folders))

    def _delete_folder(self, folder: str) -> Outcome:
        if any(name.startswith(folder) and name != folder for name in (*self.objects, *self.folders)):
            return Outcome.EXISTS
        if folder not in self.folders:
            return Outcome.GONE
        self.folders.remove(folder)
        return Outcome.DONE

    def _page(self, request: bulk.ObjectsRequest) -> bulk.ObjectsPage:
        names = sorted(name for name in self.objects if name.startswith(request.prefix) and name > request.token)
        found = tuple(
            bulk.FoundObject(name, self.objects[name][1], len(self.objects[name][0]), self.objects[name][2])
            for name in names[:PAGE]
        )
        return bulk.ObjectsPage(found, names[PAGE - 1] if len(names) > PAGE else "")

    def _delete(self, found: bulk.FoundObject) -> Outcome:
        there = self.objects.get(found.name)
        if there is None:
            return Outcome.GONE
        if there[1] != found.generation:
            return Outcome.CHANGED
        del self.objects[found.name]
        return Outcome.DONE

    def _write(self, request: bulk.WriteRequest) -> Any:
        there = self.objects.get(request.name)
        if (there[1] if there else 0) != request.generation:
            return Outcome.CHANGED
        self.put(request.name, json.dumps(request.document))
        return bulk.Written(self.generation)

    def _rename(self, request: bulk.RenameFolder) -> Outcome:
        assert self.hierarchical
        if not self.has(request.source):
            return Outcome.DONE if self.has(request.destination) else Outcome.GONE
        if self.has(request.destination):
            return Outcome.EXISTS

        def renamed(name: str) -> str:
            return request.destination + name.removeprefix(request.source) if name.startswith(request.source) else name

        self.objects = {renamed(name): each for name, each in self.objects.items()}
        self.folders = {renamed(name) for name in self.folders}
        self.folders.add(request.destination)
        return Outcome.DONE

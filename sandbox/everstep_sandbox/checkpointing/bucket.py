"""A job's folder in the bucket, as the replicator sees it: files, folders, renames."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

from everstep_sandbox.checkpointing.web import WebError, call, call_json

_OPERATION_PAUSE_SECONDS = 0.02


class JobFolder:
    """``gs://<bucket>/<job>/``; paths are relative to it. Raises WebError or OSError when the bucket refuses."""

    def __init__(self, storage_url: str, bucket: str, job: str) -> None:
        self._url = f"{storage_url}/storage/v1/b/{bucket}"
        self._upload_url = f"{storage_url}/upload/storage/v1/b/{bucket}"
        self._root = f"{job}/"

    def mount(self) -> None:
        """Sees to it that the bucket is there and, if it has folders, that the job's folder is."""
        layout = call_json("GET", f"{self._url}/storageLayout")
        if layout["hierarchicalNamespace"]["enabled"]:
            self.make_folder("")

    def read(self, path: str) -> bytes | None:
        """None when there is no such object."""
        try:
            return call("GET", f"{self._object(path)}?alt=media")
        except WebError as problem:
            if problem.status == 404:
                return None
            raise

    def write(self, path: str, data: bytes) -> None:
        query = urlencode({"uploadType": "media", "name": self._root + path})
        call("POST", f"{self._upload_url}/o?{query}", data=data)

    def delete(self, path: str) -> None:
        try:
            call("DELETE", self._object(path))
        except WebError as problem:
            if problem.status != 404:
                raise

    def rename(self, path: str, to_path: str) -> None:
        """Renames an object, replacing what has that name."""
        call("POST", f"{self._object(path)}/moveTo/o/{quote(self._root + to_path, safe='')}")

    def list(self, path: str) -> tuple[list[str], list[str]]:
        """Names of the objects and of the folders directly in a folder ("" or "a/b/")."""
        prefix = self._root + path
        query = {"prefix": prefix, "delimiter": "/", "includeFoldersAsPrefixes": "true"}
        objects: list[str] = []
        folders: list[str] = []
        while True:
            page = call_json("GET", f"{self._url}/o?{urlencode(query)}")
            objects += [item["name"][len(prefix) :] for item in page.get("items", ())]
            folders += [name[len(prefix) : -1] for name in page.get("prefixes", ())]
            if "nextPageToken" not in page:
                return objects, folders
            query["pageToken"] = page["nextPageToken"]

    def make_folder(self, path: str) -> None:
        """Makes a folder and those above it; one that is there already is fine."""
        try:
            call("POST", f"{self._url}/folders?recursive=true", document={"name": self._root + path})
        except WebError as problem:
            if problem.status != 409 or not self._exists(path):
                raise

    def claim_folder(self, path: str) -> bool:
        """Makes a folder below existing ones; False when it is there already."""
        try:
            call("POST", f"{self._url}/folders", document={"name": self._root + path})
        except WebError as problem:
            if problem.status != 409:
                raise
            return False
        return True

    def rename_folder(self, path: str, to_path: str) -> None:
        """Atomically; waits until it is done. WebError 409 when the target exists or the bucket has no folders."""
        target = quote(self._root + to_path, safe="")
        self._finished(call_json("POST", f"{self._folder(path)}/renameTo/folders/{target}"))

    def delete_folder(self, path: str) -> None:
        """With all that is in it; waits until it is done."""
        self._finished(call_json("POST", f"{self._folder(path)}/deleteRecursive"))

    def upload_tree(self, directory: Path, path: str) -> None:
        """Uploads a directory's files under the folder `path`; subdirectories of it are made even when empty."""
        self.make_folder(path)
        for source in sorted(directory.rglob("*")):
            target = path + source.relative_to(directory).as_posix()
            if source.is_dir():
                self.make_folder(target + "/")
            else:
                self.write(target, source.read_bytes())

    def download_tree(self, path: str, directory: Path) -> None:
        """Downloads a folder into `directory`, which must not exist."""
        directory.mkdir()
        objects, folders = self.list(path)
        for name in filter(None, objects):
            data = self.read(path + name)
            if data is None:
                raise FileNotFoundError(f"{self._root}{path}{name} went while it was restored.")
            (directory / name).write_bytes(data)
        for name in folders:
            self.download_tree(f"{path}{name}/", directory / name)

    def _exists(self, path: str) -> bool:
        try:
            call("GET", self._folder(path))
        except WebError:
            return False
        return True

    def _finished(self, operation: dict[str, Any]) -> None:
        identifier = operation["name"].rsplit("/", 1)[1]
        while not operation["done"]:
            time.sleep(_OPERATION_PAUSE_SECONDS)
            operation = call_json("GET", f"{self._url}/operations/{identifier}")
        if "error" in operation:
            raise OSError(f"{operation['name']}: {operation['error']}")

    def _object(self, path: str) -> str:
        return f"{self._url}/o/{quote(self._root + path, safe='')}"

    def _folder(self, path: str) -> str:
        return f"{self._url}/folders/{quote(self._root + path, safe='')}"

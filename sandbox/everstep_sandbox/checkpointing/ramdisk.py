"""A node's RAM disk as the replicator handles it: what is kept, linked, copied and cleared."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path

from everstep_sandbox.checkpointing import names
from everstep_sandbox.checkpointing.names import Member


class RamDisk:
    """The directory that the training pod sees as its mount, and `repl/<i>`, where peers' ones appear."""

    def __init__(self, node_directory: Path) -> None:
        self.client = node_directory / "ramdisk" / "local" / "client"
        self._peers = node_directory / "ramdisk" / "repl"

    def clean(self) -> None:
        """What the replicator does on accepting a config: only metas, data and the two input files stay."""
        kept = {names.CONFIG, names.JAX_INIT_INFO}
        for path in self.client.iterdir():
            if path.name not in kept and path.suffix not in (".meta", ".data"):
                remove(path)

    def metas(self, job: str) -> dict[Member, str]:
        """Each meta of the job and the hash in it, copies of peers' ones included."""
        found = {}
        for path in self.client.iterdir():
            member = names.parse(path.name)
            if member is not None and member.kind == "meta" and member.job == job:
                with contextlib.suppress(FileNotFoundError):
                    found[member] = path.read_text().strip()
        return found

    def data(self) -> set[str]:
        """Hashes whose data is here."""
        matches = (names.DATA.fullmatch(path.name) for path in self.client.iterdir())
        return {match.group(1) for match in matches if match is not None}

    def write_meta(self, member: Member, digest: str) -> None:
        self.write(member.name, digest)

    def write(self, name: str, text: str) -> None:
        """Appears whole."""
        aside = self.client / f"{name}.tmp"
        aside.write_text(text)
        aside.rename(self.client / name)

    def take(self, source: Path, digest: str) -> None:
        """Copies data from elsewhere; it appears whole under its name. Does nothing when it is here."""
        target = self.client / names.data_name(digest)
        if target.exists():
            return
        aside = target.with_name(target.name + ".tmp")
        remove(aside)
        copy(source, aside)
        aside.rename(target)

    def link(self, member: Member, digest: str | None) -> None:
        """Makes the `.restore` marker: a link to the data, or an empty file for "no checkpoint"."""
        marker = self.client / member.name
        marker.unlink(missing_ok=True)
        if digest is None:
            marker.touch()
        else:
            marker.symlink_to(names.data_name(digest))

    def mount_peers(self, exports: Iterable[str]) -> list[Path]:
        """Links `repl/<i>` to the peers' disks; returns the links."""
        remove(self._peers)
        self._peers.mkdir(parents=True)
        links = []
        for number, export in enumerate(exports):
            link = self._peers / str(number)
            link.symlink_to(export)
            links.append(link)
        return links

    def collect_garbage(self, job: str, keep_steps: Collection[int], *, only_node: int | None = None) -> None:
        """Keeps the job's metas of just these steps (of one node only, if given) and the data that they name.

        All other metas and data go, newer steps and other jobs' checkpoints too.
        """
        kept = {
            member.name: digest
            for member, digest in self.metas(job).items()
            if member.step in keep_steps and only_node in (None, member.node)
        }
        kept_names = {*kept, *(names.data_name(digest) for digest in kept.values())}
        for path in list(self.client.iterdir()):
            if path.suffix in (".meta", ".data") and path.name not in kept_names:
                remove(path)


def hashes_by_place(metas: Mapping[Member, str]) -> dict[str, str]:
    """For messages: meta names and their hashes."""
    return {member.name: digest for member, digest in metas.items()}


def copy(source: Path, target: Path) -> None:
    """A file or a whole directory."""
    if source.is_dir():
        shutil.copytree(source, target)
    else:
        shutil.copyfile(source, target)


def remove(path: Path) -> None:
    """A file, link or whole directory; what is gone already is fine."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)

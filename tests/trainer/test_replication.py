from __future__ import annotations

from dataclasses import dataclass

import pytest

from everstep_trainer.replication import differing_column


@dataclass(frozen=True)
class Device:
    id: int
    process_index: int


@dataclass(frozen=True)
class Placement:
    """What a sharding says, without JAX: which part each process's device holds."""

    parts: tuple[str, ...]

    @property
    def device_set(self) -> set[Device]:
        return set(self.devices_indices_map(()))

    def devices_indices_map(self, shape: tuple[int, ...]) -> dict[Device, str]:
        return {Device(process, process): part for process, part in enumerate(self.parts)}


@pytest.mark.parametrize(
    ("parts", "column"),
    [
        pytest.param(("a", "b", "a", "b"), None, id="replicated over slices, sharded within"),
        pytest.param(("a", "a", "a", "a"), None, id="replicated everywhere"),
        pytest.param(("a", "b", "c", "d"), [0, 2], id="sharded over all"),
        pytest.param(("a", "a", "b", "b"), [0, 2], id="sharded over slices"),
        pytest.param(("a", "b", "a", "c"), [1, 3], id="one column differs"),
        pytest.param(("a",), None, id="local to a process"),
    ],
)
def test_nodes_of_a_column_must_hold_equal_shards(parts: tuple[str, ...], column: list[int] | None) -> None:
    assert differing_column(Placement(parts), (8,), 2, [0, 1, 2, 3]) == column


def test_processes_are_mapped_to_ranks() -> None:
    swapped = Placement(("a", "a", "b", "b"))
    assert differing_column(swapped, (8,), 2, [0, 1, 2, 3]) is not None
    assert differing_column(swapped, (8,), 2, [0, 2, 1, 3]) is None

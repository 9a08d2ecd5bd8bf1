from __future__ import annotations

import pytest

from everstep.checkpoints.completeness import Rank, Shape, best_step, infer_missing, validate
from everstep.checkpoints.names import data_name

A, B, C, D = ("D" + letter * 64 for letter in "abcd")


def data(*digests: str) -> set[str]:
    return {data_name(digest) for digest in digests}


@pytest.mark.parametrize(
    ("shape", "metas", "present", "valid"),
    [
        pytest.param(Shape(2), {(0, 0): A, (1, 0): B}, data(A, B), True, id="all there"),
        pytest.param(Shape(2), {(0, 0): A, (1, 0): A}, data(A), True, id="one data for two nodes"),
        pytest.param(Shape(2), {(0, 0): A}, data(A), False, id="meta missing"),
        pytest.param(Shape(2), {(0, 0): A, (1, 0): B}, data(A), False, id="data missing"),
        pytest.param(Shape(1, 2), {(0, 0): A, (0, 1): B}, data(A, B), True, id="two workers"),
        pytest.param(Shape(1, 2), {(0, 0): A}, data(A), False, id="worker missing"),
        pytest.param(Shape(4, 1, 2), {(0, 0): A, (3, 0): B}, data(A, B), True, id="both columns inferred"),
        pytest.param(Shape(4, 1, 2), {(0, 0): A, (2, 0): A}, data(A), False, id="a column unknown"),
        pytest.param(
            Shape(4, 1, 2),
            {(0, 0): A, (2, 0): C, (1, 0): B, (3, 0): B},
            data(A, B, C),
            True,
            id="conflicting column with all metas",
        ),
        pytest.param(
            Shape(6, 1, 3),
            {(0, 0): A, (2, 0): C, (1, 0): B},
            data(A, B, C),
            False,
            id="conflicting column is not inferred",
        ),
        pytest.param(Shape(3, 1, 2), {(0, 0): A, (1, 0): A}, data(A), False, id="not divisible, nothing inferred"),
        pytest.param(Shape(3, 1, 2), {(n, 0): A for n in range(3)}, data(A), True, id="not divisible, all there"),
        pytest.param(Shape(2, 1, 2), {(1, 0): A, (7, 0): B}, data(A), True, id="ranks beyond the shape do not count"),
        pytest.param(Shape(2, 2, 2), {(0, 0): A, (1, 1): B}, data(A, B), True, id="columns of each worker"),
    ],
)
def test_the_replicators_rule(shape: Shape, metas: dict[Rank, str], present: set[str], valid: bool) -> None:
    validity = validate(5, metas, present, shape)
    assert validity.valid is valid
    assert bool(validity.reasons) is not valid


def test_a_bigger_job_would_not_restore_what_a_smaller_one_saved() -> None:
    metas = {(0, 0): A, (1, 0): B}
    assert validate(5, metas, data(A, B), Shape(2)).valid
    assert not validate(5, metas, data(A, B), Shape(4)).valid
    assert validate(5, metas, data(A, B), Shape(4, 1, 2)).valid


def test_step_zero_is_never_restored() -> None:
    assert not validate(0, {(0, 0): A}, data(A), Shape(1)).valid


def test_the_grid_has_nodes_over_parallelism_columns() -> None:
    known, fatal, notes = infer_missing({(0, 0): A, (4, 0): B, (2, 0): C}, Shape(6, 1, 2))
    assert known == {(0, 0): A, (3, 0): A, (1, 0): B, (4, 0): B, (2, 0): C, (5, 0): C}
    assert (fatal, notes) == ([], [])


def test_the_highest_valid_step_wins() -> None:
    steps: dict[int, dict[Rank, str]] = {9: {(0, 0): A}, 100: {(0, 0): B}, 101: {(0, 0): C}, 0: {(0, 0): A}}
    best, judged = best_step(steps, data(A, B), Shape(1))
    assert best is not None
    assert best.step == 100
    assert [validity.step for validity in judged] == [101, 100]


def test_no_step_is_valid() -> None:
    best, judged = best_step({0: {(0, 0): A}}, data(A), Shape(1))
    assert best is None
    assert judged[0].reasons == ("step 0 is never restored",)


@pytest.mark.parametrize("shape", [(0, 1, None), (1, 0, None), (1, 1, 0)])
def test_impossible_shapes_are_refused(shape: tuple[int, int, int | None]) -> None:
    with pytest.raises(ValueError, match="at least 1"):
        Shape(*shape)

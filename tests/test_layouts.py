"""Any axis of any rank, broadcast flags and decays, T+1 values, and values of the last state in every shape."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import oracle
import pytest

Call = Callable[..., Any]
LAYOUTS = [
    ((5,), 0),
    ((5,), -1),
    ((5, 3), 0),
    ((5, 3), 1),
    ((5, 3), -1),
    ((5, 3), -2),
    ((2, 5, 3), 0),
    ((2, 5, 3), 1),
    ((2, 5, 3), -1),
    ((2, 3, 5, 2), 2),
    ((2, 3, 5, 2), -4),
    ((2, 1, 3, 5, 1), 3),
    ((1, 63, 1), 1),
]


@pytest.mark.parametrize("source", oracle.SOURCES)
@pytest.mark.parametrize(("shape", "axis"), LAYOUTS, ids=str)
def test_any_axis_of_any_rank(gae: Call, shape: tuple[int, ...], axis: int, source: str) -> None:
    problem = oracle.gae_problem(len(shape), shape, axis, source=source) | {"axis": axis}
    advantages, returns = oracle.gae(**problem)
    result = gae(**problem)
    oracle.assert_close(result.advantages, advantages)
    oracle.assert_close(result.returns, returns)


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize(("shape", "axis"), LAYOUTS, ids=str)
def test_any_axis_of_any_rank_linear_recurrence(
    linear_recurrence: Call, shape: tuple[int, ...], axis: int, reverse: bool
) -> None:
    problem = oracle.recurrence_problem(len(shape), shape, axis) | {"axis": axis, "reverse": reverse}
    oracle.assert_close(linear_recurrence(**problem), oracle.linear_recurrence(**problem))


def broadcast_shapes(shape: tuple[int, ...]) -> list[tuple[int, ...]]:
    """Every way to put size-1 axes into `shape`."""
    shapes: list[tuple[int, ...]] = [()]
    for n in shape:
        shapes = [(*s, m) for s in shapes for m in (n, 1)]
    return shapes


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_flags_masks_and_decays_broadcast_over_size_1_axes(gae: Call, axis: int) -> None:
    # Each operand gets a different one of the eight shapes, so that no two agree; two rounds.
    shape = (5, 4, 3)
    shapes = broadcast_shapes(shape)
    rng = np.random.default_rng(axis)
    for shift in (0, 3):
        terminated, truncated, mask, gamma, lambda_ = (shapes[(shift + i) % 8] for i in range(5))
        problem = oracle.gae_problem(shift, shape, axis, flags="neither")
        problem |= {
            "terminated": rng.random(terminated) < 0.3,
            "truncated": rng.random(truncated) < 0.3,
            "mask": rng.random(mask) < 0.8,
            "gamma": rng.random(gamma).astype(np.float32),
            "lambda_": rng.random(lambda_).astype(np.float32),
            "final_values": rng.standard_normal(shape).astype(np.float32),
        }
        advantages, returns = oracle.gae(**problem)
        result = gae(**problem)
        oracle.assert_close(result.advantages, advantages)
        oracle.assert_close(result.returns, returns)


def test_flags_of_an_environment_shared_by_its_agents(gae: Call) -> None:
    # [T, B, 1] against [T, B, A].
    problem = oracle.gae_problem(1, (17, 3, 2), flags="neither")
    rng = np.random.default_rng(1)
    problem |= oracle.random_flags(rng, (17, 3, 1), "both") | {
        "final_values": rng.standard_normal((17, 3, 2)).astype(np.float32)
    }
    shared = gae(**problem)
    full = gae(**problem | {key: np.repeat(problem[key], 2, axis=2) for key in ("terminated", "truncated")})
    np.testing.assert_array_equal(shared.advantages, full.advantages)
    oracle.assert_close(shared.advantages, oracle.gae(**problem)[0])


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_coefficients_and_resets_broadcast(linear_recurrence: Call, axis: int) -> None:
    shape = (5, 4, 3)
    rng = np.random.default_rng(axis)
    for a_shape, reset_shape in [((1, 1, 1), (5, 4, 1)), ((5, 1, 3), (1, 4, 3)), ((1, 4, 1), (5, 1, 1))]:
        problem = oracle.recurrence_problem(2, shape, axis)
        problem |= {"a": rng.uniform(-1, 1, a_shape).astype(np.float32), "reset": rng.random(reset_shape) < 0.3}
        oracle.assert_close(linear_recurrence(**problem), oracle.linear_recurrence(**problem))


@pytest.mark.parametrize(("shape", "axis"), [((5,), 0), ((5, 3), 0), ((2, 5, 3), 1)], ids=str)
@pytest.mark.parametrize("last", [0, 0.0, -1.5, np.array(-1.5, np.float32), np.float32(2.5)], ids=repr)
def test_last_values_as_one_number(gae: Call, shape: tuple[int, ...], axis: int, last: Any) -> None:
    problem = oracle.gae_problem(3, shape, axis) | {"last_values": last}
    advantages, _ = oracle.gae(**problem)
    result = gae(**problem)
    oracle.assert_close(result.advantages, advantages, dtype="float32")


@pytest.mark.parametrize("axis", [0, 1])
def test_one_more_row_of_values_stands_for_last_values(gae: Call, axis: int) -> None:
    longer = oracle.gae_problem(4, (17, 5), axis, source="longer_values")
    values = longer["values"]
    steps = values.shape[axis] - 1
    split = longer | {"values": np.take(values, range(steps), axis), "last_values": np.take(values, steps, axis)}
    first, second = gae(**longer), gae(**split)
    np.testing.assert_array_equal(first.advantages, second.advantages)
    np.testing.assert_array_equal(first.returns, second.returns)
    assert first.returns.shape == (17, 5)


def test_a_step_count_that_equals_a_batch_size_is_not_mistaken(gae: Call) -> None:
    # [5, 6] with T = 5: values [6, 6] are T+1 rows; the batch axis has as many.
    for axis, shape in [(0, (5, 6)), (1, (6, 5))]:
        problem = oracle.gae_problem(5, shape, axis, source="longer_values")
        assert problem["values"].shape == (6, 6)
        oracle.assert_close(gae(**problem).advantages, oracle.gae(**problem)[0])


def test_time_major_equals_batch_major(gae: Call, linear_recurrence: Call) -> None:
    problem = oracle.gae_problem(6, (63, 4))
    turned = {key: x.T if x.ndim == 2 else x for key, x in problem.items()} | {"axis": 1}
    oracle.assert_close(gae(**turned).advantages, np.asarray(gae(**problem).advantages).T, 1e-6)
    recurrence = oracle.recurrence_problem(6, (63, 4))
    turned = {key: x.T if x.ndim == 2 else x for key, x in recurrence.items()} | {"axis": 1}
    oracle.assert_close(linear_recurrence(**turned), np.asarray(linear_recurrence(**recurrence)).T, 1e-6)

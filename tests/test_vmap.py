"""vmap over any axis of any operand is a loop over calls; the loop is the oracle's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import oracle
import pytest
from conftest import to_jax

Call = Callable[..., Any]
B, T, N = 3, 5, 2
Axes = dict[str, int | None]


def stack(problems: list[dict[str, Any]], axes: Axes) -> dict[str, Any]:
    """Operands with a batch axis where `axes` says, the first problem's own where it says None."""
    return {
        key: problems[0][key] if axis is None else np.stack([p[key] for p in problems], axis)
        for key, axis in axes.items()
    }


def each(problems: list[dict[str, Any]], axes: Axes) -> list[dict[str, Any]]:
    return [{key: problems[0][key] if axes[key] is None else p[key] for key in axes} for p in problems]


def full_problem(seed: int, axis: int = 0) -> dict[str, Any]:
    """A problem with every array operand given, and final values at every step (flags of another problem may come)."""
    rng = np.random.default_rng(seed)
    shape = (T, N) if axis == 0 else (N, T)
    problem = oracle.gae_problem(seed, shape, axis)
    problem.pop("axis", None)
    per_step = (T, 1) if axis == 0 else (1, T)
    return problem | {
        "final_values": rng.standard_normal(shape).astype(np.float32),
        "mask": rng.random(shape) > 0.2,
        "gamma": np.array(rng.random(), np.float32),
        "lambda_": rng.random(per_step).astype(np.float32),
    }


def check_gae(gae: Call, problems: list[dict[str, Any]], axes: Axes, **static: Any) -> None:
    def one(arrays: dict[str, Any]) -> Any:
        return gae(**arrays, **static)

    result = jax.vmap(one, in_axes=(axes,))(to_jax(stack(problems, axes)))
    for i, problem in enumerate(each(problems, axes)):
        for got, expected in zip(result, oracle.gae(**problem, **static), strict=True):
            oracle.assert_close(got[i], expected)


OPERANDS = list(full_problem(0))


@pytest.mark.parametrize("batched", OPERANDS)
def test_one_operand_batched(gae: Call, batched: str) -> None:
    problems = [full_problem(seed) for seed in range(B)]
    ndim = problems[0][batched].ndim
    for axis in range(-1, ndim):  # the last axis as -1 too
        check_gae(gae, problems, dict.fromkeys(OPERANDS) | {batched: axis})


@pytest.mark.parametrize("unbatched", OPERANDS)
def test_all_but_one_operand_batched(gae: Call, unbatched: str) -> None:
    check_gae(gae, [full_problem(seed) for seed in range(B)], dict.fromkeys(OPERANDS, 0) | {unbatched: None})


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("shift", [0, 1, 2])
def test_operands_batched_at_different_axes(gae: Call, axis: int, shift: int) -> None:
    problems = [full_problem(seed, axis) for seed in range(B)]
    axes: Axes = {key: (i + shift) % (problems[0][key].ndim + 1) for i, key in enumerate(OPERANDS)}
    check_gae(gae, problems, axes, axis=axis)


@pytest.mark.parametrize("source", ["longer_values", "next_values"])
def test_the_other_sources(gae: Call, source: str) -> None:
    problems = [oracle.gae_problem(seed, (T, N), source=source, flags="terminated") for seed in range(B)]
    for problem in problems:
        problem.update({key: np.nan_to_num(x) for key, x in problem.items() if x.dtype == np.float32})
    keys = list(problems[0])
    check_gae(gae, problems, {key: i % 3 for i, key in enumerate(keys)})
    check_gae(gae, problems, dict.fromkeys(keys) | {"values": 1})
    check_gae(gae, problems, dict.fromkeys(keys, 2) | {"values": None})


def test_out_axes_and_negative_axis(gae: Call) -> None:
    problems = [oracle.gae_problem(seed, (N, T), 1) for seed in range(B)]
    for problem in problems:
        del problem["axis"]
    arrays = to_jax({key: np.stack([p[key] for p in problems]) for key in problems[0]})
    result = jax.vmap(lambda p: gae(**p, axis=-1), out_axes=1)(arrays)
    for i, problem in enumerate(problems):
        oracle.assert_close(result.advantages[:, i], oracle.gae(**problem, axis=1)[0])


def test_nested(gae: Call) -> None:
    # Outside over seeds, inside over environments, as a population of training runs does it.
    problems = [oracle.gae_problem(seed, (T, N)) for seed in range(B)]
    arrays = to_jax({key: np.stack([p[key] for p in problems]) for key in problems[0]})
    inner = jax.vmap(
        lambda p: gae(**p), in_axes=({key: 0 if key == "last_values" else 1 for key in arrays},), out_axes=1
    )
    result = jax.vmap(inner)(arrays)
    for i, problem in enumerate(problems):
        for got, expected in zip(result, oracle.gae(**problem), strict=True):
            oracle.assert_close(got[i], expected)


def test_a_grid_of_decays(gae: Call) -> None:
    problem = oracle.gae_problem(0, (T, N))
    arrays = to_jax(problem)
    gammas, lambdas = jnp.asarray([0.5, 0.9, 1.0]), jnp.asarray([0.0, 0.95])
    grid = jax.vmap(lambda g: jax.vmap(lambda lam: gae(**arrays, gamma=g, lambda_=lam).advantages)(lambdas))(gammas)
    for i, gamma in enumerate(gammas):
        for j, lambda_ in enumerate(lambdas):
            oracle.assert_close(grid[i, j], oracle.gae(**problem, gamma=gamma, lambda_=lambda_)[0])


def test_last_values_batched_as_one_number_each(gae: Call) -> None:
    problem = oracle.gae_problem(1, (T, N))
    del problem["last_values"]
    arrays = to_jax(problem)
    result = jax.vmap(lambda v: gae(**arrays, last_values=v))(jnp.asarray([0.0, 1.0, -2.0]))
    for i, last in enumerate([0.0, 1.0, -2.0]):
        oracle.assert_close(result.advantages[i], oracle.gae(**problem, last_values=last)[0])


@pytest.mark.parametrize("masked", [False, True])
def test_normalization_is_per_instance(gae: Call, masked: bool) -> None:
    problems = [
        oracle.gae_problem(seed, (T, N)) | {"rewards": np.float32(10**seed) * np.ones((T, N), np.float32)}
        for seed in range(B)
    ]
    if masked:
        problems = [p | {"mask": np.random.default_rng(i).random((T, N)) > 0.3} for i, p in enumerate(problems)]
    check_gae(gae, problems, dict.fromkeys(problems[0], 0), normalize=True)


def test_rank_1_becomes_time_major_or_batch_major(gae: Call) -> None:
    problem = oracle.gae_problem(2, (T, N))
    for axis in (0, 1):
        turned = {key: x.T if axis == 0 and x.ndim == 2 else x for key, x in problem.items()}
        axes = {key: 0 if axis == 0 or x.ndim == 1 else 1 for key, x in problem.items()}
        result = jax.vmap(lambda p: gae(**p), in_axes=(axes,))(to_jax(turned))
        oracle.assert_close(result.advantages, oracle.gae(**problem)[0].T)


def test_an_empty_batch(gae: Call, linear_recurrence: Call) -> None:
    result = jax.vmap(lambda r: gae(r, r, last_values=0.0))(jnp.zeros((0, T, N)))
    assert result.advantages.shape == (0, T, N)
    assert jax.vmap(lambda b: linear_recurrence(b, b))(jnp.zeros((0, T, N))).shape == (0, T, N)


def test_dtypes_survive(gae: Call) -> None:
    result = jax.vmap(lambda r: gae(r, jnp.zeros((T, N), jnp.float16), last_values=0.0))(
        jnp.ones((B, T, N), jnp.bfloat16)
    )
    assert result.advantages.dtype == jnp.float32
    result = jax.vmap(
        lambda g: gae(jnp.ones((T, N), jnp.bfloat16), jnp.zeros((T, N), jnp.bfloat16), last_values=0.0, gamma=g)
    )(jnp.ones(B, jnp.float32))
    assert result.advantages.dtype == jnp.bfloat16


RECURRENCE_AXES: list[Axes] = [
    {"a": 0, "b": 0, "initial": 0, "reset": 0},
    {"a": 1, "b": 0, "initial": 1, "reset": 2},
    {"a": 2, "b": None, "initial": None, "reset": None},
    {"a": None, "b": 1, "initial": None, "reset": None},
    {"a": None, "b": None, "initial": 0, "reset": None},
    {"a": None, "b": None, "initial": None, "reset": 2},
    {"a": None, "b": 2, "initial": 0, "reset": 0},
]


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("axes", RECURRENCE_AXES, ids=lambda axes: "-".join(map(str, axes.values())))
def test_linear_recurrence(linear_recurrence: Call, axes: Axes, reverse: bool) -> None:
    problems = [oracle.recurrence_problem(seed, (T, N)) for seed in range(B)]
    batched = to_jax(stack(problems, axes))
    y = jax.vmap(lambda p: linear_recurrence(**p, reverse=reverse), in_axes=(axes,))(batched)
    for i, problem in enumerate(each(problems, axes)):
        oracle.assert_close(y[i], oracle.linear_recurrence(**problem, reverse=reverse))


def test_linear_recurrence_with_a_broadcast_coefficient(linear_recurrence: Call) -> None:
    problems = [oracle.recurrence_problem(seed, (T, N)) for seed in range(B)]
    for i, problem in enumerate(problems):
        problem["a"] = np.full((1, 1), 0.3 * (i + 1), np.float32)
    for axes in ({"a": 0, "b": 0, "initial": None, "reset": None}, {"a": 2, "b": None, "initial": 1, "reset": 1}):
        y = jax.vmap(lambda p: linear_recurrence(**p), in_axes=(axes,))(to_jax(stack(problems, axes)))
        for i, problem in enumerate(each(problems, axes)):
            oracle.assert_close(y[i], oracle.linear_recurrence(**problem))

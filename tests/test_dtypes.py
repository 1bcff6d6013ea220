"""Which dtype comes out, what it is computed in, and how often it is rounded."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np
import oracle
import pytest

Call = Callable[..., Any]
FLOATS = ("rewards", "values", "last_values", "next_values", "final_values")
HALF_ULP = {"float16": 2.0**-11, "bfloat16": 2.0**-8}


def cast(problem: dict[str, Any], dtype: Any, names: tuple[str, ...] = FLOATS) -> dict[str, Any]:
    return {key: jnp.asarray(x).astype(dtype) if key in names else x for key, x in problem.items()}


def as_float64(problem: dict[str, Any]) -> dict[str, Any]:
    """What the low-precision inputs really hold, for the loop."""
    return {key: oracle.to_numpy(x) if hasattr(x, "dtype") else x for key, x in problem.items()}


def assert_rounded_once(actual: Any, expected: np.ndarray, dtype: str) -> None:
    """Every entry within half a unit of its own last place, plus float32's own error."""
    assert str(actual.dtype) == dtype
    error = np.abs(oracle.to_numpy(actual) - expected)
    allowed = np.abs(expected) * HALF_ULP[dtype] * 1.001 + 1e-5 * max(1.0, np.abs(expected).max())
    assert (error <= allowed).all(), f"largest excess {(error - allowed).max():.3g}"


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("source", oracle.SOURCES)
def test_16_bit_data_are_computed_in_float32_and_rounded_once(gae: Call, dtype: str, source: str) -> None:
    problem = cast(oracle.gae_problem(0, (129, 2), source=source, rate=0.05), dtype)
    advantages, returns = oracle.gae(**as_float64(problem))
    result = gae(**problem)
    assert_rounded_once(result.advantages, advantages, dtype)
    assert_rounded_once(result.returns, returns, dtype)  # the raw sum A + V, not the rounded A plus V


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_16_bit_sums_do_not_stall(gae: Call, linear_recurrence: Call, dtype: str) -> None:
    # 1000 ones: a bfloat16 carry stops growing at 256, and 0.999 would be 1 in bfloat16.
    ones, zeros = jnp.ones((1000, 1), dtype), jnp.zeros((1000, 1), dtype)
    result = gae(ones, zeros, last_values=0.0, gamma=0.999, lambda_=1.0)
    assert_rounded_once(
        result.advantages,
        oracle.gae(np.ones((1000, 1)), np.zeros((1000, 1)), last_values=0.0, gamma=0.999, lambda_=1.0)[0],
        dtype,
    )
    assert_rounded_once(linear_recurrence(ones, ones), np.arange(1.0, 1001.0)[:, None], dtype)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_gamma_stays_float32_beside_16_bit_data(gae: Call, dtype: str) -> None:
    problem = cast(oracle.gae_problem(1, (63, 3)), dtype)
    expected, _ = oracle.gae(**as_float64(problem), gamma=0.9993, lambda_=0.9987)
    for form in (float, jnp.float32, lambda x: jnp.full((63, 3), x, jnp.float32)):
        assert_rounded_once(gae(**problem, gamma=form(0.9993), lambda_=form(0.9987)).advantages, expected, dtype)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("reverse", [False, True])
def test_16_bit_linear_recurrence(linear_recurrence: Call, dtype: str, reverse: bool) -> None:
    problem = cast(oracle.recurrence_problem(2, (129, 2)), dtype, ("a", "b", "initial")) | {"reverse": reverse}
    assert_rounded_once(
        linear_recurrence(**problem), oracle.linear_recurrence(**as_float64(problem) | {"reverse": reverse}), dtype
    )


def test_16_bit_normalization(gae: Call) -> None:
    problem = cast(oracle.gae_problem(3, (63, 3)), jnp.bfloat16)
    result = gae(**problem, normalize=True)
    expected, returns = oracle.gae(**as_float64(problem), normalize=True)
    assert str(result.advantages.dtype) == "bfloat16"
    # Whether raw advantages are rounded before they are standardised is left open: two roundings at most.
    oracle.assert_close(result.advantages, expected, 2 * HALF_ULP["bfloat16"] * 1.1)
    assert_rounded_once(result.returns, returns, "bfloat16")


@pytest.mark.parametrize(
    ("rewards", "values", "expected"),
    [
        ("float32", "bfloat16", "float32"),
        ("bfloat16", "float32", "float32"),
        ("float16", "float32", "float32"),
        ("float16", "bfloat16", "float32"),
        ("int32", "bfloat16", "bfloat16"),
        ("int32", "float32", "float32"),
        ("uint8", "float16", "float16"),
        ("bool", "float32", "float32"),
        ("int32", "int32", "float32"),
        ("int8", "int16", "float32"),
    ],
)
def test_promotion_of_the_data(gae: Call, rewards: str, values: str, expected: str) -> None:
    problem = oracle.gae_problem(4, (17, 5), flags="terminated") | {"last_values": 0.5}
    problem["rewards"] = jnp.asarray(
        np.round(problem["rewards"] * 4) % 2 if rewards == "bool" else np.abs(problem["rewards"] * 4)
    ).astype(rewards)
    problem["values"] = jnp.asarray(np.abs(problem["values"] * 4)).astype(values)
    advantages, returns = oracle.gae(**as_float64(problem))
    result = gae(**problem)
    if expected in HALF_ULP:
        assert_rounded_once(result.advantages, advantages, expected)
        assert_rounded_once(result.returns, returns, expected)
    else:
        oracle.assert_close(result.advantages, advantages, dtype=expected)
        oracle.assert_close(result.returns, returns, dtype=expected)


def test_integer_rewards_give_float_returns(gae: Call) -> None:
    ones = np.ones(4, np.int32)
    result = gae(ones, np.zeros(4, np.float32), last_values=0, gamma=0.5, lambda_=1.0)
    assert result.advantages.tolist() == [1.875, 1.75, 1.5, 1.0]


def test_float64(gae: Call, linear_recurrence: Call, x64: None) -> None:
    for source in oracle.SOURCES:
        problem = oracle.gae_problem(5, (63, 3), source=source, dtype=np.float64)
        advantages, returns = oracle.gae(**problem)
        result = gae(**problem)
        oracle.assert_close(result.advantages, advantages, 1e-13, dtype="float64")
        oracle.assert_close(result.returns, returns, 1e-13, dtype="float64")
        oracle.assert_close(gae(**problem, normalize=True).advantages, oracle.gae(**problem, normalize=True)[0], 1e-12)
    recurrence = oracle.recurrence_problem(5, (63, 3), dtype=np.float64)
    oracle.assert_close(linear_recurrence(**recurrence), oracle.linear_recurrence(**recurrence), 1e-13, dtype="float64")


def test_float64_decays_of_float64_data_keep_their_digits(gae: Call, x64: None) -> None:
    problem = oracle.gae_problem(6, (63, 3), dtype=np.float64)
    for gamma in (1 / 3, np.float64(1 / 3), np.full((1, 1), 1 / 3)):
        oracle.assert_close(
            gae(**problem, gamma=gamma, lambda_=1 / 7).advantages,
            oracle.gae(**problem, gamma=gamma, lambda_=1 / 7)[0],
            1e-14,
        )


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_decays_and_flags_never_promote(gae: Call, linear_recurrence: Call, x64: None, dtype: str) -> None:
    problem = cast(oracle.gae_problem(7, (17, 5)), dtype)
    wide = {
        "gamma": jnp.full((17, 1), 0.9, jnp.float64),
        "lambda_": jnp.asarray(0.8, jnp.float64),
        "terminated": jnp.asarray(problem["terminated"], jnp.float64),
        "truncated": jnp.asarray(problem["truncated"], jnp.int64),
    }
    result = gae(**problem | wide)
    advantages, _ = oracle.gae(**as_float64(problem) | {"gamma": 0.9, "lambda_": 0.8})
    assert str(result.advantages.dtype) == str(result.returns.dtype) == dtype
    oracle.assert_close(result.advantages, advantages, 1e-6 if dtype == "float32" else HALF_ULP[dtype] * 1.01)
    for number in (0.9, np.float64(0.9), 1, np.int64(1)):
        assert str(gae(**problem, gamma=number).advantages.dtype) == dtype
    recurrence = cast(oracle.recurrence_problem(7, (17, 5)), dtype, ("a", "b", "initial"))
    recurrence["reset"] = jnp.asarray(recurrence["reset"], jnp.float64)
    assert str(linear_recurrence(**recurrence).dtype) == dtype


def test_integers_stay_float32_when_float64_is_on(gae: Call, x64: None) -> None:
    result = gae(jnp.ones((5, 3), jnp.int64), jnp.ones((5, 3), jnp.int32), last_values=1)
    assert str(result.advantages.dtype) == "float32"


def test_float32_beside_float64_is_float64(gae: Call, linear_recurrence: Call, x64: None) -> None:
    problem = oracle.gae_problem(8, (17, 5), dtype=np.float32)
    problem["values"] = np.random.default_rng(8).standard_normal((17, 5))
    oracle.assert_close(gae(**problem).advantages, oracle.gae(**problem)[0], 1e-13, dtype="float64")
    recurrence = oracle.recurrence_problem(8, (17, 5))
    recurrence["b"] = recurrence["b"].astype(np.float64)
    oracle.assert_close(linear_recurrence(**recurrence), oracle.linear_recurrence(**recurrence), 1e-13, dtype="float64")


def test_results_are_not_weakly_typed(gae: Call, linear_recurrence: Call) -> None:
    ones = jnp.broadcast_to(1.0, (5, 3))
    result = gae(ones, ones, last_values=1.0)
    assert not result.advantages.weak_type
    assert not result.returns.weak_type
    assert not linear_recurrence(ones, ones).weak_type

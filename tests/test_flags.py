"""Terminated and truncated: every dtype, broadcast forms elsewhere (test_layouts), and what each one means."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np
import oracle
import pytest

Call = Callable[..., Any]
# Values that are true in each dtype; a narrowing to one bit, to one byte or to an integer would lose some of them.
TRUE_VALUES = {
    "bool": [True],
    "uint8": [1, 2, 128, 255],
    "int8": [1, -1, -128],
    "int16": [1, 256, -32768],
    "int32": [1, -1, 256, 1 << 30],
    "uint32": [1, 1 << 31],
    "float32": [1.0, 0.5, -1.0, 1e-6, 256.0, np.inf],
    "float16": [1.0, 0.5, -0.25],
    "bfloat16": [1.0, 0.5, -1.0],
}


def in_dtype(flags: np.ndarray, dtype: str, seed: int = 0) -> Any:
    """The same flags in another dtype, every true entry one of the values that count as true."""
    rng = np.random.default_rng(seed)
    true = np.resize(np.array(TRUE_VALUES[dtype], np.float64), flags.size)
    rng.shuffle(true)
    return jnp.asarray(np.where(flags, true.reshape(flags.shape), 0.0).astype(jnp.dtype(dtype)))


@pytest.mark.parametrize("dtype", TRUE_VALUES)
def test_any_dtype_and_nonzero_is_true(gae: Call, linear_recurrence: Call, dtype: str) -> None:
    problem = oracle.gae_problem(0, (17, 5))
    expected = gae(**problem)
    oracle.assert_close(expected.advantages, oracle.gae(**problem)[0])
    converted = {name: in_dtype(problem[name], dtype) for name in ("terminated", "truncated")}
    got = gae(**problem | converted)
    np.testing.assert_array_equal(got.advantages, expected.advantages)
    np.testing.assert_array_equal(got.returns, expected.returns)
    recurrence = oracle.recurrence_problem(0, (17, 5))
    np.testing.assert_array_equal(
        linear_recurrence(**recurrence | {"reset": in_dtype(recurrence["reset"], dtype)}),
        linear_recurrence(**recurrence),
    )


def test_the_two_flags_may_have_different_dtypes(gae: Call) -> None:
    problem = oracle.gae_problem(1, (17, 5))
    mixed = problem | {
        "terminated": in_dtype(problem["terminated"], "float32"),
        "truncated": in_dtype(problem["truncated"], "uint8"),
    }
    np.testing.assert_array_equal(gae(**mixed).advantages, gae(**problem).advantages)


def test_negative_zero_is_false(gae: Call) -> None:
    problem = oracle.gae_problem(2, (5, 3), flags="neither")
    flags = np.full((5, 3), -0.0, np.float32)
    np.testing.assert_array_equal(gae(**problem, terminated=flags).advantages, gae(**problem).advantages)


def test_none_means_never(gae: Call, linear_recurrence: Call) -> None:
    problem = oracle.gae_problem(3, (17, 5), flags="neither")
    plain = gae(**problem)
    never = np.zeros((17, 5), bool)
    garbage = np.full((17, 5), np.nan, np.float32)
    for flags in (
        {"terminated": None, "truncated": None},
        {"terminated": never},
        {"terminated": np.zeros((1, 1), np.int32)},
        {"truncated": never, "final_values": garbage},
    ):
        np.testing.assert_array_equal(gae(**problem, **flags).advantages, plain.advantages)
    recurrence = oracle.recurrence_problem(3, (17, 5))
    del recurrence["reset"]
    np.testing.assert_array_equal(linear_recurrence(**recurrence, reset=never), linear_recurrence(**recurrence))


def test_flags_are_the_third_and_fourth_positional_arguments(gae: Call) -> None:
    problem = oracle.gae_problem(4, (17, 5))
    positional = [problem.pop(name) for name in ("rewards", "values", "terminated", "truncated")]
    expected, _ = oracle.gae(*positional, **problem)
    oracle.assert_close(gae(*positional, **problem).advantages, expected)


@pytest.mark.parametrize("source", oracle.SOURCES)
def test_both_flags_are_a_termination(gae: Call, source: str) -> None:
    problem = oracle.gae_problem(5, (17, 5), source=source, flags="terminated")
    both = problem | {"truncated": problem["terminated"]}
    if source != "next_values":
        both["final_values"] = np.full((17, 5), np.nan, np.float32)
    np.testing.assert_array_equal(gae(**both).advantages, gae(**problem).advantages)


@pytest.mark.parametrize("flag", ["terminated", "truncated"])
def test_a_flag_on_every_step_leaves_the_errors(gae: Call, flag: str) -> None:
    problem = oracle.gae_problem(6, (17, 5), flags="neither")
    rewards, values = problem["rewards"], problem["values"]
    final = np.random.default_rng(6).standard_normal((17, 5)).astype(np.float32)
    flags = {flag: np.ones((17, 5), bool)} | ({"final_values": final} if flag == "truncated" else {})
    expected = rewards - values + (0.99 * final if flag == "truncated" else 0)
    oracle.assert_close(gae(**problem, **flags).advantages, expected, 1e-6)


def test_truncation_reads_next_values_where_those_were_given(gae: Call) -> None:
    # With next values for every step, a truncation only cuts the trace; V(t) itself is read as it is everywhere.
    problem = oracle.gae_problem(7, (17, 5), source="next_values", flags="truncated")
    cut = gae(**problem)
    oracle.assert_close(cut.advantages, oracle.gae(**problem)[0])
    uncut = gae(**{key: x for key, x in problem.items() if key != "truncated"})
    step = np.argwhere(problem["truncated"])[0]
    delta = (
        problem["rewards"][tuple(step)] + 0.99 * problem["next_values"][tuple(step)] - problem["values"][tuple(step)]
    )
    np.testing.assert_allclose(cut.advantages[tuple(step)], delta, atol=1e-6)
    assert not np.allclose(cut.advantages, uncut.advantages)

"""With and without jit, and how often anything is traced or compiled."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import chex
import jax
import jax.numpy as jnp
import numpy as np
import oracle
import pytest
from conftest import to_jax

import rl_triton_jax

Call = Callable[..., Any]


class VariantsTest(chex.TestCase):
    @chex.variants(with_jit=True, without_jit=True, with_device=True, without_device=True)  # type: ignore[operator]
    def test_gae(self) -> None:
        problem = oracle.gae_problem(0, (17, 5))
        result = self.variant(lambda arrays: rl_triton_jax.gae(**arrays))(to_jax(problem))
        for got, expected in zip(result, oracle.gae(**problem), strict=True):
            oracle.assert_close(got, expected)

    @chex.variants(with_jit=True, without_jit=True)  # type: ignore[operator]
    def test_gae_with_everything(self) -> None:
        problem = oracle.gae_problem(1, (5, 4, 3), 1)
        axis = problem.pop("axis")
        rng = np.random.default_rng(1)
        problem |= {
            "mask": rng.random((5, 4, 1)) > 0.3,
            "gamma": rng.random((1, 4, 1)).astype(np.float32),
            "lambda_": np.array(0.9, np.float32),
        }
        result = self.variant(lambda arrays: rl_triton_jax.gae(**arrays, axis=axis, normalize=True))(to_jax(problem))
        for got, expected in zip(result, oracle.gae(**problem, axis=axis, normalize=True), strict=True):
            oracle.assert_close(got, expected)

    @chex.variants(with_jit=True, without_jit=True)  # type: ignore[operator]
    def test_without_returns(self) -> None:
        problem = oracle.gae_problem(2, (17, 5))
        result = self.variant(lambda arrays: rl_triton_jax.gae(**arrays, with_returns=False))(to_jax(problem))
        assert result.returns is None
        oracle.assert_close(result.advantages, oracle.gae(**problem)[0])

    @chex.variants(with_jit=True, without_jit=True)  # type: ignore[operator]
    def test_linear_recurrence(self) -> None:
        problem = oracle.recurrence_problem(3, (17, 5))
        y = self.variant(lambda arrays: rl_triton_jax.linear_recurrence(**arrays, reverse=True))(to_jax(problem))
        oracle.assert_close(y, oracle.linear_recurrence(**problem, reverse=True))


def test_jit_and_eager_give_the_same_numbers(gae: Call) -> None:
    problem = to_jax(oracle.gae_problem(4, (17, 5)))
    for eager, jitted in zip(gae(**problem), jax.jit(lambda p: gae(**p))(problem), strict=True):
        oracle.assert_close(jitted, eager, 1e-6)


@pytest.mark.parametrize("form", ["number", "0-d", "[T,1]"])
def test_new_decays_do_not_retrace(gae: Call, form: str) -> None:
    problem = oracle.gae_problem(5, (17, 5))
    arrays = to_jax(problem)
    chex.clear_trace_counter()

    @jax.jit
    @chex.assert_max_traces(n=1)
    def call(gamma: Any, lambda_: Any) -> Any:
        return gae(**arrays, gamma=gamma, lambda_=lambda_)

    make = {"number": float, "0-d": jnp.float32, "[T,1]": lambda x: jnp.full((17, 1), x, jnp.float32)}[form]
    for gamma, lambda_ in [(0.9, 0.8), (0.5, 1.0), (0.0, 0.0), (1.0, 0.3)]:
        oracle.assert_close(
            call(make(gamma), make(lambda_)).advantages, oracle.gae(**problem, gamma=gamma, lambda_=lambda_)[0]
        )


COMPILATIONS: list[str] = []


@pytest.fixture(scope="module")
def compilations() -> list[str]:
    """Names of XLA compilations as they happen."""

    def listen(event: str, duration_secs: float, **kwargs: str | int) -> None:
        del duration_secs, kwargs
        if event.endswith("backend_compile_duration"):
            COMPILATIONS.append(event)

    jax.monitoring.register_event_duration_secs_listener(listen)
    return COMPILATIONS


def test_new_decays_do_not_recompile_eager_calls(gae: Call, compilations: list[str]) -> None:
    problem = to_jax(oracle.gae_problem(6, (19, 3)))  # a shape no other test has compiled
    gae(**problem, gamma=0.9, lambda_=0.8)
    assert compilations  # the listener works: a first call compiles something
    compilations.clear()
    for gamma, lambda_ in [(0.91, 0.81), (0.5, 1.0), (0.0, 0.0)]:
        gae(**problem, gamma=gamma, lambda_=lambda_)
    gamma = jnp.float32(0.7)
    compilations.clear()
    gae(**problem, gamma=0.123, lambda_=0.456)
    assert not compilations
    gae(**problem, gamma=gamma, lambda_=gamma)
    compilations.clear()
    gae(**problem, gamma=gamma, lambda_=gamma)
    assert not compilations


def test_repeated_eager_calls_do_not_recompile(gae: Call, linear_recurrence: Call, compilations: list[str]) -> None:
    problem = to_jax(oracle.gae_problem(7, (17, 3)))
    recurrence = to_jax(oracle.recurrence_problem(7, (17, 3)))

    def calls() -> None:
        gae(**problem)
        gae(**problem, normalize=True, with_returns=False)
        linear_recurrence(**recurrence, reverse=True)

    calls()
    compilations.clear()
    calls()
    assert not compilations


@pytest.mark.parametrize("last", ["number", "0-d"])
def test_last_values_may_be_traced(gae: Call, last: str) -> None:
    problem = oracle.gae_problem(8, (17, 5))
    del problem["last_values"]
    arrays = to_jax(problem)
    value = 0.7 if last == "number" else jnp.float32(0.7)
    result = jax.jit(lambda v: gae(**arrays, last_values=v))(value)
    oracle.assert_close(result.advantages, oracle.gae(**problem, last_values=0.7)[0], dtype="float32")


def test_inside_scan(gae: Call) -> None:
    problems = [oracle.gae_problem(seed, (17, 3)) for seed in range(4)]
    stacked = to_jax({key: np.stack([p[key] for p in problems]) for key in problems[0]})
    _, result = jax.lax.scan(lambda carry, p: (carry + 1, gae(**p)), 0, stacked)
    for i, problem in enumerate(problems):
        for got, expected in zip(result, oracle.gae(**problem), strict=True):
            oracle.assert_close(got[i], expected)


def test_inside_while_and_cond(gae: Call) -> None:
    problem = oracle.gae_problem(9, (17, 3))
    arrays = to_jax(problem)
    rewards = arrays.pop("rewards")
    expected = problem["rewards"]
    for _ in range(2):
        expected = oracle.gae(**problem | {"rewards": expected})[0]
    got = jax.jit(lambda r: jax.lax.fori_loop(0, 2, lambda i, x: gae(x, **arrays).advantages, r))(rewards)
    oracle.assert_close(got, expected)
    branch = jax.jit(lambda take, r: jax.lax.cond(take, lambda x: gae(x, **arrays).advantages, lambda x: x, r))
    oracle.assert_close(branch(True, rewards), oracle.gae(**problem)[0])
    np.testing.assert_array_equal(branch(False, rewards), rewards)

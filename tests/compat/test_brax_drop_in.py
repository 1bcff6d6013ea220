"""Brax's `compute_gae`: its numbers on random inputs, beside Brax itself where that is installed, always beside a loop."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import oracle
import pytest

from rl_triton_jax.compat.brax import compute_gae

NAMES = ("truncation", "termination", "rewards", "values", "bootstrap_value")


def loop(
    truncation: Any, termination: Any, rewards: Any, values: Any, bootstrap_value: Any, lambda_: float, discount: float
) -> tuple[np.ndarray, np.ndarray]:
    """Backwards over one column after another, flags by `if`."""
    steps, columns = rewards.shape[0], rewards[0].size
    cut, ended = (np.broadcast_to(x, rewards.shape).reshape(steps, columns) != 0 for x in (truncation, termination))
    r, v = rewards.reshape(steps, columns), values.reshape(steps, columns)
    targets, advantages = np.zeros((2, steps, columns))
    for n in range(columns):
        value = target = bootstrap_value.reshape(columns)[n]
        carry = 0.0
        for t in reversed(range(steps)):
            if cut[t, n]:
                carry = 0.0
            elif ended[t, n]:
                carry = advantages[t, n] = r[t, n] - v[t, n]
            else:
                carry = r[t, n] + discount * value - v[t, n] + discount * lambda_ * carry
                advantages[t, n] = r[t, n] + discount * target - v[t, n]
            value, target = v[t, n], carry + v[t, n]
            targets[t, n] = target
    return targets.reshape(rewards.shape), advantages.reshape(rewards.shape)


def problem(shape: tuple[int, ...], flags: str, seed: int, flag_shape: tuple[int, ...] | None = None) -> list[Any]:
    rng = np.random.default_rng(seed)
    of = shape if flag_shape is None else flag_shape
    drawn = [(rng.random(of) < 0.2).astype(np.float32) for _ in range(2)]
    if flags in ("neither", "terminated"):
        drawn[0][:] = 0
    if flags in ("neither", "truncated"):
        drawn[1][:] = 0
    rewards, values = rng.normal(size=(2, *shape)).astype(np.float32)
    return [*drawn, rewards, values, rng.normal(size=shape[1:]).astype(np.float32)]


@pytest.mark.parametrize("flags", oracle.FLAGS)
@pytest.mark.parametrize("shape", [(20, 6), (1, 3), (33, 2, 3)])
def test_against_a_loop(shape: tuple[int, ...], flags: str) -> None:
    given = problem(shape, flags, seed=1)
    for got, right in zip(
        compute_gae(*given, lambda_=0.9, discount=0.97), loop(*given, lambda_=0.9, discount=0.97), strict=True
    ):
        oracle.assert_close(got, right)


@pytest.mark.parametrize("flags", oracle.FLAGS)
def test_against_brax(flags: str) -> None:
    losses = pytest.importorskip("brax.training.agents.ppo.losses")
    given = problem((20, 256), flags, seed=2)
    for got, right in zip(
        compute_gae(*given, lambda_=0.95, discount=0.99),
        losses.compute_gae(*given, lambda_=0.95, discount=0.99),
        strict=True,
    ):
        oracle.assert_close(got, right)
    for got, right in zip(compute_gae(*given), losses.compute_gae(*given), strict=True):
        oracle.assert_close(got, right)


def test_flags_of_several_values_at_once() -> None:
    given = problem((12, 4, 3), "both", seed=3, flag_shape=(12, 4, 1))
    for got, right in zip(compute_gae(*given, lambda_=0.9), loop(*given, lambda_=0.9, discount=0.99), strict=True):
        oracle.assert_close(got, right)


def test_no_gradient_and_traced_numbers() -> None:
    """As it is called: inside a differentiated loss, vmapped over discounts, in a scan."""
    given = [jnp.asarray(x) for x in problem((9, 5), "both", seed=4)]

    def loss(values: Any, discount: Any) -> jax.Array:
        targets, advantages = compute_gae(
            given[0], given[1], given[2], values, given[4], lambda_=0.95, discount=discount
        )
        return jnp.sum(targets * advantages) + jnp.sum(values)

    def step(total: Any, discount: Any) -> tuple[Any, Any]:
        return total + 1, jax.grad(loss, (0, 1))(given[3], discount)

    of_values, of_discount = jax.lax.scan(step, 0, jnp.asarray([0.9, 0.99]))[1]
    np.testing.assert_array_equal(of_values, np.ones((2, 9, 5)))
    np.testing.assert_array_equal(of_discount, np.zeros(2))
    several = jax.vmap(lambda discount: compute_gae(*given, lambda_=0.95, discount=discount)[0])(
        jnp.asarray([0.9, 0.99])
    )
    for got, discount in zip(several, (0.9, 0.99), strict=True):
        oracle.assert_close(got, loop(*map(np.asarray, given), lambda_=0.95, discount=discount)[0])


def test_mixed_dtypes_promote() -> None:
    """Brax raises; the field's agents with bfloat16 values meet that."""
    given = problem((9, 5), "both", seed=5)
    low = jnp.asarray(given[3], jnp.bfloat16)
    targets, advantages = compute_gae(given[0], given[1], given[2], low, given[4], lambda_=0.95)
    assert targets.dtype == advantages.dtype == jnp.float32
    given[3] = np.asarray(low, np.float32)
    oracle.assert_close(targets, loop(*given, lambda_=0.95, discount=0.99)[0])


@pytest.mark.parametrize("poison", [np.nan, np.inf])
def test_dead_places(poison: float) -> None:
    """Neither what follows a termination nor the reward of a step cut off is read."""
    given = problem((6, 1), "neither", seed=6)
    truncation, termination, rewards, values, last = given
    termination[2] = 1
    truncation[4] = 1
    clean = compute_gae(*given, lambda_=0.95)
    rewards[4] = poison
    values[5] = rewards[5] = poison
    last[:] = poison
    for got, right in zip(
        compute_gae(truncation, termination, rewards, values, last, lambda_=0.95), clean, strict=True
    ):
        np.testing.assert_array_equal(got[:5], right[:5])

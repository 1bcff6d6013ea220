"""PureJaxRL's `_calculate_gae`: a loop for each alignment of `done`."""

from __future__ import annotations

from typing import NamedTuple

import jax
import numpy as np
import oracle
import pytest

from rl_triton_jax.compat.purejaxrl import calculate_gae, calculate_gae_rnn


class Transition(NamedTuple):
    done: np.ndarray
    value: np.ndarray
    reward: np.ndarray


def trajectory(steps: int, columns: int, seed: int) -> tuple[Transition, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    value, reward = rng.normal(size=(2, steps, columns)).astype(np.float32)
    done = rng.random((steps, columns)) < 0.3
    return Transition(done, value, reward), rng.normal(size=columns).astype(np.float32), rng.random(columns) < 0.5


def loop(reward: np.ndarray, value: np.ndarray, ended: np.ndarray, last: np.ndarray) -> np.ndarray:
    advantages = np.zeros(reward.shape)
    for n in range(reward.shape[1]):
        after, carry = last[n], 0.0
        for t in reversed(range(len(reward))):
            carry = reward[t, n] - value[t, n] + (0.0 if ended[t, n] else 0.99 * after + 0.99 * 0.95 * carry)
            after = value[t, n]
            advantages[t, n] = carry
    return advantages


@pytest.mark.parametrize("shape", [(1, 1), (128, 4), (10, 7)])
def test_done_ends(shape: tuple[int, int]) -> None:
    steps, last, _ = trajectory(*shape, seed=1)
    right = loop(steps.reward, steps.value, steps.done, last)
    for call in (calculate_gae, jax.jit(calculate_gae)):
        advantages, targets = call(steps, last, 0.99, 0.95)
        oracle.assert_close(advantages, right)
        oracle.assert_close(targets, right + steps.value)


@pytest.mark.parametrize("shape", [(1, 1), (128, 4), (10, 7)])
def test_done_begins(shape: tuple[int, int]) -> None:
    steps, last, last_done = trajectory(*shape, seed=2)
    ended = np.concatenate([steps.done[1:], last_done[None]])
    right = loop(steps.reward, steps.value, ended, last)
    for call in (calculate_gae_rnn, jax.jit(calculate_gae_rnn)):
        advantages, targets = call(steps, last, last_done, 0.99, 0.95)
        oracle.assert_close(advantages, right)
        oracle.assert_close(targets, right + steps.value)


def test_over_seeds_and_discounts() -> None:
    """The way PureJaxRL is used: everything vmapped over seeds, gamma traced."""
    several = [trajectory(16, 4, seed) for seed in range(3)]
    steps, last, _ = jax.tree.map(lambda *x: np.stack(x), *several)
    gammas = np.asarray([0.99, 0.99, 0.99], np.float32)
    advantages, _ = jax.jit(jax.vmap(lambda s, v, g: calculate_gae(s, v, g, 0.95)))(steps, last, gammas)
    for got, (one, v, _) in zip(advantages, several, strict=True):
        oracle.assert_close(got, loop(one.reward, one.value, one.done, v))

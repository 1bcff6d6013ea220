"""TRFL's sequence operations: plain loops, and TRFL's own worked numbers."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import oracle
import pytest

from rl_triton_jax.compat import trfl


def loop(sequence: np.ndarray, decay: np.ndarray, initial: np.ndarray, reverse: bool, lengths: Any) -> np.ndarray:
    out = np.zeros(sequence.shape)
    for n in np.ndindex(sequence.shape[1:]):
        steps = range(len(sequence) if lengths is None else lengths[n[0]])
        y = initial[n]
        for t in reversed(steps) if reverse else steps:
            y = sequence[t][n] + decay[t][n] * y
            out[t][n] = y
    return out


@pytest.mark.parametrize("lengths", [None, [0, 3, 9, 4]])
@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("shape", [(9, 4), (9, 4, 2)])
def test_scan_discounted_sum(shape: tuple[int, ...], reverse: bool, lengths: Any) -> None:
    rng = np.random.default_rng(1)
    sequence, decay = rng.normal(size=(2, *shape)).astype(np.float32)
    initial = rng.normal(size=shape[1:]).astype(np.float32)
    right = loop(sequence, decay, initial, reverse, lengths)
    got = trfl.scan_discounted_sum(
        sequence, decay, initial, reverse, None if lengths is None else np.asarray(lengths), name="any"
    )
    oracle.assert_close(got, right)


def test_beyond_a_sequence_nothing_is_read() -> None:
    sequence = np.asarray([[1.0], [2.0], [np.nan]], np.float32)
    decay = np.asarray([[0.5], [0.5], [np.inf]], np.float32)
    got = trfl.scan_discounted_sum(sequence, decay, np.asarray([4.0], np.float32), True, np.asarray([2]))
    np.testing.assert_array_equal(got, [[3.0], [4.0], [0.0]])


def test_lengths_of_another_batch() -> None:
    with pytest.raises(ValueError, match="sequence_lengths"):
        trfl.scan_discounted_sum(np.ones((3, 2)), np.ones((3, 2)), np.ones(2), sequence_lengths=np.asarray([1, 2, 3]))


def test_back_prop() -> None:
    x = jnp.ones((3, 2))

    def total(sequence: Any, back_prop: bool) -> jax.Array:
        return trfl.scan_discounted_sum(sequence, x, x[0], True, back_prop=back_prop).sum()

    np.testing.assert_array_equal(jax.grad(total)(x, False), np.zeros((3, 2)))
    np.testing.assert_array_equal(jax.grad(total)(x, True), [[1, 1], [2, 2], [3, 3]])


@pytest.mark.parametrize("lengths", [None, [5, 2, 3]])
@pytest.mark.parametrize("per_step", [False, True])
def test_multistep_forward_view(per_step: bool, lengths: Any) -> None:
    rng = np.random.default_rng(2)
    rewards, values = rng.normal(size=(2, 5, 3)).astype(np.float32)
    continues = np.where(rng.random((5, 3)) < 0.3, 0, 0.9).astype(np.float32)
    lambda_ = rng.random((5, 3)).astype(np.float32) if per_step else 0.7
    mixed = np.broadcast_to(lambda_, (5, 3))
    right = np.zeros((5, 3))
    for n in range(3):
        g = values[-1, n]
        for t in reversed(range(5 if lengths is None else lengths[n])):
            g = rewards[t, n] + continues[t, n] * ((1 - mixed[t, n]) * values[t, n] + mixed[t, n] * g)
            right[t, n] = g
    got = trfl.multistep_forward_view(
        rewards, continues, values, lambda_, sequence_lengths=None if lengths is None else np.asarray(lengths)
    )
    oracle.assert_close(got, right)


@pytest.mark.parametrize("lengths", [None, [4]])
def test_behind_a_zero_nothing_is_read(lengths: Any) -> None:
    rewards, values = np.ones((2, 4, 1), np.float32)
    continues = np.asarray([[0.5], [0], [0.5], [0.5]], np.float32)
    rewards[2] = values[1] = np.nan
    of = None if lengths is None else np.asarray(lengths)
    got = trfl.multistep_forward_view(rewards, continues, values, 1.0, sequence_lengths=of)
    np.testing.assert_array_equal(got[:2, 0], [1.5, 1.0])

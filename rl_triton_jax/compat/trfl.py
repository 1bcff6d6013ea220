"""TRFL's sequence operations (`trfl.sequence_ops`), on JAX arrays.

    from rl_triton_jax.compat import trfl

TRFL itself needs TensorFlow 1; names, argument order, defaults and numbers are its own.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from .. import lambda_returns, linear_recurrence


def scan_discounted_sum(
    sequence: Any,
    decay: Any,
    initial_value: Any,
    reverse: bool = False,
    sequence_lengths: Any = None,
    back_prop: bool = True,
    name: str = "scan_discounted_sum",
) -> jax.Array:
    """A cumulative discounted sum along axis 0.

        y_t = sequence_t + decay_t y_{t-1},    y_{-1} = initial_value          (y_{t+1} and y_T when `reverse`)

    With `sequence_lengths` each column is that of its first so many steps alone, and 0 beyond; what lies beyond is not read.

    Args:
      sequence, decay: `[T, B, ...]`.
      initial_value: `[B, ...]`.
      reverse: from the last step to the first.
      sequence_lengths: `[B]` integers, or None for T everywhere.
      back_prop: False stops gradients.
      name: not used; TensorFlow's name scope.

    Returns:
      y, shaped as `sequence`.

    Raises:
      TypeError, ValueError: as `rl_triton_jax.linear_recurrence`; `sequence_lengths` is not `[B]`.
    """
    del name
    sequence, decay = jnp.asarray(sequence), jnp.asarray(decay)
    if not back_prop:
        sequence, decay, initial_value = jax.lax.stop_gradient((sequence, decay, initial_value))
    if sequence_lengths is None:
        return linear_recurrence(decay, sequence, initial=initial_value, reverse=reverse)
    return _within("scan_discounted_sum", sequence_lengths, decay, sequence, initial_value, None, reverse)


def _within(name: str, lengths: Any, decay: Any, sequence: Any, initial: Any, reset: Any, reverse: bool) -> jax.Array:
    """`linear_recurrence` over the first `lengths` steps of each column, 0 beyond."""
    lengths = jnp.asarray(lengths)
    if lengths.shape != sequence.shape[1:2]:
        raise ValueError(
            f"{name}: `sequence_lengths` has shape {list(lengths.shape)}, expected {list(sequence.shape[1:2])}"
        )
    inside = jnp.arange(sequence.shape[0])[:, None] < lengths
    inside = inside.reshape(inside.shape + (1,) * (sequence.ndim - 2))
    # Going back, the initial value passes unchanged over what is beyond.
    decay, sequence = jnp.where(inside, decay, 1), jnp.where(inside, sequence, 0)
    reset = None if reset is None else reset & inside
    out = linear_recurrence(decay, sequence, initial=initial, reset=reset, reverse=reverse)
    return jnp.where(inside, out, 0)


def multistep_forward_view(
    rewards: Any,
    pcontinues: Any,
    state_values: Any,
    lambda_: Any,
    back_prop: bool = True,
    sequence_lengths: Any = None,
    name: str = "multistep_forward_view_op",
) -> jax.Array:
    """lambda-returns.

        G_t = r_t + p_t [(1 - lambda_t) v_t + lambda_t G_{t+1}],    G_T = v_{T-1}

    A zero in `pcontinues` ends an episode: nothing behind it is read.

    Args:
      rewards, pcontinues, state_values: `[T, B]`; the values are those of the next states.
      lambda_: a number or `[T, B]`.
      back_prop: False stops gradients.
      sequence_lengths: `[B]`, as in `scan_discounted_sum`. The last value is then still row T-1 of `state_values`, also of
        shorter columns; that is what TRFL does.
      name: not used.

    Returns:
      G, `[T, B]`.

    Raises:
      TypeError, ValueError: as `rl_triton_jax.lambda_returns`.
    """
    del name
    if not back_prop:
        rewards, pcontinues, state_values, lambda_ = jax.lax.stop_gradient((rewards, pcontinues, state_values, lambda_))
    if sequence_lengths is None:
        return lambda_returns(
            rewards, None, pcontinues == 0, next_values=state_values, gamma=pcontinues, lambda_=lambda_
        )
    ended = jnp.asarray(pcontinues) == 0
    sequence = jnp.where(ended, rewards, rewards + pcontinues * state_values * (1 - lambda_))
    decay = pcontinues * lambda_
    return _within("multistep_forward_view", sequence_lengths, decay, sequence, state_values[-1], ended, True)

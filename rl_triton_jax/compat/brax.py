"""Brax's `compute_gae` (`brax.training.agents.ppo.losses`), which MuJoCo Playground's PPO calls too.

    from rl_triton_jax.compat.brax import compute_gae

It is not textbook GAE: what it returns as advantages takes one more step of the targets, as V-trace does, and a step at which
an episode was cut off gets the target V and the advantage 0. `rl_triton_jax.gae` gives advantages at such steps too.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from .. import vtrace


def compute_gae(
    truncation: Any,
    termination: Any,
    rewards: Any,
    values: Any,
    bootstrap_value: Any,
    lambda_: Any = 1.0,
    discount: Any = 0.99,
) -> tuple[jax.Array, jax.Array]:
    """Targets and advantages of Brax's PPO.

        delta_t = (1 - truncation_t) (r_t + gamma (1 - termination_t) V_{t+1} - V_t)
        D_t     = delta_t + gamma lambda (1 - termination_t) (1 - truncation_t) D_{t+1},     D_T = 0
        vs_t    = V_t + D_t
        A_t     = (1 - truncation_t) (r_t + gamma (1 - termination_t) vs_{t+1} - V_t),       vs_T = V_T

    with V_T = bootstrap_value. Flags are selected by, not multiplied with: what lies in a dead place stays there. Mixed dtypes
    promote; Brax raises.

    Args:
      truncation, termination: `[T, B]`, or `[T, B, 1]` for `[T, B, A]` rewards. Any dtype, non-zero is true.
      rewards: `[T, B, ...]`.
      values: V(s_t), shaped as `rewards`.
      bootstrap_value: `[B, ...]`: V(s_T).
      lambda_, discount: numbers, possibly traced.

    Returns:
      (vs, advantages), shaped as `rewards`. No gradient flows through either.

    Raises:
      TypeError, ValueError: as `rl_triton_jax.vtrace`.
    """
    rewards, values, bootstrap_value, lambda_, discount = jax.lax.stop_gradient(
        (rewards, values, bootstrap_value, lambda_, discount)
    )
    cut = jnp.asarray(truncation) != 0
    # A step cut off is one that ends with the reward V: its delta is V - V, exactly 0, whatever the next row holds.
    rewards = jnp.where(cut, values, rewards)
    targets, advantages = vtrace(
        rewards,
        values,
        cut | (jnp.asarray(termination) != 0),
        log_rhos=jnp.zeros_like(rewards),
        last_values=bootstrap_value,
        gamma=discount,
        lambda_=lambda_,
    )
    return targets, advantages

"""Retrace and its relatives on chip; the maths is in `rl_triton_jax.estimators.off_policy`."""

import triton
import triton.language as tl

from ..combine import madd


@triton.jit
def trace(x, near, HAS: tl.constexpr):
    """The coefficient of the next action."""
    log_rhos, target_probs, behavior_probs, coefficients = near
    if HAS[8]:
        return coefficients
    else:
        if HAS[5]:
            ratio = tl.exp(log_rhos)
        elif HAS[7]:
            ratio = target_probs / behavior_probs
        else:
            ratio = target_probs
        if HAS[11]:
            ratio = tl.where(ratio > x[11], x[11], ratio)
        return x[10] * ratio


@triton.jit
def step(x, near, first, HAS: tl.constexpr):
    rewards, q_values, terminated, truncated, expected = x[0], x[1], x[2], x[3], x[4]
    delta = madd(x[9], tl.where(terminated, 0.0, expected), rewards) - q_values
    return x[9] * trace(x, near, HAS), delta, first | terminated | truncated


@triton.jit
def finish(x, near, first, y, before, HAS: tl.constexpr):
    return y + x[1], y

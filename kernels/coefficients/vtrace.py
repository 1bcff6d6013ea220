"""V-trace on chip; the maths is in `rl_triton_jax.estimators.vtrace`."""

import triton
import triton.language as tl

from ..combine import madd
from .bootstrap import next_value


@triton.jit
def clipped(ratio, threshold, GIVEN: tl.constexpr):
    """min(ratio, threshold); a NaN stays one."""
    if GIVEN:
        return tl.where(ratio > threshold, threshold, ratio)
    else:
        return ratio


@triton.jit
def parts(x, near, HAS: tl.constexpr):
    """(ratio, value of the next state)."""
    _, _, terminated, truncated, log_rhos, target, behavior, next_values, final_values, _, _, _, _, _ = x
    if HAS[4]:
        log_rho = log_rhos
    else:
        log_rho = target - behavior
    return tl.exp(log_rho), next_value(near[0], terminated, truncated, next_values, final_values, HAS[7])


@triton.jit
def step(x, near, first, HAS: tl.constexpr):
    ratio, v_next = parts(x, near, HAS)
    gamma, lambda_ = x[9], x[10]
    a = gamma * lambda_ * clipped(ratio, x[12], HAS[12])
    b = clipped(ratio, x[11], HAS[11]) * (madd(gamma, v_next, x[0]) - x[1])
    return a, b, x[2] | x[3]


@triton.jit
def finish(x, near, first, y, before, HAS: tl.constexpr):
    ratio, v_next = parts(x, near, HAS)
    vs_next = tl.where(first | x[2] | x[3], v_next, near[0] + before)
    return y + x[1], clipped(ratio, x[13], HAS[13]) * (madd(x[9], vs_next, x[0]) - x[1]), y

"""lambda-returns on chip; the maths is in `rl_triton_jax.estimators.lambda_returns`."""

import triton
import triton.language as tl

from ..combine import madd
from .bootstrap import next_value


@triton.jit
def step(x, near, first, HAS: tl.constexpr):
    rewards, _, terminated, truncated, next_values, final_values, gamma, lambda_ = x
    v_next = next_value(near[0], terminated, truncated, next_values, final_values, HAS[4])
    ends = first | terminated | truncated
    return gamma * lambda_, madd(gamma, tl.where(ends, v_next, (1 - lambda_) * v_next), rewards), ends


@triton.jit
def finish(x, near, first, y, before, HAS: tl.constexpr):
    return (y,)

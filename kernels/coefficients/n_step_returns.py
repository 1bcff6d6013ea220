"""n-step returns on chip; the maths is in `rl_triton_jax.estimators.n_step_returns`."""

import triton
import triton.language as tl

from ..combine import madd
from .bootstrap import next_value


@triton.jit
def step(x, near, first, HAS: tl.constexpr):
    rewards, _, terminated, truncated, next_values, final_values, gamma = x
    ends = first | terminated | truncated
    v_next = next_value(near[0], terminated, truncated, next_values, final_values, HAS[4])
    return gamma, tl.where(ends, madd(gamma, v_next, rewards), rewards), ends


@triton.jit
def follows(x, near, first, y, before, HAS: tl.constexpr):
    return (next_value(near[0], x[2], x[3], x[4], x[5], HAS[4]),)


@triton.jit
def finish(x, near, first, y, before, HAS: tl.constexpr):
    return (y,)

"""GAE on chip; the maths is in `rl_triton_jax.estimators.gae`."""

import triton
import triton.language as tl

from ..combine import madd
from .bootstrap import next_value


@triton.jit
def step(x, near, first, HAS: tl.constexpr):
    rewards, values, terminated, truncated, next_values, final_values, gamma, lambda_ = x
    v_next = next_value(near[0], terminated, truncated, next_values, final_values, HAS[4])
    return gamma * lambda_, madd(gamma, v_next, rewards) - values, terminated | truncated


@triton.jit
def finish(x, near, first, y, before, HAS: tl.constexpr):
    return y, y + x[1]

"""Discounted returns on chip; the maths is in `rl_triton_jax.estimators.discounted_returns`."""

import triton
import triton.language as tl

from ..combine import madd


@triton.jit
def step(x, near, first, HAS: tl.constexpr):
    rewards, terminated, truncated, final_values, gamma = x
    b = tl.where(truncated & (terminated == 0), madd(gamma, final_values, rewards), rewards)
    return gamma, b, terminated | truncated


@triton.jit
def finish(x, near, first, y, before, HAS: tl.constexpr):
    return (y,)

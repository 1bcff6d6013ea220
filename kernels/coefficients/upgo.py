"""UPGO on chip; the maths is in `rl_triton_jax.estimators.upgo`."""

import triton
import triton.language as tl

from ..combine import madd
from .bootstrap import next_value


@triton.jit
def step(x, near, first, HAS: tl.constexpr):
    rewards, values, terminated, truncated, next_values, final_values, gamma = x
    ends = first | terminated | truncated
    one_step = madd(gamma, next_value(near[1], terminated, truncated, next_values, final_values, HAS[4]), rewards)
    if HAS[4]:
        beyond = tl.where(near[2] != 0, 0.0, near[3])
        stops = ends | ((madd(near[4], beyond, near[0]) >= near[1]) == 0)
        return gamma, tl.where(stops, one_step, rewards), stops
    else:
        worse = (one_step >= values) == 0
        return gamma, tl.where(worse, values, tl.where(ends, one_step, rewards)), ends | worse


@triton.jit
def finish(x, near, first, y, before, HAS: tl.constexpr):
    rewards, _, terminated, truncated, next_values, final_values, gamma = x
    if HAS[4]:
        return (y,)
    else:
        v_next = next_value(near[1], terminated, truncated, next_values, final_values, HAS[4])
        return (madd(gamma, tl.where(first | terminated | truncated, v_next, before), rewards),)

"""Eligibility traces on chip; the maths is in `rl_triton_jax.estimators.eligibility_traces`."""

import triton
import triton.language as tl


@triton.jit
def step(x, near, first, HAS: tl.constexpr):
    inputs, _, _, gamma, lambda_ = x
    return gamma * lambda_, inputs, (near[0] != 0) | (near[1] != 0)


@triton.jit
def finish(x, near, first, y, before, HAS: tl.constexpr):
    return (y,)

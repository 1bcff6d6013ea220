"""The value of the next state on chip: one rule for every estimator that bootstraps."""

import triton
import triton.language as tl


@triton.jit
def next_value(v_near, terminated, truncated, next_values, final_values, DENSE: tl.constexpr):
    """V'(t): 0 where terminated; else the dense next value if given, the final value where truncated, or V of the neighbour."""
    if DENSE:
        v_next = next_values
    else:
        v_next = tl.where(truncated, final_values, v_near)
    return tl.where(terminated, 0.0, v_next)

"""Running sums that start anew with each episode, forward in time.

    s_t = x_t + s_{t-1}, but s_t = x_t where the step before ended an episode (or where this one starts one)

Blelloch, "Prefix sums and their applications" (1990), section 1.5 (segmented scans).
"""

from __future__ import annotations

from typing import Any

from ..estimator import Estimator, Operand, Role
from ..front import FrontEnd
from ..problem import FLOATS, INTEGERS, dtype_name, is_array


def coefficients(xp: Any, x: Any, near: Any, first: Any) -> Any:
    return 1, x["inputs"], xp.any_of(near["done"], x["starts"])


def finish(xp: Any, x: Any, near: Any, first: Any, y: Any, before: Any) -> Any:
    return (y,)


EPISODIC_CUMSUM = Estimator(
    name="episodic_cumsum",
    operands=(
        Operand("inputs"),
        Operand("done", Role.FLAG, near=True),
        Operand("starts", Role.FLAG),
        Operand("initial", Role.EDGE, carry=True),
    ),
    outputs=("sums",),
    coefficients=coefficients,
    finish=finish,
    backward=False,
    integers=True,
    features=True,
)


def episodic_cumsum(
    front: FrontEnd,
    inputs: Any,
    done: Any = None,
    *,
    initial: Any = None,
    resets: str = "after",
    axis: int = 0,
    implementation: str | None = None,
) -> Any:
    """Running sum within each episode, forward in time.

        s_t = x_t              where done[t-1] (resets="after") or done[t] (resets="before")
        s_t = x_t + s_{t-1}    elsewhere,    s_{-1} = initial

    Args:
      inputs: `[T, *batch]`, or any shape with the steps along `axis`; trailing axes may be features. Integers are summed exactly
        and stay integer, in 32 bits at least (the sum wraps around where it does not fit, as NumPy's does).
      done: any dtype, non-zero is true; None means never. Either as many axes as `inputs`, where size-1 axes broadcast,
        or exactly the leading axes of `inputs`.
      initial: shaped as one step of `inputs`, or a number: the sum before step 0; 0 when None. Integer where `inputs` are.
      resets: "after": `done` marks the last step of an episode (terminated or truncated). "before": it marks the first.
      axis: which axis holds the steps. Every other axis is batch; nothing is transposed.
      implementation: None (best for the platform), "triton" or "xla".

    Returns:
      The sums, shaped as `inputs`, in their dtype (bool and integers below 32 bits: int32).

    Raises:
      TypeError: an argument is no array (or number, where one will do), or has a dtype that cannot be used; a floating `initial`
        for integer `inputs`.
      ValueError: a shape does not fit, `resets` is neither "after" nor "before", `axis` is out of range, or
        `implementation` cannot run here.
    """
    if resets not in ("after", "before"):
        raise ValueError(f"episodic_cumsum: unknown `resets` {resets!r}; expected 'after' or 'before'")
    floating = isinstance(initial, float) or (is_array(initial) and dtype_name(initial) in FLOATS)
    if floating and is_array(inputs) and dtype_name(inputs) in INTEGERS:
        raise TypeError("episodic_cumsum: `initial` is floating but `inputs` are integers; convert one of them")
    operands = {
        "inputs": inputs,
        "done": done if resets == "after" else None,
        "starts": done if resets == "before" else None,
        "initial": initial,
    }
    (sums,) = front.call(EPISODIC_CUMSUM, operands, axis=axis, implementation=implementation)
    return sums

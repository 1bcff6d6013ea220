"""The first-order linear recurrence y_t = a_t y_{t-1} + b_t: what every estimator here is made of.

Blelloch, "Prefix sums and their applications" (1990), §1.4: pairs (a, b) compose associatively, so the recurrence is a scan.
"""

from __future__ import annotations

from typing import Any

from ..formula import LINEAR_RECURRENCE
from ..front import FrontEnd
from ..problem import truth


def linear_recurrence(
    front: FrontEnd,
    a: Any,
    b: Any,
    *,
    initial: Any = None,
    reset: Any = None,
    reverse: bool = False,
    axis: int = 0,
    implementation: str | None = None,
) -> Any:
    """First-order linear recurrence along one axis.

        y_t = a_t y_{t-1} + b_t            (y_{t+1} instead of y_{t-1} when `reverse`)
        y_t = b_t                          where reset_t: a select, so that no NaN or infinity passes

    Works for any sign and size of `a`. With |a| > 1 over many steps the products of `a` may overflow on a GPU, where steps
    are grouped in a tree, although a serial walk would stay finite.

    Args:
      a: factors; a number, or an array with as many axes as `b` whose size-1 axes broadcast.
      b: `[T, *batch]`, or any shape with the steps along `axis`.
      initial: `[*batch]` or a number: y before the first step walked; 0 when None.
      reset: any dtype, non-zero is true; as many axes as `b`, size-1 axes broadcast; None means never.
      reverse: walk from the last step to the first.
      axis: which axis of `b` holds the steps. Every other axis is batch; nothing is transposed.
      implementation: None (best for the platform), "triton" or "xla".

    Returns:
      y, shaped as `b`, in the promoted floating dtype of `a`, `b` and `initial` (float32 where none is floating); 16-bit data
      are computed in float32 and rounded once.

    Raises:
      TypeError: an argument is no array, or has a complex or unknown dtype.
      ValueError: a shape does not fit, `axis` is out of range, or `implementation` cannot run here.
    """
    (y,) = front.call(
        LINEAR_RECURRENCE,
        {"b": b, "a": a, "reset": reset, "initial": initial},
        axis=axis,
        backward=truth("linear_recurrence", "reverse", reverse),
        implementation=implementation,
    )
    return y

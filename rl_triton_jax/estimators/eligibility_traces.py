"""Eligibility traces, forward in time.

    z_t = x_t + gamma_t lambda_t m_t z_{t-1},    m_t = 1 iff no flag is set at t-1,    m_0 = 1

Sutton and Barto, "Reinforcement Learning" (2018), eq. 12.5 (accumulating traces).
"""

from __future__ import annotations

from typing import Any

from ..estimator import Estimator, Operand, Role
from ..front import FrontEnd


def coefficients(xp: Any, x: Any, near: Any, first: Any) -> Any:
    return x["gamma"] * x["lambda_"], x["inputs"], xp.any_of(near["terminated"], near["truncated"])


def finish(xp: Any, x: Any, near: Any, first: Any, y: Any, before: Any) -> Any:
    return (y,)


ELIGIBILITY_TRACES = Estimator(
    name="eligibility_traces",
    operands=(
        Operand("inputs"),
        Operand("terminated", Role.FLAG, near=True),
        Operand("truncated", Role.FLAG, near=True),
        Operand("initial", Role.EDGE, carry=True),
        Operand("gamma", Role.DECAY),
        Operand("lambda_", Role.DECAY),
    ),
    outputs=("traces",),
    coefficients=coefficients,
    finish=finish,
    backward=False,
    features=True,
)


def eligibility_traces(
    front: FrontEnd,
    inputs: Any,
    terminated: Any = None,
    truncated: Any = None,
    *,
    initial: Any = None,
    gamma: Any = 0.99,
    lambda_: Any = 0.95,
    axis: int = 0,
    implementation: str | None = None,
) -> Any:
    """Accumulating eligibility traces, forward in time (Sutton and Barto 2018, eq. 12.5).

        z_t = x_t + gamma_t lambda_t m_t z_{t-1},    m_t = 1 iff no flag is set at t-1,    m_0 = 1

    gamma_t and lambda_t decay the trace on *entering* step t, so gamma (1 - done_t) is not a valid `gamma` here: pass the flags.

    Args:
      inputs: `[T, *batch]`, or any shape with the steps along `axis`; trailing axes may be features (gradients, say).
      terminated: the episode ends after step t, so the trace starts anew at t+1. Any dtype, non-zero is true. Either as many axes
        as `inputs`, where size-1 axes broadcast, or exactly the leading axes of `inputs`, without features.
      truncated: likewise.
      initial: shaped as one step of `inputs`, or a number: z_{-1}; it always enters step 0. 0 when None.
      gamma: discount, a number or an array with as many axes as `inputs` (size-1 axes broadcast). May be traced.
      lambda_: trace decay in the same forms.
      axis: which axis holds the steps. Every other axis is batch; nothing is transposed.
      implementation: None (best for the platform), "triton" or "xla".

    Returns:
      z, shaped as `inputs`, in their floating dtype (float32 where none is floating).

    Raises:
      TypeError: an argument is no array (or number, where one will do), or has a dtype that cannot be used.
      ValueError: a shape does not fit, `axis` is out of range, or `implementation` cannot run here.
    """
    operands = {
        "inputs": inputs,
        "terminated": terminated,
        "truncated": truncated,
        "initial": initial,
        "gamma": gamma,
        "lambda_": lambda_,
    }
    (traces,) = front.call(ELIGIBILITY_TRACES, operands, axis=axis, implementation=implementation)
    return traces

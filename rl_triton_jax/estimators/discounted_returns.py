"""Discounted returns: lambda-returns with lambda = 1, which need no values but at the ends.

    G_t = r_t                              where terminated
    G_t = r_t + gamma_t final_values[t]    where truncated
    G_t = r_t + gamma_t G_{t+1}            elsewhere,   G_T = last_values

Sutton and Barto, "Reinforcement Learning" (2018), eq. 3.8-3.9.
"""

from __future__ import annotations

from typing import Any

from ..estimator import Estimator, Operand, Role
from ..front import FrontEnd


def coefficients(xp: Any, x: Any, near: Any, first: Any) -> Any:
    b = x["rewards"]
    if x["truncated"] is not None:
        final = xp.where(x["truncated"], x["final_values"], 0)
        if x["terminated"] is not None:
            final = xp.where(x["terminated"], 0, final)
        b = b + x["gamma"] * final  # a product with what is dead would be dead in the derivative by gamma
    return x["gamma"], b, xp.any_of(x["terminated"], x["truncated"])


def finish(xp: Any, x: Any, near: Any, first: Any, y: Any, before: Any) -> Any:
    return (y,)


DISCOUNTED_RETURNS = Estimator(
    name="discounted_returns",
    operands=(
        Operand("rewards"),
        Operand("terminated", Role.FLAG),
        Operand("truncated", Role.FLAG),
        Operand("last_values", Role.EDGE, carry=True),
        Operand("final_values", only_where="truncated"),
        Operand("gamma", Role.DECAY),
        Operand("mask", Role.MASK),
    ),
    outputs=("returns",),
    coefficients=coefficients,
    finish=finish,
)


def discounted_returns(
    front: FrontEnd,
    rewards: Any,
    terminated: Any = None,
    truncated: Any = None,
    *,
    last_values: Any = 0.0,
    final_values: Any = None,
    gamma: Any = 0.99,
    mask: Any = None,
    axis: int = 0,
    implementation: str | None = None,
) -> Any:
    """Discounted sums of rewards to the end of each episode (Sutton and Barto 2018, eq. 3.9).

        G_t = r_t                              where terminated
        G_t = r_t + gamma_t final_values[t]    where truncated
        G_t = r_t + gamma_t G_{t+1}            elsewhere,    G_T = last_values

    Args:
      rewards: `[T, *batch]`, or any shape with the steps along `axis`; integers are promoted to float.
      terminated: s_{t+1} is terminal. Any dtype, non-zero is true; as many axes as `rewards`, size-1 axes broadcast; None means
        never. Wins where both flags are set.
      truncated: the episode was cut off after step t. Needs `final_values`.
      last_values: `[*batch]` or a number: the value of the state after the last step; 0 unless given.
      final_values: shaped as `rewards`: value of the final state, read only where truncated and not terminated; elsewhere it may
        hold anything.
      gamma: discount, a number or an array with as many axes as `rewards` (size-1 axes broadcast). May be traced.
      mask: True at real steps; results there are those of the sequence with the masked steps cut out, and 0 at masked steps.
      axis: which axis holds the steps. Every other axis is batch; nothing is transposed.
      implementation: None (best for the platform), "triton" or "xla".

    Returns:
      G, shaped as `rewards`, in the promoted floating dtype of rewards and values (float32 where none is floating).

    Raises:
      TypeError: an argument is no array (or number, where one will do), or has a dtype that cannot be used.
      ValueError: a shape does not fit; `truncated` without `final_values` or the reverse; `axis` out of range; `implementation`
        cannot run here.
    """
    if truncated is not None and final_values is None:
        raise ValueError(
            "discounted_returns: `truncated` needs the value of the state in which the episode was cut off: pass "
            "`final_values` (read only where truncated)"
        )
    if final_values is not None and truncated is None:
        raise ValueError(
            "discounted_returns: `final_values` is read only where `truncated` is set, but `truncated` was not given"
        )
    operands = {
        "rewards": rewards,
        "terminated": terminated,
        "truncated": truncated,
        "last_values": last_values,
        "final_values": final_values,
        "gamma": gamma,
        "mask": mask,
    }
    (returns,) = front.call(DISCOUNTED_RETURNS, operands, axis=axis, implementation=implementation)
    return returns

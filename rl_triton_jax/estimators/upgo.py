"""UPGO: returns that follow the trajectory only while it does better than expected.

    G_t = r_t + gamma_t (G_{t+1} if r_{t+1} + gamma_{t+1} V'(t+1) >= V_{t+1} else V'(t))
    G_t = r_t + gamma_t V'(t)       where a flag is set, and at t = T-1

with V'(t) after the rule in `bootstrap`. Vinyals et al., "Grandmaster level in StarCraft II using multi-agent
reinforcement learning" (2019), supplementary data. The decision of step t+1 needs its own neighbour, V_{t+2}. So the walk carries

    Y_t = G_t if step t does better than expected, else V_t            (G_t = r_t + gamma_t Y_{t+1})

where the next value is the neighbour's; with `next_values` a step knows its own decision and looks at its neighbour's.
"""

from __future__ import annotations

from typing import Any

from ..estimator import Estimator, Operand, Role
from ..front import FrontEnd
from .bootstrap import check_sources, next_value


def coefficients(xp: Any, x: Any, near: Any, first: Any) -> Any:
    v_next = next_value(xp, x, near["values"])
    ends = xp.any_of(first, x["terminated"], x["truncated"])
    one_step = x["rewards"] + x["gamma"] * v_next
    if x["next_values"] is None:
        worse = xp.invert(one_step >= x["values"])
        b = xp.where(ends, one_step, x["rewards"])
        return x["gamma"], xp.where(worse, x["values"], b), ends | worse
    beyond = near["next_values"]
    if near["terminated"] is not None:
        beyond = xp.where(near["terminated"], 0, beyond)
    worse = xp.invert(near["rewards"] + near["gamma"] * beyond >= near["values"])
    stops = ends | worse
    return x["gamma"], xp.where(stops, one_step, x["rewards"]), stops


def finish(xp: Any, x: Any, near: Any, first: Any, y: Any, before: Any) -> Any:
    if x["next_values"] is not None:
        return (y,)
    ends = xp.any_of(first, x["terminated"], x["truncated"])
    return (x["rewards"] + x["gamma"] * xp.where(ends, next_value(xp, x, near["values"]), before),)


UPGO = Estimator(
    name="upgo",
    operands=(
        Operand("rewards", near=True),
        Operand("values", near=True, edge="last_values"),
        Operand("terminated", Role.FLAG, near=True),
        Operand("truncated", Role.FLAG),
        Operand("last_values", Role.EDGE),
        Operand("next_values", near=True),
        Operand("final_values", only_where="truncated"),
        Operand("gamma", Role.DECAY, near=True),
    ),
    outputs=("returns",),
    coefficients=coefficients,
    finish=finish,
    uses_first=True,
    uses_before=True,
)


def upgo(
    front: FrontEnd,
    rewards: Any,
    values: Any,
    terminated: Any = None,
    truncated: Any = None,
    *,
    last_values: Any = None,
    next_values: Any = None,
    final_values: Any = None,
    gamma: Any = 1.0,
    axis: int = 0,
    implementation: str | None = None,
) -> Any:
    """Upgoing policy update returns (Vinyals et al. 2019, AlphaStar).

        G_t = r_t + gamma_t (G_{t+1} if r_{t+1} + gamma_{t+1} V'(t+1) >= V_{t+1} else V'(t))
        G_t = r_t + gamma_t V'(t)       where a flag is set, and at t = T-1

    where V'(t), the value of the next state, is 0 where terminated; else final_values[t] where truncated; else V_{t+1}, with
    `last_values` after the last step (or next_values[t] everywhere). The advantage that the paper uses is G - V.

    Args:
      rewards: `[T, *batch]`, or any shape with the steps along `axis`; integers are promoted to float.
      values: V(s_t), shaped as `rewards`; with one more step (T+1) its last row is V(s_T).
      terminated: s_{t+1} is terminal, its value is 0. Any dtype, non-zero is true; as many axes as `rewards`, size-1 axes
        broadcast; None means never.
      truncated: the episode was cut off after step t. Needs `final_values` or `next_values`.
      last_values: `[*batch]` or a number: V(s_T). Exactly one of `last_values`, `next_values` or T+1 `values` must be given.
      next_values: shaped as `rewards`: V(s_{t+1}) for every step, before any reset.
      final_values: shaped as `rewards`, read only where truncated and not terminated; elsewhere it may hold anything.
      gamma: discount, a number or an array with as many axes as `rewards` (size-1 axes broadcast). May be traced.
      axis: which axis holds the steps. Every other axis is batch; nothing is transposed.
      implementation: None (best for the platform), "triton" or "xla".

    Returns:
      G, shaped as `rewards`, in the promoted floating dtype of rewards and values.

    Raises:
      TypeError: an argument is no array (or number, where one will do), or has a dtype that cannot be used.
      ValueError: a shape does not fit; no source of V(s_T) or two; `truncated` without `final_values` or `next_values`;
        `axis` out of range; `implementation` cannot run here.
    """
    if values is None:
        raise TypeError("upgo: `values` is required")
    check_sources(
        "upgo",
        rewards=rewards,
        values=values,
        truncated=truncated,
        last_values=last_values,
        next_values=next_values,
        final_values=final_values,
        axis=axis,
    )
    operands = {
        "rewards": rewards,
        "values": values,
        "terminated": terminated,
        "truncated": truncated,
        "last_values": last_values,
        "next_values": next_values,
        "final_values": final_values,
        "gamma": gamma,
    }
    (returns,) = front.call(UPGO, operands, axis=axis, implementation=implementation)
    return returns

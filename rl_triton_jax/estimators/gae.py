"""Generalised advantage estimation.

    delta_t = r_t + gamma_t V'(t) - V_t
    A_t     = delta_t + gamma_t lambda_t c_t A_{t+1},   A_T = 0,   c_t = 1 iff neither flag is set at t

with V'(t) after the rule in `bootstrap`. Schulman, Moritz, Levine, Jordan, Abbeel, "High-Dimensional Continuous Control Using
Generalized Advantage Estimation" (2016), arXiv:1506.02438, eq. 11-16.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from ..estimator import Estimator, Operand, Role
from ..front import FrontEnd
from ..problem import truth
from .bootstrap import check_sources, next_value


class GAE(NamedTuple):
    """Advantages and returns (advantages + values), each shaped as `rewards`; `returns` is None where not asked for."""

    advantages: Any
    returns: Any


def coefficients(xp: Any, x: Any, near: Any, first: Any) -> Any:
    v_next = next_value(xp, x, near["values"])
    delta = x["rewards"] + x["gamma"] * v_next - x["values"]
    return x["gamma"] * x["lambda_"], delta, xp.any_of(x["terminated"], x["truncated"])


def finish(xp: Any, x: Any, near: Any, first: Any, y: Any, before: Any) -> Any:
    return y, y + x["values"]


GAE_ESTIMATOR = Estimator(
    name="gae",
    operands=(
        Operand("rewards"),
        Operand("values", near=True, edge="last_values"),
        Operand("terminated", Role.FLAG),
        Operand("truncated", Role.FLAG),
        Operand("last_values", Role.EDGE),
        Operand("next_values"),
        Operand("final_values", only_where="truncated"),
        Operand("gamma", Role.DECAY),
        Operand("lambda_", Role.DECAY),
        Operand("mask", Role.MASK),
    ),
    outputs=("advantages", "returns"),
    coefficients=coefficients,
    finish=finish,
)


def gae(
    front: FrontEnd,
    rewards: Any,
    values: Any,
    terminated: Any = None,
    truncated: Any = None,
    *,
    last_values: Any = None,
    next_values: Any = None,
    final_values: Any = None,
    gamma: Any = 0.99,
    lambda_: Any = 0.95,
    mask: Any = None,
    normalize: bool = False,
    with_returns: bool = True,
    axis: int = 0,
    implementation: str | None = None,
) -> GAE:
    """Generalised advantage estimation (Schulman et al. 2016, arXiv:1506.02438).

        delta_t = r_t + gamma_t V'(t) - V_t
        A_t     = delta_t + gamma_t lambda_t c_t A_{t+1},    A_T = 0,    c_t = 1 iff no flag is set at t
        returns = A + V

    where V'(t), the value of the next state, is 0 where terminated; else final_values[t] where truncated; else V_{t+1}, with
    `last_values` after the last step (or next_values[t] everywhere). Both flags set: terminated wins. lambda_ = 1 gives
    Monte-Carlo advantages, lambda_ = 0 the TD error.

    Step t is the transition s_t -> s_{t+1} and flags describe *that* transition (Gymnasium's flags, unshifted).

    Args:
      rewards: `[T, *batch]`, or any shape with the steps along `axis`; integers are promoted to float.
      values: V(s_t), shaped as `rewards`; with one more step (T+1) its last row is V(s_T).
      terminated: s_{t+1} is terminal, its value is 0. Any dtype, non-zero is true; as many axes as `rewards`, size-1 axes
        broadcast; None means never.
      truncated: the episode was cut off after step t: s_{t+1} is an ordinary state, but the next row belongs to another
        episode. Needs `final_values` or `next_values`.
      last_values: `[*batch]` or a number: V(s_T). Exactly one of `last_values`, `next_values` or T+1 `values` must be given.
      next_values: shaped as `rewards`: V(s_{t+1}) for every step, before any reset.
      final_values: shaped as `rewards`: V of the final state, read only where truncated and not terminated; elsewhere it may
        hold anything, NaN included.
      gamma: discount, a number or an array with as many axes as `rewards` (size-1 axes broadcast); gamma[t] belongs to
        transition t. May be traced: a new value never recompiles.
      lambda_: trace decay in the same forms.
      mask: True at real steps; results there are those of the sequence with the masked steps cut out (their flags too), and
        all outputs at masked steps are 0.
      normalize: standardise the advantages over all real entries, (A - mean) / (std + 1e-8) with the population std; one
        entry or a constant gives 0. Returns use the raw advantages.
      with_returns: False leaves `returns` None; it is then never written.
      axis: which axis holds the steps. Every other axis is batch; nothing is transposed.
      implementation: None (best for the platform), "triton" or "xla".

    Returns:
      GAE(advantages, returns), shaped as `rewards`, in the promoted floating dtype of rewards and values (float32 where
      none is floating). 16-bit data are computed in float32 and rounded once.

    Raises:
      TypeError: an argument is no array (or number, where one will do), or has a complex or unknown dtype.
      ValueError: a shape does not fit; no source of V(s_T) or two; `truncated` without `final_values` or `next_values`;
        `final_values` without `truncated` or with `next_values`; `axis` out of range; `implementation` cannot run here.
    """
    check_sources(
        "gae",
        rewards=rewards,
        values=values,
        truncated=truncated,
        last_values=last_values,
        next_values=next_values,
        final_values=final_values,
        axis=axis,
    )
    if values is None:
        raise TypeError("gae: `values` is required")
    operands = {
        "rewards": rewards,
        "values": values,
        "terminated": terminated,
        "truncated": truncated,
        "last_values": last_values,
        "next_values": next_values,
        "final_values": final_values,
        "gamma": gamma,
        "lambda_": lambda_,
        "mask": mask,
    }
    advantages, *rest = front.call(
        GAE_ESTIMATOR,
        operands,
        axis=axis,
        implementation=implementation,
        wanted=(True, truth("gae", "with_returns", with_returns)),
        standardize=0 if truth("gae", "normalize", normalize) else None,
    )
    return GAE(advantages, rest[0] if with_returns else None)

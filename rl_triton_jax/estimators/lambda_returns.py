"""lambda-returns, and Peng's Q(lambda), which are lambda-returns of the greedy value.

    G_t = r_t + gamma_t V'(t)                                           where a flag is set, and at t = T-1
    G_t = r_t + gamma_t [(1 - lambda_t) V'(t) + lambda_t G_{t+1}]       elsewhere

with V'(t) after the rule in `bootstrap`. Sutton and Barto, "Reinforcement Learning" (2018), ch. 12; Peng and Williams,
"Incremental Multi-Step Q-Learning" (1996), for V'(t) = max_a Q(s_{t+1}, a).
"""

from __future__ import annotations

from typing import Any

from ..estimator import Estimator, Operand, Over, Role
from ..front import FrontEnd
from .bootstrap import check_sources, next_value


def coefficients(xp: Any, x: Any, near: Any, first: Any) -> Any:
    v_next = next_value(xp, x, near["values"])
    gamma, lambda_ = x["gamma"], x["lambda_"]
    ends = xp.any_of(first, x["terminated"], x["truncated"])
    return gamma * lambda_, x["rewards"] + gamma * xp.where(ends, v_next, (1 - lambda_) * v_next), ends


def finish(xp: Any, x: Any, near: Any, first: Any, y: Any, before: Any) -> Any:
    return (y,)


LAMBDA_RETURNS = Estimator(
    name="lambda_returns",
    operands=(
        Operand("rewards"),
        Operand("values", near=True, edge="last_values"),
        Operand("terminated", Role.FLAG),
        Operand("truncated", Role.FLAG),
        Operand("last_values", Role.EDGE),
        Operand("next_values", folds=("next_q_values",), over=Over.MAXIMUM, unless="terminated"),
        Operand("next_q_values", Role.ACTIONS),
        Operand("final_values", only_where="truncated"),
        Operand("gamma", Role.DECAY),
        Operand("lambda_", Role.DECAY),
        Operand("mask", Role.MASK),
    ),
    outputs=("returns",),
    coefficients=coefficients,
    finish=finish,
    uses_first=True,
)


def lambda_returns(
    front: FrontEnd,
    rewards: Any,
    values: Any = None,
    terminated: Any = None,
    truncated: Any = None,
    *,
    last_values: Any = None,
    next_values: Any = None,
    final_values: Any = None,
    gamma: Any = 0.99,
    lambda_: Any = 0.95,
    mask: Any = None,
    axis: int = 0,
    implementation: str | None = None,
) -> Any:
    """lambda-returns (Sutton and Barto 2018, ch. 12).

        G_t = r_t + gamma_t V'(t)                                         where a flag is set, and at t = T-1
        G_t = r_t + gamma_t [(1 - lambda_t) V'(t) + lambda_t G_{t+1}]     elsewhere

    where V'(t), the value of the next state, is 0 where terminated; else final_values[t] where truncated; else V_{t+1}, with
    `last_values` after the last step (or next_values[t] everywhere). Both flags set: terminated wins. lambda_ = 1 gives
    discounted returns, lambda_ = 0 one-step targets; with one lambda_ for all, G is `gae`'s returns.

    Args:
      rewards: `[T, *batch]`, or any shape with the steps along `axis`; integers are promoted to float.
      values: V(s_t), shaped as `rewards`; with one more step (T+1) its last row is V(s_T). Not needed with `next_values`.
      terminated: s_{t+1} is terminal, its value is 0. Any dtype, non-zero is true; as many axes as `rewards`, size-1 axes
        broadcast; None means never.
      truncated: the episode was cut off after step t. Needs `final_values` or `next_values`.
      last_values: `[*batch]` or a number: V(s_T). Exactly one of `last_values`, `next_values` or T+1 `values` must be given.
      next_values: shaped as `rewards`: V(s_{t+1}) for every step, before any reset.
      final_values: shaped as `rewards`, read only where truncated and not terminated; elsewhere it may hold anything.
      gamma: discount, a number or an array with as many axes as `rewards` (size-1 axes broadcast). May be traced.
      lambda_: trace decay in the same forms.
      mask: True at real steps; results there are those of the sequence with the masked steps cut out, and 0 at masked steps.
      axis: which axis holds the steps. Every other axis is batch; nothing is transposed.
      implementation: None (best for the platform), "triton" or "xla".

    Returns:
      G, shaped as `rewards`, in the promoted floating dtype of rewards and values (float32 where none is floating).

    Raises:
      TypeError: an argument is no array (or number, where one will do), or has a dtype that cannot be used.
      ValueError: a shape does not fit; no source of V(s_T) or two; neither `values` nor `next_values`; `truncated` without
        `final_values` or `next_values`; `axis` out of range; `implementation` cannot run here.
    """
    check_sources(
        "lambda_returns",
        rewards=rewards,
        values=values,
        truncated=truncated,
        last_values=last_values,
        next_values=next_values,
        final_values=final_values,
        axis=axis,
    )
    if values is None and next_values is None:
        raise ValueError("lambda_returns: pass `values` (V(s_t)) or `next_values` (V(s_{t+1})) for every step")
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
    (returns,) = front.call(LAMBDA_RETURNS, operands, axis=axis, implementation=implementation)
    return returns


def q_lambda(
    front: FrontEnd,
    rewards: Any,
    next_q_values: Any,
    terminated: Any = None,
    truncated: Any = None,
    *,
    gamma: Any = 0.99,
    lambda_: Any = 0.95,
    axis: int = 0,
    implementation: str | None = None,
) -> Any:
    """Peng's Q(lambda) (Peng and Williams 1996): `lambda_returns` with V'(t) = max_a Q(s_{t+1}, a).

        G_t = r_t + gamma_t M_t                                          where a flag is set, and at t = T-1
        G_t = r_t + gamma_t [(1 - lambda_t) M_t + lambda_t G_{t+1}]      elsewhere
        M_t = max_a next_q_values[t, a], 0 where terminated

    Args:
      rewards: `[T, *batch]`, or any shape with the steps along `axis`.
      next_q_values: `[T, *batch, A]`: Q(s_{t+1}, a) of the true next state, before any reset. The action axis is last; `axis`
        counts the axes of `rewards`. Not read into results where terminated.
      terminated: s_{t+1} is terminal. Any dtype, non-zero is true; as many axes as `rewards`, size-1 axes broadcast.
      truncated: the episode was cut off after step t; s_{t+1} is an ordinary state.
      gamma: discount, a number or an array with as many axes as `rewards` (size-1 axes broadcast). May be traced.
      lambda_: trace decay in the same forms. The trace is not cut at exploratory actions.
      axis: which axis of `rewards` holds the steps.
      implementation: None (best for the platform), "triton" or "xla".

    Returns:
      G, shaped as `rewards`, in the promoted floating dtype of rewards and next_q_values.

    Raises:
      TypeError: an argument is no array (or number, where one will do), or has a dtype that cannot be used.
      ValueError: a shape does not fit, `axis` is out of range, or `implementation` cannot run here.
    """
    if next_q_values is None:
        raise TypeError("q_lambda: `next_q_values` is required")
    operands = {
        "rewards": rewards,
        "next_q_values": next_q_values,
        "terminated": terminated,
        "truncated": truncated,
        "gamma": gamma,
        "lambda_": lambda_,
    }
    (returns,) = front.call(LAMBDA_RETURNS, operands, axis=axis, implementation=implementation, name="q_lambda")
    return returns

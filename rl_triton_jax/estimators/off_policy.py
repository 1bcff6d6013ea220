"""Off-policy targets for action values: Retrace, Tree-backup, and the general form of both.

    delta_t = r_t + gamma_t E_{a ~ pi(.|s_{t+1})} Q(s_{t+1}, a) - Q_t         (without the expectation where terminated)
    D_t     = delta_t + gamma_t k_{t+1} c_t D_{t+1},   D_T = 0                c_t = 1 iff neither flag is set at t
    targets = Q + D

The trace coefficient k_{t+1} belongs to the *next* action: lambda min(c_bar, rho_{t+1}) for Retrace(lambda) (Munos,
Stepleton, Harutyunyan, Bellemare, "Safe and Efficient Off-Policy Reinforcement Learning" (2016), arXiv:1606.02647),
lambda pi(a_{t+1}|s_{t+1}) for Tree-backup (Precup, Sutton, Singh, "Eligibility Traces for Off-Policy Policy Evaluation"
(2000)). The expectation is under the policy at s_{t+1}.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from ..estimator import Estimator, Operand, Role
from ..front import FrontEnd
from .ratios import check_ratios


class Retrace(NamedTuple):
    """Targets Q + D and corrections D ("TD errors" summed along the trace), each shaped as `rewards`."""

    targets: Any
    td_errors: Any


def _trace(xp: Any, x: Any, near: Any, ends: Any) -> Any:
    """k_{t+1}, 0 where the trace ends: what is near there may not exist, and nothing of it may reach a derivative."""
    near = {name: None if value is None else xp.where(ends, 1, value) for name, value in near.items()}
    if near["coefficients"] is not None:
        return xp.where(ends, 0, near["coefficients"])
    if near["log_rhos"] is not None:
        ratio = xp.exp(near["log_rhos"])
    elif near["behavior_probs"] is not None:
        ratio = near["target_probs"] / near["behavior_probs"]
    else:
        ratio = near["target_probs"]
    if x["clip_c_threshold"] is not None:
        ratio = xp.minimum(ratio, x["clip_c_threshold"])
    return x["lambda_"] * xp.where(ends, 0, ratio)


def coefficients(xp: Any, x: Any, near: Any, first: Any) -> Any:
    expected = x["next_expected_q"]
    if x["terminated"] is not None:
        expected = xp.where(x["terminated"], 0, expected)
    delta = x["rewards"] + x["gamma"] * expected - x["q_values"]
    ends = xp.any_of(first, x["terminated"], x["truncated"])
    return x["gamma"] * _trace(xp, x, near, ends), delta, ends


def finish(xp: Any, x: Any, near: Any, first: Any, y: Any, before: Any) -> Any:
    return y + x["q_values"], y


OFF_POLICY = Estimator(
    name="off_policy",
    operands=(
        Operand("rewards"),
        Operand("q_values"),
        Operand("terminated", Role.FLAG),
        Operand("truncated", Role.FLAG),
        Operand("next_expected_q", folds=("next_q_values", "next_target_probs"), unless="terminated"),
        Operand("next_q_values", Role.ACTIONS),
        Operand("next_target_probs", Role.ACTIONS),
        Operand("log_rhos", near=True),
        Operand("target_probs", near=True),
        Operand("behavior_probs", near=True),
        Operand("coefficients", near=True),
        Operand("gamma", Role.DECAY),
        Operand("lambda_", Role.DECAY, required=False),
        Operand("clip_c_threshold", Role.DECAY, required=False),
    ),
    outputs=("targets", "td_errors"),
    coefficients=coefficients,
    finish=finish,
    uses_first=True,
)


def _check_expectation(name: str, next_expected_q: Any, next_q_values: Any, next_target_probs: Any) -> None:
    given = [x is not None for x in (next_q_values, next_target_probs)]
    if next_expected_q is None and not all(given):
        missing = " and ".join(
            label for label, there in zip(("`next_q_values`", "`next_target_probs`"), given, strict=True) if not there
        )
        raise ValueError(
            f"{name}: no value for the next state: pass `next_expected_q`, or `next_q_values` and `next_target_probs` "
            f"({missing} is missing)"
        )
    if next_expected_q is not None and any(given):
        raise ValueError(
            f"{name}: `next_expected_q` and `{'next_q_values' if given[0] else 'next_target_probs'}` both say what follows: "
            "keep one form"
        )


def _call(front: FrontEnd, name: str, operands: dict[str, Any], axis: int, implementation: str | None) -> Retrace:
    if operands["q_values"] is None:
        raise TypeError(f"{name}: `q_values` is required")
    results = front.call(OFF_POLICY, operands, axis=axis, implementation=implementation, name=name)
    return Retrace(*results)


def retrace(
    front: FrontEnd,
    rewards: Any,
    q_values: Any,
    terminated: Any = None,
    truncated: Any = None,
    *,
    next_expected_q: Any = None,
    next_q_values: Any = None,
    next_target_probs: Any = None,
    log_rhos: Any = None,
    target_probs: Any = None,
    behavior_probs: Any = None,
    gamma: Any = 0.99,
    lambda_: Any = 1.0,
    clip_c_threshold: Any = 1.0,
    axis: int = 0,
    implementation: str | None = None,
) -> Retrace:
    """Retrace(lambda) (Munos et al. 2016, arXiv:1606.02647).

        delta_t = r_t + gamma_t E_{a ~ pi(.|s_{t+1})} Q(s_{t+1}, a) - Q_t      (no expectation where terminated)
        D_t     = delta_t + gamma_t lambda_{t} min(c_bar, rho_{t+1}) c_t D_{t+1},    D_T = 0
        targets = Q + D

    where rho_t = pi(a_t|s_t) / mu(a_t|s_t) and c_t = 1 iff no flag is set at t. Everything "next" belongs to the true
    s_{t+1}, before any reset; the expectation is under the policy at s_{t+1}, so exact action values are left as they are.

    Args:
      rewards: `[T, *batch]`, or any shape with the steps along `axis`; integers are promoted to float.
      q_values: Q(s_t, a_t), shaped as `rewards`.
      terminated: s_{t+1} is terminal, its value is 0. Any dtype, non-zero is true; as many axes as `rewards`, size-1 axes
        broadcast; None means never.
      truncated: the episode was cut off after step t; s_{t+1} is an ordinary state, row t+1 belongs to another episode.
      next_expected_q: shaped as `rewards`: E_{a ~ pi} Q(s_{t+1}, a). Either this or the next two.
      next_q_values: `[T, *batch, A]`: Q(s_{t+1}, a), the action axis last (`axis` counts the axes of `rewards`). The
        expectation is folded in; no `[T, *batch]` array of it is made on a GPU.
      next_target_probs: `[T, *batch, A]`: pi(a|s_{t+1}).
      log_rhos: shaped as `rewards`: log pi(a_t|s_t) - log mu(a_t|s_t) of the action taken. Row 0 is not used. Either this or the
        two probabilities.
      target_probs: shaped as `rewards`: pi(a_t|s_t) of the action taken.
      behavior_probs: shaped as `rewards`: mu(a_t|s_t) of the action taken.
      gamma: discount, a number or an array with as many axes as `rewards` (size-1 axes broadcast). May be traced.
      lambda_: trace decay in the same forms; lambda_[t] scales the trace from t+1 into t.
      clip_c_threshold: c_bar, in the forms of gamma; None does not clip. Given for each step, those of step t, as lambda_t and
        gamma_t, apply to the ratio of the next action, rho_{t+1}.
      axis: which axis of `rewards` holds the steps. Every other axis is batch; nothing is transposed.
      implementation: None (best for the platform), "triton" or "xla".

    Returns:
      Retrace(targets, td_errors): Q + D and D, shaped as `rewards`, in the promoted floating dtype of rewards, action values and
      ratios.

    Raises:
      TypeError: an argument is no array (or number, where one will do), or has a dtype that cannot be used.
      ValueError: a shape does not fit; no next value or two forms of it; no ratios or two forms of them; `axis` out of range;
        `implementation` cannot run here.
    """
    _check_expectation("retrace", next_expected_q, next_q_values, next_target_probs)
    check_ratios("retrace", log_rhos, ("target_probs", target_probs), ("behavior_probs", behavior_probs))
    operands = {
        "rewards": rewards,
        "q_values": q_values,
        "terminated": terminated,
        "truncated": truncated,
        "next_expected_q": next_expected_q,
        "next_q_values": next_q_values,
        "next_target_probs": next_target_probs,
        "log_rhos": log_rhos,
        "target_probs": target_probs,
        "behavior_probs": behavior_probs,
        "gamma": gamma,
        "lambda_": lambda_,
        "clip_c_threshold": clip_c_threshold,
    }
    return _call(front, "retrace", operands, axis, implementation)


def tree_backup(
    front: FrontEnd,
    rewards: Any,
    q_values: Any,
    terminated: Any = None,
    truncated: Any = None,
    *,
    next_expected_q: Any = None,
    next_q_values: Any = None,
    next_target_probs: Any = None,
    target_probs: Any,
    gamma: Any = 0.99,
    lambda_: Any = 1.0,
    axis: int = 0,
    implementation: str | None = None,
) -> Retrace:
    """Tree-backup(lambda) (Precup, Sutton, Singh 2000): `retrace` with the trace coefficient lambda pi(a_{t+1}|s_{t+1}).

        delta_t = r_t + gamma_t E_{a ~ pi(.|s_{t+1})} Q(s_{t+1}, a) - Q_t      (no expectation where terminated)
        D_t     = delta_t + gamma_t lambda_{t} pi(a_{t+1}|s_{t+1}) c_t D_{t+1},    D_T = 0

    Args:
      rewards, q_values, terminated, truncated, next_expected_q, next_q_values, next_target_probs: as in `retrace`.
      gamma, lambda_, axis, implementation: as in `retrace`.
      target_probs: shaped as `rewards`: pi(a_t|s_t) of the action taken. Row 0 is not used.

    Returns:
      Retrace(targets, td_errors), shaped as `rewards`.

    Raises:
      TypeError, ValueError: as in `retrace`.
    """
    _check_expectation("tree_backup", next_expected_q, next_q_values, next_target_probs)
    if target_probs is None:
        raise ValueError("tree_backup: `target_probs` is required: pi(a_t|s_t) of the action taken")
    operands = {
        "rewards": rewards,
        "q_values": q_values,
        "terminated": terminated,
        "truncated": truncated,
        "next_expected_q": next_expected_q,
        "next_q_values": next_q_values,
        "next_target_probs": next_target_probs,
        "target_probs": target_probs,
        "gamma": gamma,
        "lambda_": lambda_,
    }
    if lambda_ is None:
        raise TypeError("tree_backup: `lambda_` is required: a number or an array")
    return _call(front, "tree_backup", operands, axis, implementation)


def general_off_policy_returns(
    front: FrontEnd,
    rewards: Any,
    q_values: Any,
    terminated: Any = None,
    truncated: Any = None,
    *,
    next_expected_q: Any,
    coefficients: Any,
    gamma: Any = 0.99,
    axis: int = 0,
    implementation: str | None = None,
) -> Retrace:
    """The general off-policy return (Munos et al. 2016, arXiv:1606.02647, eq. 3), with trace coefficients of your own.

        delta_t = r_t + gamma_t next_expected_q[t] - Q_t      (no next value where terminated)
        D_t     = delta_t + gamma_t coefficients[t+1] c_t D_{t+1},    D_T = 0

    Args:
      rewards, q_values, terminated, truncated, next_expected_q, gamma, axis, implementation: as in `retrace`.
      coefficients: shaped as `rewards`: the trace coefficient of the action taken at t (lambda included). Row 0 is not used.

    Returns:
      Retrace(targets, td_errors), shaped as `rewards`.

    Raises:
      TypeError, ValueError: as in `retrace`.
    """
    name = "general_off_policy_returns"
    if next_expected_q is None or coefficients is None:
        raise ValueError(f"{name}: `{'coefficients' if coefficients is None else 'next_expected_q'}` is required")
    operands = {
        "rewards": rewards,
        "q_values": q_values,
        "terminated": terminated,
        "truncated": truncated,
        "next_expected_q": next_expected_q,
        "coefficients": coefficients,
        "gamma": gamma,
    }
    return _call(front, name, operands, axis, implementation)

"""V-trace: off-policy targets and policy-gradient advantages, and the advantage of PufferLib, which is V-trace's correction.

    w_t  = exp(log rho_t)
    D_t  = min(rho_bar, w_t) (r_t + gamma_t V'(t) - V_t) + gamma_t lambda_t min(c_bar, w_t) c_t D_{t+1},   D_T = 0
    vs_t = V_t + D_t
    pg_t = min(rho_bar_pg, w_t) (r_t + gamma_t vs'(t) - V_t)

c_t = 1 iff neither flag is set at t; vs'(t) = vs_{t+1} where the trace continues, V'(t) where a flag is set and at t = T-1;
V'(t) after the rule in `bootstrap`. Espeholt et al., "IMPALA" (2018), arXiv:1802.01561, eq. 1 and section 4.2.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from ..estimator import Estimator, Operand, Role
from ..front import FrontEnd
from .bootstrap import check_sources, next_value
from .ratios import check_ratios, log_ratio


class VTrace(NamedTuple):
    """Value targets vs and policy-gradient advantages, each shaped as `rewards`."""

    vs: Any
    pg_advantages: Any


def _clipped(xp: Any, ratio: Any, threshold: Any) -> Any:
    return ratio if threshold is None else xp.minimum(ratio, threshold)


def coefficients(xp: Any, x: Any, near: Any, first: Any) -> Any:
    ratio = xp.exp(log_ratio(x))
    v_next = next_value(xp, x, near["values"])
    delta = x["rewards"] + x["gamma"] * v_next - x["values"]
    a = x["gamma"] * x["lambda_"] * _clipped(xp, ratio, x["clip_c_threshold"])
    b = _clipped(xp, ratio, x["clip_rho_threshold"]) * delta
    return a, b, xp.any_of(x["terminated"], x["truncated"])


def finish(xp: Any, x: Any, near: Any, first: Any, y: Any, before: Any) -> Any:
    ratio = xp.exp(log_ratio(x))
    v_next = next_value(xp, x, near["values"])
    ends = xp.any_of(first, x["terminated"], x["truncated"])
    # V_{t+1} + D_{t+1}; what is near the first step is dead here, and its D is 0.
    continued = before if near["values"] is None else near["values"] + before
    vs_next = xp.where(ends, v_next, continued)
    advantage = x["rewards"] + x["gamma"] * vs_next - x["values"]
    return y + x["values"], _clipped(xp, ratio, x["clip_pg_rho_threshold"]) * advantage, y


VTRACE = Estimator(
    name="vtrace",
    operands=(
        Operand("rewards"),
        Operand("values", near=True, edge="last_values"),
        Operand("terminated", Role.FLAG),
        Operand("truncated", Role.FLAG),
        Operand("log_rhos"),
        Operand("target_log_probs"),
        Operand("behavior_log_probs"),
        Operand("last_values", Role.EDGE),
        Operand("next_values"),
        Operand("final_values", only_where="truncated"),
        Operand("gamma", Role.DECAY),
        Operand("lambda_", Role.DECAY),
        Operand("clip_rho_threshold", Role.DECAY, required=False),
        Operand("clip_c_threshold", Role.DECAY, required=False),
        Operand("clip_pg_rho_threshold", Role.DECAY, required=False),
        Operand("mask", Role.MASK),
    ),
    outputs=("vs", "pg_advantages", "errors"),
    coefficients=coefficients,
    finish=finish,
    uses_first=True,
    uses_before=True,
)


def vtrace(
    front: FrontEnd,
    rewards: Any,
    values: Any,
    terminated: Any = None,
    truncated: Any = None,
    *,
    log_rhos: Any = None,
    target_log_probs: Any = None,
    behavior_log_probs: Any = None,
    last_values: Any = None,
    next_values: Any = None,
    final_values: Any = None,
    gamma: Any = 0.99,
    lambda_: Any = 1.0,
    clip_rho_threshold: Any = 1.0,
    clip_c_threshold: Any = 1.0,
    clip_pg_rho_threshold: Any = 1.0,
    mask: Any = None,
    axis: int = 0,
    implementation: str | None = None,
) -> VTrace:
    """V-trace (Espeholt et al. 2018, arXiv:1802.01561).

        w_t  = exp(log_rhos[t])
        D_t  = min(rho_bar, w_t) (r_t + gamma_t V'(t) - V_t) + gamma_t lambda_t min(c_bar, w_t) c_t D_{t+1},    D_T = 0
        vs_t = V_t + D_t
        pg_t = min(rho_bar_pg, w_t) (r_t + gamma_t vs'(t) - V_t)

    where c_t = 1 iff no flag is set at t; vs'(t) = vs_{t+1} where the trace continues (whatever lambda_), V'(t) where a
    flag is set and at t = T-1. V'(t), the value of the next state, is 0 where terminated; else final_values[t] where
    truncated; else V_{t+1}, with `last_values` after the last step (or next_values[t] everywhere).

    Args:
      rewards: `[T, *batch]`, or any shape with the steps along `axis`; integers are promoted to float.
      values: V(s_t), shaped as `rewards`; with one more step (T+1) its last row is V(s_T).
      terminated: s_{t+1} is terminal, its value is 0. Any dtype, non-zero is true; as many axes as `rewards`, size-1 axes
        broadcast; None means never.
      truncated: the episode was cut off after step t. Needs `final_values` or `next_values`.
      log_rhos: shaped as `rewards`: log pi(a_t|s_t) - log mu(a_t|s_t). Either this or the two log-probabilities.
      target_log_probs: shaped as `rewards`: log pi(a_t|s_t).
      behavior_log_probs: shaped as `rewards`: log mu(a_t|s_t).
      last_values: `[*batch]` or a number: V(s_T). Exactly one of `last_values`, `next_values` or T+1 `values` must be given.
      next_values: shaped as `rewards`: V(s_{t+1}) for every step, before any reset.
      final_values: shaped as `rewards`, read only where truncated and not terminated; elsewhere it may hold anything.
      gamma: discount, a number or an array with as many axes as `rewards` (size-1 axes broadcast). May be traced.
      lambda_: trace decay in the same forms.
      clip_rho_threshold: rho_bar, in the forms of gamma; None does not clip.
      clip_c_threshold: c_bar; likewise.
      clip_pg_rho_threshold: rho_bar_pg; likewise.
      mask: True at real steps; results there are those of the sequence with the masked steps cut out, and 0 at masked steps.
      axis: which axis holds the steps. Every other axis is batch; nothing is transposed.
      implementation: None (best for the platform), "triton" or "xla".

    Returns:
      VTrace(vs, pg_advantages), shaped as `rewards`, in the promoted floating dtype of rewards, values and ratios. Gradients flow
      through both; stop them where the algorithm says so.

    Raises:
      TypeError: an argument is no array (or number, where one will do), or has a dtype that cannot be used.
      ValueError: a shape does not fit; no source of V(s_T) or two; no ratios or two forms of them; `truncated` without
        `final_values` or `next_values`; `axis` out of range; `implementation` cannot run here.
    """
    if values is None:
        raise TypeError("vtrace: `values` is required")
    check_sources(
        "vtrace",
        rewards=rewards,
        values=values,
        truncated=truncated,
        last_values=last_values,
        next_values=next_values,
        final_values=final_values,
        axis=axis,
    )
    check_ratios("vtrace", log_rhos, ("target_log_probs", target_log_probs), ("behavior_log_probs", behavior_log_probs))
    operands = {
        "rewards": rewards,
        "values": values,
        "terminated": terminated,
        "truncated": truncated,
        "log_rhos": log_rhos,
        "target_log_probs": target_log_probs,
        "behavior_log_probs": behavior_log_probs,
        "last_values": last_values,
        "next_values": next_values,
        "final_values": final_values,
        "gamma": gamma,
        "lambda_": lambda_,
        "clip_rho_threshold": clip_rho_threshold,
        "clip_c_threshold": clip_c_threshold,
        "clip_pg_rho_threshold": clip_pg_rho_threshold,
        "mask": mask,
    }
    return VTrace(*front.call(VTRACE, operands, axis=axis, wanted=(True, True, False), implementation=implementation))


def puffer_advantage(
    front: FrontEnd,
    rewards: Any,
    values: Any,
    terminated: Any = None,
    truncated: Any = None,
    *,
    log_rhos: Any,
    last_values: Any = None,
    next_values: Any = None,
    final_values: Any = None,
    gamma: Any = 0.99,
    lambda_: Any = 0.95,
    clip_rho_threshold: Any = 1.0,
    clip_c_threshold: Any = 1.0,
    axis: int = 0,
    implementation: str | None = None,
) -> Any:
    """PufferLib's advantage: GAE with V-trace's clipped importance weights.

        A_t = min(rho_bar, w_t) (r_t + gamma_t V'(t) - V_t) + gamma_t lambda_t min(c_bar, w_t) c_t A_{t+1},    A_T = 0

    with w_t = exp(log_rhos[t]), c_t = 1 iff no flag is set at t, and V'(t) as in `vtrace` (Espeholt et al. 2018,
    arXiv:1802.01561). With ratios of 1 it is `gae`'s advantage. Flags describe transition t; PufferLib's own indexing, where they
    belong to the row after, is not used here.

    Args:
      rewards, values, terminated, truncated, last_values, next_values, final_values, gamma, lambda_, axis, implementation: as in
        `vtrace`.
      log_rhos: shaped as `rewards`: log pi(a_t|s_t) - log mu(a_t|s_t).
      clip_rho_threshold: rho_bar, a number or array in the forms of gamma; None does not clip.
      clip_c_threshold: c_bar; likewise.

    Returns:
      A, shaped as `rewards`, in the promoted floating dtype of rewards, values and ratios.

    Raises:
      TypeError, ValueError: as in `vtrace`.
    """
    if values is None:
        raise TypeError("puffer_advantage: `values` is required")
    check_sources(
        "puffer_advantage",
        rewards=rewards,
        values=values,
        truncated=truncated,
        last_values=last_values,
        next_values=next_values,
        final_values=final_values,
        axis=axis,
    )
    check_ratios("puffer_advantage", log_rhos)
    operands = {
        "rewards": rewards,
        "values": values,
        "terminated": terminated,
        "truncated": truncated,
        "log_rhos": log_rhos,
        "last_values": last_values,
        "next_values": next_values,
        "final_values": final_values,
        "gamma": gamma,
        "lambda_": lambda_,
        "clip_rho_threshold": clip_rho_threshold,
        "clip_c_threshold": clip_c_threshold,
    }
    (advantages,) = front.call(
        VTRACE,
        operands,
        axis=axis,
        wanted=(False, False, True),
        implementation=implementation,
        name="puffer_advantage",
    )
    return advantages

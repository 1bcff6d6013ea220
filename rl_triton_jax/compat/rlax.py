"""rlax's multi-step returns, V-trace, and the temporal-difference errors made of them.

    from rl_triton_jax.compat import rlax

rlax takes one trajectory, `[T]`, and is vmapped over more; here further axes may follow (`[T, B]`), and `vmap` costs nothing
either way. A zero in `discount_t` ends an episode: nothing behind it is read, so no gradient flows through it to what it
multiplies. `stop_target_gradients` means what it means there.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.core import Tracer

from .. import discounted_returns as _discounted_returns
from .. import gae, linear_recurrence
from .. import lambda_returns as _lambda_returns
from .. import n_step_returns as _n_step_returns
from .notice import warn_once


class VTraceOutput(NamedTuple):
    """Errors vs - v, advantages for the policy gradient, and the action values that these come from."""

    errors: jax.Array
    pg_advantage: jax.Array
    q_estimate: jax.Array


def _stopped(stop: Any, x: Any) -> Any:
    """`x` without its gradient, where `stop`."""
    if isinstance(stop, Tracer):
        return jax.lax.select(stop, jax.lax.stop_gradient(x), x)
    return jax.lax.stop_gradient(x) if stop else x


def _error(stop: Any, error: Any, prediction: Any) -> Any:
    """`error`, or where `stop` the same number with the gradient of a constant minus the prediction."""
    return _stopped(stop, error + prediction) - prediction if isinstance(stop, Tracer) or stop else error


def _taken(values: Any, actions: Any) -> Any:
    """values[..., a] of the actions."""
    return jnp.take_along_axis(values, actions[..., None], -1)[..., 0]


def _one_step(r_t: Any, discount_t: Any, v_t: Any) -> Any:
    return jnp.where(discount_t == 0, r_t, r_t + discount_t * v_t)


def lambda_returns(
    r_t: Any, discount_t: Any, v_t: Any, lambda_: Any = 1.0, stop_target_gradients: bool = False
) -> jax.Array:
    """G_t = r_t + discount_t [(1 - lambda_t) v_t + lambda_t G_{t+1}], G_T = v_{T-1}.

    Args:
      r_t, discount_t, v_t: `[T]`: reward, discount and value that follow step t.
      lambda_: a number or `[T]`.

    Returns:
      G, `[T]`.
    """
    returns = _lambda_returns(r_t, None, discount_t == 0, next_values=v_t, gamma=discount_t, lambda_=lambda_)
    return _stopped(stop_target_gradients, returns)


def discounted_returns(r_t: Any, discount_t: Any, v_t: Any, stop_target_gradients: bool = False) -> jax.Array:
    """G_t = r_t + discount_t G_{t+1}, G_T the last of `v_t`.

    Args:
      r_t, discount_t: `[T]`.
      v_t: `[T]` or a number; only the last is used.

    Returns:
      G, `[T]`.
    """
    last = v_t
    if jnp.ndim(v_t) == jnp.ndim(r_t):
        if jnp.shape(v_t) != jnp.shape(r_t):
            raise ValueError(f"discounted_returns: `v_t` has shape {jnp.shape(v_t)}, `r_t` has {jnp.shape(r_t)}")
        last = v_t[-1]
    returns = _discounted_returns(r_t, discount_t == 0, last_values=last, gamma=discount_t)
    return _stopped(stop_target_gradients, returns)


def n_step_bootstrapped_returns(
    r_t: Any, discount_t: Any, v_t: Any, n: int, lambda_t: Any = 1.0, stop_target_gradients: bool = False
) -> jax.Array:
    """n steps of G_t = r_t + discount_t [(1 - lambda_t) v_t + lambda_t G_{t+1}], from the value of the last state reached.

    Args:
      r_t, discount_t, v_t: `[T]`: reward, discount and value that follow step t.
      n: number of steps.
      lambda_t: a number or `[T]`.

    Returns:
      G, `[T]`.
    """
    ended = discount_t == 0
    gamma = discount_t
    if not (isinstance(lambda_t, (int, float)) and lambda_t == 1):
        r_t = jnp.where(ended, r_t, r_t + discount_t * (1 - lambda_t) * v_t)
        gamma = discount_t * lambda_t
    return _stopped(stop_target_gradients, _n_step_returns(r_t, None, ended, n=n, next_values=v_t, gamma=gamma))


def importance_corrected_td_errors(
    r_t: Any, discount_t: Any, rho_tm1: Any, lambda_: Any, values: Any, stop_target_gradients: bool = False
) -> jax.Array:
    """E_t = rho_t (r_t + discount_t V_{t+1} - V_t + discount_t lambda_t E_{t+1}), E_T = 0.

    Args:
      r_t, discount_t: `[T]`.
      rho_tm1: `[T]`: pi(a_t|s_t) / mu(a_t|s_t), not clipped.
      lambda_: a number or `[T]`.
      values: `[T+1]`: V of every state.

    Returns:
      E, `[T]`.
    """
    v_tm1, v_t = values[:-1], values[1:]
    deltas = _one_step(r_t, discount_t, v_t) - v_tm1
    errors = linear_recurrence(discount_t * lambda_ * rho_tm1, rho_tm1 * deltas, reset=discount_t == 0, reverse=True)
    return _error(stop_target_gradients, errors, v_tm1)


def truncated_generalized_advantage_estimation(
    r_t: Any, discount_t: Any, lambda_: Any, values: Any, stop_target_gradients: bool = False
) -> jax.Array:
    """A_t = r_t + discount_t V_{t+1} - V_t + discount_t lambda_t A_{t+1}, A_T = 0.

    Args:
      r_t, discount_t: `[T]`.
      lambda_: a number or `[T]`.
      values: `[T+1]`: V of every state.

    Returns:
      A, `[T]`.
    """
    advantages = gae(r_t, values, discount_t == 0, gamma=discount_t, lambda_=lambda_, with_returns=False).advantages
    return _stopped(stop_target_gradients, advantages)


def general_off_policy_returns_from_q_and_v(
    q_t: Any, v_t: Any, r_t: Any, discount_t: Any, c_t: Any, stop_target_gradients: bool = False
) -> jax.Array:
    """G_t = r_t + discount_t (v_t - c_t q_t + c_t G_{t+1}), without the trace at t = K-1.

    Args:
      q_t, c_t: `[K-1]`: value and trace coefficient of the action that follows step t.
      v_t, r_t, discount_t: `[K]`.

    Returns:
      G, `[K]`.
    """
    if jnp.shape(q_t) != jnp.shape(v_t[:-1]) or jnp.shape(c_t) != jnp.shape(v_t[:-1]):
        raise ValueError(
            f"general_off_policy_returns_from_q_and_v: `q_t` {jnp.shape(q_t)} and `c_t` {jnp.shape(c_t)} must have one step "
            f"less than `v_t` {jnp.shape(v_t)}"
        )
    traced = discount_t[:-1] * c_t
    none = jnp.zeros_like(v_t[-1:])
    constant = _one_step(r_t, discount_t, v_t)
    constant -= jnp.concatenate([jnp.where(discount_t[:-1] == 0, 0, traced * q_t), none])
    returns = linear_recurrence(jnp.concatenate([traced, none]), constant, reset=discount_t == 0, reverse=True)
    return _stopped(stop_target_gradients, returns)


def general_off_policy_returns_from_action_values(
    q_t: Any, a_t: Any, r_t: Any, discount_t: Any, c_t: Any, pi_t: Any, stop_target_gradients: bool = False
) -> jax.Array:
    """`general_off_policy_returns_from_q_and_v` with v_t the expectation of q_t under pi_t, and q_t that of the action a_t.

    Args:
      q_t, pi_t: `[K, A]`: action values and policy at the state that follows step t.
      a_t, r_t, discount_t, c_t: `[K]`.

    Returns:
      G, `[K]`.
    """
    expected = (pi_t * q_t).sum(-1)
    return general_off_policy_returns_from_q_and_v(
        _taken(q_t, a_t)[:-1], expected, r_t, discount_t, c_t[:-1], stop_target_gradients
    )


def _corrections(
    v_tm1: Any, v_t: Any, r_t: Any, discount_t: Any, rho: Any, c: Any, stop: Any, sample_mask: Any
) -> jax.Array:
    """D_t = rho_t (r_t + discount_t v_t - v_{t-1}) + discount_t c_t D_{t+1}; at steps outside of the mask, D_{t+1}."""
    deltas = rho * (_one_step(r_t, discount_t, v_t) - v_tm1)
    decays = discount_t * c
    ended = discount_t == 0
    if sample_mask is not None:
        decays = jnp.where(sample_mask, decays, 1)
        deltas = jnp.where(sample_mask, deltas, 0)
        ended = ended & sample_mask
    return _error(stop, linear_recurrence(decays, deltas, reset=ended, reverse=True), v_tm1)


def vtrace(
    v_tm1: Any,
    v_t: Any,
    r_t: Any,
    discount_t: Any,
    rho_tm1: Any,
    lambda_: Any = 1.0,
    clip_rho_threshold: Any = 1.0,
    stop_target_gradients: bool = True,
    sample_mask: Any = None,
) -> jax.Array:
    """V-trace errors vs - v.

        D_t = min(rho_bar, rho_t) (r_t + discount_t v_t - v_{t-1}) + discount_t lambda_t min(1, rho_t) D_{t+1},    D_T = 0

    Args:
      v_tm1, v_t: `[T]`: value of the state of step t, and of the one that follows.
      r_t, discount_t: `[T]`.
      rho_tm1: `[T]`: pi(a_t|s_t) / mu(a_t|s_t).
      lambda_: a number or `[T]`; lambda_t = 0 cuts the trace.
      clip_rho_threshold: rho_bar.
      sample_mask: `[T]` of bool: False passes D over a step; the value there is that of the next one.

    Returns:
      D, `[T]`.
    """
    return leaky_vtrace(
        v_tm1, v_t, r_t, discount_t, rho_tm1, 1.0, lambda_, clip_rho_threshold, stop_target_gradients, sample_mask
    )


def _leaky(alpha: Any, rho: Any, threshold: Any) -> Any:
    clipped = jnp.minimum(threshold, rho)
    if isinstance(alpha, (int, float)) and alpha == 1:
        return clipped
    return (1 - alpha) * rho + alpha * clipped


def leaky_vtrace(
    v_tm1: Any,
    v_t: Any,
    r_t: Any,
    discount_t: Any,
    rho_tm1: Any,
    alpha_: Any = 1.0,
    lambda_: Any = 1.0,
    clip_rho_threshold: Any = 1.0,
    stop_target_gradients: bool = True,
    sample_mask: Any = None,
) -> jax.Array:
    """`vtrace` with (1 - alpha) rho + alpha min(threshold, rho) in place of each clipped ratio.

    Zahavy et al., "A Self-Tuning Actor-Critic Algorithm" (2020), arXiv:2002.12928.
    """
    c = _leaky(alpha_, rho_tm1, 1.0) * lambda_
    rho = _leaky(alpha_, rho_tm1, clip_rho_threshold)
    return _corrections(v_tm1, v_t, r_t, discount_t, rho, c, stop_target_gradients, sample_mask)


def vtrace_td_error_and_advantage(
    v_tm1: Any,
    v_t: Any,
    r_t: Any,
    discount_t: Any,
    rho_tm1: Any,
    lambda_: Any = 1.0,
    clip_rho_threshold: Any = 1.0,
    clip_pg_rho_threshold: Any = 1.0,
    stop_target_gradients: bool = True,
    sample_mask: Any = None,
    *,
    corrected: bool = False,
) -> VTraceOutput:
    """V-trace errors, and advantages for the policy gradient.

        errors_t = `vtrace`
        q_t      = r_t + discount_t [(1 - lambda_t) v_{t+1} + lambda_t (v_{t+1} + errors_{t+1})]
        pg_t     = min(rho_bar_pg, rho_t) (q_t - v_t)

    where v_{t+1} is the value in the *next row* of `v_tm1`, and the last of `v_t` at T-1. Where lambda_t = 0 marks a
    truncation, the next row belongs to another episode, and q_t is wrong; `corrected=True` takes v_{t+1} from `v_t`, which
    belongs to this one. A vector `lambda_` warns once of it. `rl_triton_jax.vtrace(truncated=..., next_values=...)` is right.

    Args:
      v_tm1, v_t, r_t, discount_t, rho_tm1, lambda_, clip_rho_threshold, sample_mask: as in `vtrace`.
      clip_pg_rho_threshold: rho_bar_pg.
      corrected: see above.

    Returns:
      VTraceOutput(errors, pg_advantage, q_estimate), `[T]` each.
    """
    return leaky_vtrace_td_error_and_advantage(
        v_tm1,
        v_t,
        r_t,
        discount_t,
        rho_tm1,
        1.0,
        lambda_,
        clip_rho_threshold,
        clip_pg_rho_threshold,
        stop_target_gradients,
        sample_mask,
        corrected=corrected,
    )


def leaky_vtrace_td_error_and_advantage(
    v_tm1: Any,
    v_t: Any,
    r_t: Any,
    discount_t: Any,
    rho_tm1: Any,
    alpha: Any = 1.0,
    lambda_: Any = 1.0,
    clip_rho_threshold: Any = 1.0,
    clip_pg_rho_threshold: Any = 1.0,
    stop_target_gradients: bool = True,
    sample_mask: Any = None,
    *,
    corrected: bool = False,
) -> VTraceOutput:
    """`vtrace_td_error_and_advantage` with the ratios of `leaky_vtrace`."""
    if jnp.ndim(lambda_) and not corrected:
        warn_once(
            "rlax's V-trace advantage takes the value after a step with lambda_t = 0 from the next row, which is another "
            "episode's where that marks a truncation; corrected=True takes it from v_t, and "
            "rl_triton_jax.vtrace(..., truncated=..., next_values=...) tells truncation apart"
        )
    errors = leaky_vtrace(
        v_tm1, v_t, r_t, discount_t, rho_tm1, alpha, lambda_, clip_rho_threshold, stop_target_gradients, sample_mask
    )
    targets = errors + v_tm1
    mixed = lambda_ if jnp.ndim(lambda_) == 0 else lambda_[:-1]
    after = v_t[:-1] if corrected else v_tm1[1:]
    # Where the trace was cut, what is behind must not become a factor.
    following = jnp.where(mixed == 0, after, mixed * targets[1:] + (1 - mixed) * after)
    q_estimate = _one_step(r_t, discount_t, jnp.concatenate([following, v_t[-1:]]))
    return VTraceOutput(errors, _leaky(alpha, rho_tm1, clip_pg_rho_threshold) * (q_estimate - v_tm1), q_estimate)


def td_lambda(
    v_tm1: Any, r_t: Any, discount_t: Any, v_t: Any, lambda_: Any, stop_target_gradients: bool = True
) -> jax.Array:
    """`lambda_returns(r_t, discount_t, v_t, lambda_)` - v_tm1, `[T]`."""
    return lambda_returns(r_t, discount_t, v_t, lambda_, stop_target_gradients) - v_tm1


def sarsa_lambda(
    q_tm1: Any,
    a_tm1: Any,
    r_t: Any,
    discount_t: Any,
    q_t: Any,
    a_t: Any,
    lambda_: Any,
    stop_target_gradients: bool = True,
) -> jax.Array:
    """`td_lambda` of the values of the actions taken: q_tm1 and q_t are `[T, A]`, a_tm1 and a_t `[T]`."""
    returns = lambda_returns(r_t, discount_t, _taken(q_t, a_t), lambda_, stop_target_gradients)
    return returns - _taken(q_tm1, a_tm1)


def q_lambda(
    q_tm1: Any,
    a_tm1: Any,
    r_t: Any,
    discount_t: Any,
    q_t: Any,
    lambda_: Any,
    stop_target_gradients: bool = True,
) -> jax.Array:
    """Peng's Q(lambda), Watkins' with a vector `lambda_`: `td_lambda` with v_t the maximum of q_t, `[T, A]`."""
    returns = lambda_returns(r_t, discount_t, jnp.max(q_t, -1), lambda_, stop_target_gradients)
    return returns - _taken(q_tm1, a_tm1)


def retrace(
    q_tm1: Any,
    q_t: Any,
    a_tm1: Any,
    a_t: Any,
    r_t: Any,
    discount_t: Any,
    pi_t: Any,
    mu_t: Any,
    lambda_: Any,
    eps: float = 1e-8,
    stop_target_gradients: bool = True,
) -> jax.Array:
    """Retrace(lambda) errors G - q_{t-1}, with c_t = lambda min(1, pi_t(a_t) / (mu_t + eps)).

    Args:
      q_tm1: `[T, A]`: action values of step t.
      q_t, pi_t: `[T, A]`: action values and policy at the state that follows.
      a_tm1, a_t: `[T]`: the action of step t, and of the state that follows.
      r_t, discount_t: `[T]`.
      mu_t: `[T]`: what the behaviour policy gave a_t.
      lambda_: a number.

    Returns:
      Errors, `[T]`.
    """
    c_t = jnp.minimum(1.0, _taken(pi_t, a_t) / (mu_t + eps)) * lambda_
    returns = general_off_policy_returns_from_action_values(q_t, a_t, r_t, discount_t, c_t, pi_t, stop_target_gradients)
    return returns - _taken(q_tm1, a_tm1)


def retrace_continuous(
    q_tm1: Any,
    q_t: Any,
    v_t: Any,
    r_t: Any,
    discount_t: Any,
    log_rhos: Any,
    lambda_: Any,
    stop_target_gradients: bool = True,
) -> jax.Array:
    """Retrace(lambda) errors for continuous actions, with c_t = lambda_t min(1, exp(log_rhos_t)).

    Args:
      q_tm1: `[K]`: value of the action of step t.
      q_t, log_rhos: `[K-1]`: value and log-ratio of the action that follows.
      v_t, r_t, discount_t: `[K]`.
      lambda_: a number or `[K-1]`.

    Returns:
      Errors, `[K]`.
    """
    c_t = jnp.minimum(1.0, jnp.exp(log_rhos)) * lambda_
    return general_off_policy_returns_from_q_and_v(q_t, v_t, r_t, discount_t, c_t, stop_target_gradients) - q_tm1

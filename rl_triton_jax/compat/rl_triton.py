"""The functions of rl-triton (version 0.1.3), on torch tensors of any device, dtype and strides.

    from rl_triton_jax.compat.rl_triton import compute_gae

Arrays are batch-major, `[num_envs, seq_len]`. Flags may have any dtype, non-zero is true; both set is a termination. Flags are
selected by, not multiplied with, so what lies in a dead place stays there. rl-triton wants float32 CUDA tensors; these take what
the estimators of `rl_triton_jax.torch` take, without a copy unless one is named. No gradient flows, as there.
"""

from __future__ import annotations

from typing import Any

import torch

from .. import torch as front
from .notice import warn_once

Tensor = torch.Tensor


def _window(
    name: str,
    rewards: Tensor,
    truncateds: Tensor | None,
    bootstrap_values: Tensor | None,
    last_value: Tensor | None = None,
) -> dict[str, Any]:
    """The value after the last step, and those after steps cut off, out of `bootstrap_values` or `last_value`."""
    if last_value is not None:
        if bootstrap_values is not None:
            raise ValueError(f"{name}: give `last_value` or `bootstrap_values`, not both")
        if truncateds is not None:
            raise ValueError(f"{name}: `last_value` does not go with `truncateds`; give `bootstrap_values`")
        return {"last_values": last_value}
    if bootstrap_values is None:
        return {
            "last_values": 0.0,
            "final_values": None if truncateds is None else rewards.new_zeros(()).expand(rewards.shape),
        }
    return {
        "last_values": bootstrap_values[:, -1] if bootstrap_values.shape[1] else 0.0,
        "final_values": None if truncateds is None else bootstrap_values,
    }


@torch.no_grad()
def compute_gae(
    rewards: Tensor,
    values: Tensor,
    terminateds: Tensor,
    truncateds: Tensor | None = None,
    gamma: float = 0.99,
    lambda_: float = 0.95,
    bootstrap_values: Tensor | None = None,
    last_value: Tensor | None = None,
) -> Tensor:
    """GAE.

        delta_t = r_t + gamma V'_t - V_t;    A_t = delta_t + gamma lambda A_{t+1}

    where V'_t is V_{t+1}, `bootstrap_values[:, t]` at a truncated step and in the last column, 0 at a terminated one; A_{t+1}
    is 0 behind any of them.

    Args:
      rewards, values, terminateds, truncateds: `[N, T]`.
      gamma, lambda_: numbers.
      bootstrap_values: `[N, T]`, read at truncated steps and in the last column; None is 0.
      last_value: `[N]`: the last column alone. Not together with `truncateds` or `bootstrap_values`.

    Returns:
      A, `[N, T]`.

    Raises:
      ValueError: `last_value` given together with `truncateds` or `bootstrap_values`.
      TypeError, ValueError: as `rl_triton_jax.torch.gae`.
    """
    window = _window("compute_gae", rewards, truncateds, bootstrap_values, last_value)
    options: dict[str, Any] = {"gamma": gamma, "lambda_": lambda_, "with_returns": False, "axis": 1}
    return front.gae(rewards, values, terminateds, truncateds, **window, **options).advantages


@torch.no_grad()
def compute_vtrace(
    log_pi_target: Tensor,
    log_pi_behavior: Tensor,
    values: Tensor,
    rewards: Tensor,
    terminateds: Tensor,
    truncateds: Tensor | None = None,
    gamma: float = 0.99,
    rho_bar: float = 1.0,
    c_bar: float = 1.0,
    bootstrap_values: Tensor | None = None,
    last_value: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """V-trace (Espeholt et al. 2018, arXiv:1802.01561).

        vs_t - V_t = min(rho_bar, rho_t) (r_t + gamma V'_t - V_t) + gamma min(c_bar, rho_t) (vs_{t+1} - V_{t+1})
        A_t        = min(rho_bar, rho_t) (r_t + gamma vs'_t - V_t)

    with V' as in `compute_gae`, and vs' the next target where V' is the next value. The advantage too is clipped at `rho_bar`.

    Args:
      log_pi_target, log_pi_behavior: `[N, T]`: log-probabilities of the actions taken.
      values, rewards, terminateds, truncateds, bootstrap_values, last_value: as in `compute_gae`.
      gamma, rho_bar, c_bar: numbers.

    Returns:
      (vs, A), `[N, T]`.

    Raises:
      as `compute_gae`.
    """
    window = _window("compute_vtrace", rewards, truncateds, bootstrap_values, last_value)
    targets, advantages = front.vtrace(
        rewards,
        values,
        terminateds,
        truncateds,
        target_log_probs=log_pi_target,
        behavior_log_probs=log_pi_behavior,
        **window,
        gamma=gamma,
        clip_rho_threshold=rho_bar,
        clip_c_threshold=c_bar,
        clip_pg_rho_threshold=rho_bar,
        axis=1,
    )
    return targets, advantages


@torch.no_grad()
def compute_lambda_returns(
    rewards: Tensor,
    next_values: Tensor,
    terminateds: Tensor,
    truncateds: Tensor | None = None,
    gamma: float = 0.99,
    lambda_: float = 0.95,
    bootstrap_values: Tensor | None = None,
) -> Tensor:
    """lambda-returns.

        G_t = r_t + gamma [(1 - lambda) V_{t+1} + lambda G_{t+1}],    G_T = bootstrap_values[:, -1]

    r_t at a terminated step, r_t + gamma bootstrap_values[:, t] at a truncated one. The value of the last state counts once as
    `next_values[:, -1]` and once as `bootstrap_values[:, -1]`: give it twice, or G_T is 0. That takes a copy of `next_values`;
    `rl_triton_jax.torch.lambda_returns` wants it once and copies nothing.

    Args:
      rewards, terminateds, truncateds: `[N, T]`.
      next_values: `[N, T]`: V(s_{t+1}). Not read where an episode ends.
      gamma, lambda_: numbers.
      bootstrap_values: `[N, T]`, read at truncated steps and in the last column; None is 0.

    Returns:
      G, `[N, T]`.

    Raises:
      TypeError, ValueError: as `rl_triton_jax.torch.lambda_returns`.
    """
    last = (1 - lambda_) * next_values[:, -1:]
    if bootstrap_values is not None:
        last = last + lambda_ * bootstrap_values[:, -1:]
    after = torch.cat([next_values[:, :-1], last], 1)
    if truncateds is not None:
        after = torch.where(truncateds != 0, 0.0 if bootstrap_values is None else bootstrap_values, after)
    return front.lambda_returns(
        rewards,
        None,
        terminateds,
        truncateds,
        next_values=after,
        gamma=gamma,
        lambda_=lambda_,
        axis=1,
    )


@torch.no_grad()
def compute_discounted_returns(
    rewards: Tensor,
    terminateds: Tensor,
    truncateds: Tensor | None = None,
    gamma: float = 0.99,
    bootstrap_values: Tensor | None = None,
) -> Tensor:
    """Discounted returns.

        G_t = r_t + gamma G_{t+1},    G_T = bootstrap_values[:, -1]

    r_t at a terminated step, r_t + gamma bootstrap_values[:, t] at a truncated one.

    Args:
      rewards, terminateds, truncateds: `[N, T]`.
      gamma: a number.
      bootstrap_values: `[N, T]`, read at truncated steps and in the last column; None is 0.

    Returns:
      G, `[N, T]`.

    Raises:
      TypeError, ValueError: as `rl_triton_jax.torch.discounted_returns`.
    """
    window = _window("compute_discounted_returns", rewards, truncateds, bootstrap_values)
    return front.discounted_returns(rewards, terminateds, truncateds, **window, gamma=gamma, axis=1)


@torch.no_grad()
def compute_eligibility_traces(
    gradients: Tensor, dones: Tensor, gamma: float, lambda_: float, seed_values: Tensor | None = None
) -> Tensor:
    """Accumulating eligibility traces.

        z_t = g_t + gamma lambda (1 - done_{t-1}) z_{t-1},    z_{-1} = seed_values

    Args:
      gradients, dones: `[N, T]`.
      gamma, lambda_: numbers.
      seed_values: `[N]`; None is 0.

    Returns:
      z, `[N, T]`.

    Raises:
      TypeError, ValueError: as `rl_triton_jax.torch.eligibility_traces`.
    """
    return front.eligibility_traces(gradients, dones, initial=seed_values, gamma=gamma, lambda_=lambda_, axis=1)


@torch.no_grad()
def compute_episodic_prefix_sum(
    inputs: Tensor, dones: Tensor, seed_values: Tensor | None = None, boundary: str = "ends_at"
) -> Tensor:
    """Cumulative sums that start anew with each episode.

        C_t = x_t + C_{t-1},    C_{-1} = seed_values

    without C_{t-1} where done_{t-1} (`boundary="ends_at"`: the episode ends at the flag) or done_t (`"starts_at"`).

    Args:
      inputs, dones: `[N, T]`.
      seed_values: `[N]`; None is 0.
      boundary: "ends_at" or "starts_at".

    Returns:
      C, `[N, T]`.

    Raises:
      ValueError: another `boundary`.
      TypeError, ValueError: as `rl_triton_jax.torch.episodic_cumsum`.
    """
    resets = {"ends_at": "after", "starts_at": "before"}.get(boundary)
    if resets is None:
        raise ValueError(f'compute_episodic_prefix_sum: `boundary` is {boundary!r}, expected "ends_at" or "starts_at"')
    return front.episodic_cumsum(inputs, dones, initial=seed_values, resets=resets, axis=1)


@torch.no_grad()
def compute_retrace(
    action_probs_target: Tensor,
    action_probs_behavior: Tensor,
    q_values: Tensor,
    next_q_values_all: Tensor,
    actions: Tensor,
    rewards: Tensor,
    terminateds: Tensor,
    truncateds: Tensor,
    gamma: float,
    lambda_: float = 1.0,
    c_bar: float = 1.0,
    rho_bar: float = 1.0,
    *,
    next_action_probs_target: Tensor | None = None,
    corrected: bool = False,
) -> tuple[Tensor, Tensor]:
    """Retrace(lambda) (Munos et al. 2016, arXiv:1606.02647).

        Q'_t   = sum_a pi(a|.) Q(s_{t+1}, a),    0 at a terminated step
        Qret_t = r_t + gamma [Q'_t + c_{t+1} (Qret_{t+1} - Q_{t+1})],    c_t = lambda min(c_bar, rho_t)
        A_t    = min(rho_bar, rho_t) (r_t + gamma Qret_{t+1} - Q_t),    Qret_T = 0

    rl-triton takes pi(a|s_t) in Q', the policy of the state before, and in A the target of another episode behind a truncation,
    and 0 behind the last step. These numbers come out, after one warning. `corrected=True` takes pi(a|s_{t+1}), which is not
    among rl-triton's arguments, and in A the expectation Q'_t at truncated steps and at the last.

    Args:
      action_probs_target: `[N, T, A]`: pi(.|s_t).
      action_probs_behavior: `[N, T]`: mu(a_t|s_t).
      q_values: `[N, T]`: Q(s_t, a_t).
      next_q_values_all: `[N, T, A]`: Q(s_{t+1}, .).
      actions: `[N, T]`: the actions taken, of an integer dtype.
      rewards, terminateds, truncateds: `[N, T]`.
      gamma, lambda_, c_bar, rho_bar: numbers.
      next_action_probs_target: `[N, T, A]`: pi(.|s_{t+1}), with `corrected`.
      corrected: see above.

    Returns:
      (Qret, A), `[N, T]`.

    Raises:
      ValueError: `corrected` without `next_action_probs_target`, or that without `corrected`.
      TypeError, ValueError: as `rl_triton_jax.torch.retrace`.
    """
    if corrected != (next_action_probs_target is not None):
        raise ValueError(
            "compute_retrace: `corrected=True` and `next_action_probs_target`, pi(.|s_{t+1}), go together; "
            "give both or neither"
        )
    if not corrected:
        warn_once(
            "rl-triton's Retrace weighs Q(s_{t+1}, .) with pi(.|s_t), and takes advantages across truncations; "
            "rl_triton_jax.torch.retrace is right, and so is compute_retrace(..., corrected=True, next_action_probs_target=...)"
        )
    taken = torch.take_along_dim(action_probs_target, actions.long()[..., None], -1)[..., 0]
    probs = action_probs_target if next_action_probs_target is None else next_action_probs_target
    targets = front.retrace(
        rewards,
        q_values,
        terminateds,
        truncateds,
        next_q_values=next_q_values_all,
        next_target_probs=probs,
        target_probs=taken,
        behavior_probs=action_probs_behavior,
        gamma=gamma,
        lambda_=lambda_,
        clip_c_threshold=c_bar,
        axis=1,
    ).targets
    after = torch.nn.functional.pad(targets[:, 1:], (0, 1))
    if corrected:
        cut = truncateds != 0
        cut[:, -1:] = True
        after = torch.where(cut, (probs * next_q_values_all).sum(-1), after)
    one_step = torch.where(terminateds != 0, rewards, rewards + gamma * after)
    return targets, (taken / action_probs_behavior).clamp(max=rho_bar) * (one_step - q_values)

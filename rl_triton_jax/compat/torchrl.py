"""TorchRL's value functions (`torchrl.objectives.value.functional`).

    from rl_triton_jax.compat import torchrl

Tensors are `[*batch, T, features]` with time at `time_dim`, -2 by default, and stay as they lie: no transposed copy. `done` cuts
the trace, `terminated` (by default `done`) the value behind it too, and counts as done. Flags are selected by, not multiplied
with, so what lies in a dead place stays there. The `vec_` forms, there another way to compute the same up to 1e-7, are the same
functions here, and do what is not implemented there. Gradients flow, as there.
"""

from __future__ import annotations

from typing import Any

import torch

from .. import torch as front

Tensor = torch.Tensor


def _same_shapes(name: str, **tensors: Tensor) -> None:
    if len({x.shape for x in tensors.values()}) > 1:
        shapes = ", ".join(f"`{key}` {list(x.shape)}" for key, x in tensors.items())
        raise RuntimeError(f"{name}: all tensors must have the same shape, got {shapes}")


def _per_step(x: Any, like: Tensor) -> Any:
    """gamma or lambda as the estimators take it: a number, or one for each element."""
    return x.to(like.device).expand(like.shape) if isinstance(x, Tensor) and x.numel() != 1 else x


def generalized_advantage_estimate(
    gamma: float | Tensor,
    lmbda: float | Tensor,
    state_value: Tensor,
    next_state_value: Tensor,
    reward: Tensor,
    done: Tensor,
    terminated: Tensor | None = None,
    *,
    time_dim: int = -2,
) -> tuple[Tensor, Tensor]:
    """GAE (Schulman et al. 2016, arXiv:1506.02438).

        delta_t = r_t + gamma (1 - terminated_t) V(s_{t+1}) - V_t
        A_t     = delta_t + gamma lambda (1 - done_t) A_{t+1};    value target A + V

    Args:
      gamma, lmbda: numbers, or tensors shaped as `reward`.
      state_value, next_state_value, reward, done, terminated: all of one shape.
      time_dim: the axis of time.

    Returns:
      (advantage, value_target).

    Raises:
      RuntimeError: shapes differ, as in TorchRL.
    """
    terminated = done if terminated is None else terminated
    _same_shapes(
        "generalized_advantage_estimate",
        state_value=state_value,
        next_state_value=next_state_value,
        reward=reward,
        done=done,
        terminated=terminated,
    )
    advantage, target = front.gae(
        reward,
        state_value,
        terminated,
        done,
        next_values=next_state_value,
        gamma=_per_step(gamma, reward),
        lambda_=_per_step(lmbda, reward),
        axis=time_dim,
    )
    return advantage, target


vec_generalized_advantage_estimate = generalized_advantage_estimate


def td0_return_estimate(
    gamma: float | Tensor,
    next_state_value: Tensor,
    reward: Tensor,
    terminated: Tensor | None = None,
    *,
    done: Tensor | None = None,
) -> Tensor:
    """r_t + gamma (1 - terminated_t) V(s_{t+1}). `done` is the former name of `terminated`."""
    terminated = done if terminated is None else terminated
    if terminated is None:
        raise TypeError("td0_return_estimate: `terminated` is missing")
    _same_shapes("td0_return_estimate", next_state_value=next_state_value, reward=reward, terminated=terminated)
    return torch.where(terminated, reward, reward + gamma * next_state_value)


def td0_advantage_estimate(
    gamma: float | Tensor,
    state_value: Tensor,
    next_state_value: Tensor,
    reward: Tensor,
    done: Tensor,
    terminated: Tensor | None = None,
) -> Tensor:
    """`td0_return_estimate` - V."""
    terminated = done if terminated is None else terminated
    return td0_return_estimate(gamma, next_state_value, reward, terminated) - state_value


def td_lambda_return_estimate(
    gamma: float | Tensor,
    lmbda: float | Tensor,
    next_state_value: Tensor,
    reward: Tensor,
    done: Tensor,
    terminated: Tensor | None = None,
    rolling_gamma: bool | None = None,
    *,
    time_dim: int = -2,
) -> Tensor:
    """lambda-returns.

        G_t = r_t + gamma_t (1 - terminated_t) [(1 - lambda_t) V(s_{t+1}) + lambda_t G_{t+1}]

    with V(s_{t+1}) for G_{t+1} where done_t, and at the last step.

    Args:
      gamma, lmbda: numbers, or tensors shaped as `reward`.
      next_state_value, reward, done, terminated: all of one shape.
      rolling_gamma: False ties gamma_t and lambda_t to all of the return from t on, instead of to step t; work and memory then
        grow with T squared.
      time_dim: the axis of time.

    Returns:
      G.

    Raises:
      RuntimeError: shapes differ, or `rolling_gamma=False` with neither a gamma nor a lambda for each step, as in TorchRL.
    """
    terminated = done if terminated is None else terminated
    _same_shapes(
        "td_lambda_return_estimate", next_state_value=next_state_value, reward=reward, done=done, terminated=terminated
    )
    if rolling_gamma is not None and not rolling_gamma:
        return _fixed_per_return(
            "td_lambda_return_estimate", gamma, lmbda, next_state_value, reward, done, terminated, time_dim
        )
    return front.lambda_returns(
        reward,
        None,
        terminated,
        done,
        next_values=next_state_value,
        gamma=_per_step(gamma, reward),
        lambda_=_per_step(lmbda, reward),
        axis=time_dim,
    )


def _fixed_per_return(
    name: str,
    gamma: Any,
    lmbda: Any,
    next_state_value: Tensor,
    reward: Tensor,
    done: Tensor,
    terminated: Tensor,
    time_dim: int,
) -> Tensor:
    """Returns with the k-th gamma and lambda throughout, for every k; the k-th of these are those asked for."""
    if not any(isinstance(x, Tensor) and x.shape == reward.shape for x in (gamma, lmbda)):
        raise RuntimeError(f"{name}: rolling_gamma=False needs a gamma or a lambda for each step")
    axis = time_dim % reward.ndim

    def for_each(x: Any) -> Any:
        if not (isinstance(x, Tensor) and x.shape == reward.shape):
            return x
        return x.movedim(axis, 0).unsqueeze(axis + 1)

    every = (reward.shape[axis], *reward.shape)
    gamma, lmbda = (for_each(x).expand(every) if isinstance(x, Tensor) else x for x in (gamma, lmbda))
    next_state_value, reward, done, terminated = (x.expand(every) for x in (next_state_value, reward, done, terminated))
    full = td_lambda_return_estimate(gamma, lmbda, next_state_value, reward, done, terminated, time_dim=axis + 1)
    return full.diagonal(dim1=0, dim2=axis + 1).movedim(-1, axis)


def td_lambda_advantage_estimate(
    gamma: float | Tensor,
    lmbda: float | Tensor,
    state_value: Tensor,
    next_state_value: Tensor,
    reward: Tensor,
    done: Tensor,
    terminated: Tensor | None = None,
    rolling_gamma: bool | None = None,
    *,
    time_dim: int = -2,
) -> Tensor:
    """`td_lambda_return_estimate` - V."""
    returns = td_lambda_return_estimate(
        gamma, lmbda, next_state_value, reward, done, terminated, rolling_gamma, time_dim=time_dim
    )
    return returns - state_value


vec_td_lambda_return_estimate = td_lambda_return_estimate


def vec_td_lambda_advantage_estimate(
    gamma: float | Tensor,
    lmbda: float | Tensor,
    state_value: Tensor,
    next_state_value: Tensor,
    reward: Tensor,
    done: Tensor,
    terminated: Tensor | None = None,
    rolling_gamma: bool | None = None,
    time_dim: int = -2,
) -> Tensor:
    """`td_lambda_advantage_estimate`."""
    return td_lambda_advantage_estimate(
        gamma, lmbda, state_value, next_state_value, reward, done, terminated, rolling_gamma, time_dim=time_dim
    )


def td1_return_estimate(
    gamma: float | Tensor,
    next_state_value: Tensor,
    reward: Tensor,
    done: Tensor,
    terminated: Tensor | None = None,
    rolling_gamma: bool | None = None,
    time_dim: int = -2,
) -> Tensor:
    """Discounted returns: `td_lambda_return_estimate` with lambda = 1.

    With `rolling_gamma=False` the return of an episode that the last step leaves open starts from 0, not from the last value;
    that is what TorchRL does, there alone. `vec_td1_return_estimate` starts from the last value.
    """
    if rolling_gamma is not None and not rolling_gamma:
        last = torch.zeros_like(reward, dtype=torch.bool)
        last.select(time_dim, -1).fill_(True)
        terminated = done if terminated is None else terminated
        # An open end that starts from 0 is a termination.
        terminated = terminated | (last & ~done)
        done = done | last
    return td_lambda_return_estimate(
        gamma, 1.0, next_state_value, reward, done, terminated, rolling_gamma, time_dim=time_dim
    )


def td1_advantage_estimate(
    gamma: float | Tensor,
    state_value: Tensor,
    next_state_value: Tensor,
    reward: Tensor,
    done: Tensor,
    terminated: Tensor | None = None,
    rolling_gamma: bool | None = None,
    time_dim: int = -2,
) -> Tensor:
    """`td1_return_estimate` - V."""
    returns = td1_return_estimate(gamma, next_state_value, reward, done, terminated, rolling_gamma, time_dim=time_dim)
    return returns - state_value


def vec_td1_return_estimate(
    gamma: float | Tensor,
    next_state_value: Tensor,
    reward: Tensor,
    done: Tensor,
    terminated: Tensor | None = None,
    rolling_gamma: bool | None = None,
    time_dim: int = -2,
) -> Tensor:
    """`td_lambda_return_estimate` with lambda = 1."""
    return td_lambda_return_estimate(
        gamma, 1.0, next_state_value, reward, done, terminated, rolling_gamma, time_dim=time_dim
    )


def vec_td1_advantage_estimate(
    gamma: float | Tensor,
    state_value: Tensor,
    next_state_value: Tensor,
    reward: Tensor,
    done: Tensor,
    terminated: Tensor | None = None,
    rolling_gamma: bool | None = None,
    time_dim: int = -2,
) -> Tensor:
    """`vec_td1_return_estimate` - V."""
    returns = vec_td1_return_estimate(
        gamma, next_state_value, reward, done, terminated, rolling_gamma, time_dim=time_dim
    )
    return returns - state_value


def vtrace_advantage_estimate(
    gamma: float | Tensor,
    log_pi: Tensor,
    log_mu: Tensor,
    state_value: Tensor,
    next_state_value: Tensor,
    reward: Tensor,
    done: Tensor,
    terminated: Tensor | None = None,
    rho_thresh: float | Tensor = 1.0,
    c_thresh: float | Tensor = 1.0,
    time_dim: int = -2,
) -> tuple[Tensor, Tensor]:
    """V-trace (Espeholt et al. 2018, arXiv:1802.01561).

        vs_t - V_t = min(rho_bar, rho_t) (r_t + gamma (1 - terminated_t) V(s_{t+1}) - V_t)
                     + gamma (1 - done_t) min(c_bar, rho_t) (vs_{t+1} - V_{t+1})
        A_t        = min(rho_bar, rho_t) (r_t + gamma (1 - terminated_t) vs_{t+1} - V_t)

    with V(s_{t+1}) for vs_{t+1} where done_t, and at the last step. rho = exp(log_pi - log_mu).

    Args:
      gamma: a number, or a tensor shaped as `reward`.
      log_pi, log_mu: log-probabilities of the actions taken.
      state_value, next_state_value, reward, done, terminated: all of one shape.
      rho_thresh, c_thresh: rho_bar and c_bar.
      time_dim: the axis of time.

    Returns:
      (advantages, vs).

    Raises:
      RuntimeError: shapes differ, as in TorchRL.
    """
    terminated = done if terminated is None else terminated
    _same_shapes(
        "vtrace_advantage_estimate",
        state_value=state_value,
        next_state_value=next_state_value,
        reward=reward,
        done=done,
        terminated=terminated,
    )
    targets, advantages = front.vtrace(
        reward,
        state_value,
        terminated,
        done,
        target_log_probs=log_pi,
        behavior_log_probs=log_mu,
        next_values=next_state_value,
        gamma=_per_step(gamma, reward),
        clip_rho_threshold=rho_thresh,
        clip_c_threshold=c_thresh,
        clip_pg_rho_threshold=rho_thresh,
        axis=time_dim,
    )
    return advantages, targets


def reward2go(reward: Tensor, done: Tensor, gamma: float | Tensor, *, time_dim: int = -2) -> Tensor:
    """Discounted returns of complete episodes: G_t = r_t + gamma (1 - done_t) G_{t+1}, 0 behind the last step.

    Raises:
      ValueError: shapes differ, as in TorchRL.
    """
    if reward.shape != done.shape:
        raise ValueError(f"reward2go: `reward` has shape {list(reward.shape)}, `done` {list(done.shape)}")
    return front.discounted_returns(reward, done, gamma=_per_step(gamma, reward), axis=time_dim)

"""The advantages of CleanRL's `ppo*.py`, there written out in each script.

    from rl_triton_jax.compat.cleanrl import compute_gae

    with torch.no_grad():
        next_value = agent.get_value(next_obs).reshape(1, -1)
    advantages, returns = compute_gae(rewards, values, dones, next_value, next_done, args.gamma, args.gae_lambda)

CleanRL stores with observation t whether it is the first of an episode, so the flag that ends step t is `dones[t + 1]`, and
`next_done` after the last step. Time limits count as terminations there: to tell them apart, call `rl_triton_jax.torch.gae`.
"""

from __future__ import annotations

from typing import Any

from .frameworks import is_torch


def compute_gae(
    rewards: Any,
    values: Any,
    dones: Any,
    next_value: Any,
    next_done: Any,
    gamma: Any = 0.99,
    gae_lambda: Any = 0.95,
) -> tuple[Any, Any]:
    """GAE where dones[t] says that observation t is the first of an episode.

        delta_t = r_t + gamma (1 - done_{t+1}) V_{t+1} - V_t,    done_T = next_done, V_T = next_value
        A_t     = delta_t + gamma lambda (1 - done_{t+1}) A_{t+1},    A_T = 0;    returns = A + V

    Args:
      rewards, values, dones: `[T, N]`, torch tensors or JAX arrays. Any dtype of flags, non-zero is true.
      next_value, next_done: `[N]` or `[1, N]`.
      gamma, gae_lambda: numbers.

    Returns:
      (advantages, returns), `[T, N]`. No gradient flows: CleanRL computes them under `torch.no_grad`.

    Raises:
      TypeError, ValueError: as `rl_triton_jax.gae`.
    """
    batch = rewards.shape[1:]
    if is_torch(rewards, values):
        import torch

        from .. import torch as front

        with torch.no_grad():
            last_done = torch.as_tensor(next_done, device=dones.device).reshape(1, *batch)
            ended = torch.cat([dones[1:] != 0, last_done != 0])
            last = torch.as_tensor(next_value, device=values.device).reshape(batch)
            return front.gae(rewards, values, ended, last_values=last, gamma=gamma, lambda_=gae_lambda)
    import jax
    import jax.numpy as jnp

    from .. import gae

    ended = jnp.concatenate([dones[1:] != 0, jnp.reshape(next_done, (1, *batch)) != 0])
    last = jnp.reshape(next_value, batch)
    return jax.lax.stop_gradient(gae(rewards, values, ended, last_values=last, gamma=gamma, lambda_=gae_lambda))

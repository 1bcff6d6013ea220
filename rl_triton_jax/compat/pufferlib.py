"""PufferLib's `compute_puff_advantage` (version 3.0), on torch tensors and on JAX arrays.

    from rl_triton_jax.compat.pufferlib import compute_puff_advantage

In PufferLib a reward and a done stand in the row after the step that caused them, so the last column has no advantage and is
left as it is. Later versions compute something else under other names.
"""

from __future__ import annotations

from typing import Any

from .frameworks import is_torch


def compute_puff_advantage(
    values: Any,
    rewards: Any,
    dones: Any,
    importance: Any,
    advantages: Any,
    gamma: Any,
    gae_lambda: Any,
    rho_clip: Any,
    c_clip: Any,
) -> Any:
    """GAE with V-trace's clipped ratios.

        delta_t = min(rho_clip, i_t) (r_{t+1} + gamma (1 - done_{t+1}) V_{t+1} - V_t)
        A_t     = delta_t + gamma lambda min(c_clip, i_t) (1 - done_{t+1}) A_{t+1},    t < T-1, A_{T-1} = 0 in the sum

    Args:
      values, rewards, dones, importance: `[N, T]`; importance is pi / mu, not its logarithm.
      advantages: `[N, T]`. A tensor is written in place, but for its last column; a JAX array is not, use what is returned.
      gamma, gae_lambda, rho_clip, c_clip: numbers.

    Returns:
      The advantages: the tensor given, or a new JAX array with its last column. No gradient flows.

    Raises:
      TypeError, ValueError: as `rl_triton_jax.puffer_advantage`.
    """
    options = {
        "gamma": gamma,
        "lambda_": gae_lambda,
        "clip_rho_threshold": rho_clip,
        "clip_c_threshold": c_clip,
        "axis": 1,
    }
    if is_torch(values, rewards):
        import torch

        from .. import torch as front

        with torch.no_grad():
            ratios = torch.promote_types(importance.dtype, torch.float32)
            log_rhos = importance[:, :-1].to(ratios).log()
            found = front.puffer_advantage(rewards[:, 1:], values, dones[:, 1:] != 0, log_rhos=log_rhos, **options)
            advantages[:, :-1] = found
        return advantages
    import jax
    import jax.numpy as jnp

    from .. import puffer_advantage

    ratios = jnp.asarray(importance)[:, :-1]
    log_rhos = jnp.log(ratios.astype(jnp.promote_types(ratios.dtype, jnp.float32)))
    found = puffer_advantage(rewards[:, 1:], values, dones[:, 1:] != 0, log_rhos=log_rhos, **options)
    advantages = jnp.asarray(advantages)
    return jax.lax.stop_gradient(advantages.at[:, :-1].set(found.astype(advantages.dtype)))

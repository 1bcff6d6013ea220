"""verl's `compute_gae_advantage_return` (`verl.trainer.ppo.core_algos`), on torch tensors.

from rl_triton_jax.compat.verl import compute_gae_advantage_return
"""

from __future__ import annotations

import torch

from .. import torch as front


@torch.no_grad()
def compute_gae_advantage_return(
    token_level_rewards: torch.Tensor,
    values: torch.Tensor,
    response_mask: torch.Tensor,
    gamma: float | torch.Tensor,
    lam: float | torch.Tensor,
) -> tuple[torch.Tensor, torch.Tensor]:
    """GAE over the tokens of a response, whitened over all of them.

        A_t = r_t + gamma V_{t'} - V_t + gamma lambda A_{t'}        at real tokens, t' the next real one; 0 where there is none
        A_t = A_{t'}                                                at masked ones
        returns = A + V
        advantages = (A - mean) / sqrt(var + 1e-8)

    mean and var over the real tokens of the whole batch (var with n - 1), applied to masked ones too, as in verl: multiply with
    the mask, as verl's losses do. `rl_triton_jax.torch.gae(..., mask=..., normalize=True)` leaves zeros there, divides by n and
    does not wait for the device.

    Args:
      token_level_rewards, values: `[batch, response length]`.
      response_mask: the same shape, any dtype; zero passes both the next value and the advantage over a token.
      gamma, lam: numbers.

    Returns:
      (advantages, returns), shaped as `values`. No gradient flows.

    Raises:
      ValueError: the mask has no or one real token, as in verl; to see that, the host waits for the device, as in verl.
      TypeError, ValueError: as `rl_triton_jax.torch.gae`.
    """
    real = response_mask != 0
    count = real.sum()
    if count <= 1:
        raise ValueError(
            f"compute_gae_advantage_return: `response_mask` has {int(count)} real tokens, needs two or more"
        )
    advantages = front.gae(
        token_level_rewards, values, last_values=0.0, gamma=gamma, lambda_=lam, mask=real, axis=-1, with_returns=False
    ).advantages
    # What a masked token shows is the advantage that passes over it.
    advantages = front.linear_recurrence(torch.ones_like(advantages), advantages, reset=real, reverse=True, axis=-1)
    returns = advantages + values
    kept = torch.where(real, advantages, 0)
    mean = kept.sum() / (count + 1e-8)
    variance = torch.where(real, (advantages - mean) ** 2, 0).sum() / (count + 1e-8) * (count / (count - 1))
    return (advantages - mean) * torch.rsqrt(variance + 1e-8), returns

"""PureJaxRL's `_calculate_gae`, in its two alignments of `done`.

    from rl_triton_jax.compat.purejaxrl import calculate_gae        # ppo.py: done[t] says that step t ended the episode
    from rl_triton_jax.compat.purejaxrl import calculate_gae_rnn    # ppo_rnn.py: done[t] says that step t begins one

There they are closures over a configuration; here gamma and lambda are arguments, and may be traced. Every `done` counts as a
termination, as there: to tell truncation apart, call `rl_triton_jax.gae`.
"""

from __future__ import annotations

from typing import Any, Protocol

import jax
import jax.numpy as jnp

from .. import gae


class Transition(Protocol):
    """What is read of a trajectory: three arrays `[T, N]`."""

    @property
    def done(self) -> Any: ...
    @property
    def value(self) -> Any: ...
    @property
    def reward(self) -> Any: ...


def calculate_gae(traj_batch: Transition, last_val: Any, gamma: Any, gae_lambda: Any) -> tuple[jax.Array, jax.Array]:
    """GAE of a trajectory in which done[t] says that transition t ended its episode (`ppo.py`).

        delta_t = r_t + gamma (1 - done_t) V_{t+1} - V_t
        A_t     = delta_t + gamma lambda (1 - done_t) A_{t+1},    A_T = 0;    targets = A + V

    Args:
      traj_batch: anything with `done`, `value` and `reward`, `[T, N]`.
      last_val: `[N]`: V(s_T).
      gamma, gae_lambda: numbers.

    Returns:
      (advantages, targets), `[T, N]`. Gradients flow, as in PureJaxRL, which computes them outside of the loss.

    Raises:
      TypeError, ValueError: as `rl_triton_jax.gae`.
    """
    advantages, targets = gae(
        traj_batch.reward, traj_batch.value, traj_batch.done, last_values=last_val, gamma=gamma, lambda_=gae_lambda
    )
    return advantages, targets


def calculate_gae_rnn(
    traj_batch: Transition, last_val: Any, last_done: Any, gamma: Any, gae_lambda: Any
) -> tuple[jax.Array, jax.Array]:
    """GAE of a trajectory in which done[t] says that observation t is the first of an episode (`ppo_rnn.py`).

        delta_t = r_t + gamma (1 - done_{t+1}) V_{t+1} - V_t,    done_T = last_done
        A_t     = delta_t + gamma lambda (1 - done_{t+1}) A_{t+1},    A_T = 0;    targets = A + V

    Args:
      traj_batch: anything with `done`, `value` and `reward`, `[T, N]`.
      last_val, last_done: `[N]`: V(s_T), and whether s_T is the first state of an episode.
      gamma, gae_lambda: numbers.

    Returns:
      (advantages, targets), `[T, N]`.

    Raises:
      TypeError, ValueError: as `rl_triton_jax.gae`.
    """
    ended = jnp.concatenate([traj_batch.done[1:], jnp.asarray(last_done, traj_batch.done.dtype)[None]])
    advantages, targets = gae(
        traj_batch.reward, traj_batch.value, ended, last_values=last_val, gamma=gamma, lambda_=gae_lambda
    )
    return advantages, targets

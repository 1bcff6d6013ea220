"""Both worlds: an MJX environment simulated by JAX, a torch learner, and no copy in between.

    python examples/mjx_torch.py                       # needs brax: pip install brax
    python examples/mjx_torch.py --env ant             # any Brax environment
    python examples/mjx_torch.py --smoke

Observations, rewards and flags go to torch and actions go back through DLPack: the same memory under another name, on the CPU
as on a GPU. The program asserts it, by comparing addresses. What is stored for learning is written into the rollout's tensors
once, and `rl_triton_jax.torch.gae` reads them where they lie.

Brax's `AutoResetWrapper` hands over the first observation of the next episode at an end. The wrapper here keeps the one that
the episode ended in.
"""

from __future__ import annotations

import argparse
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import torch
from brax import envs
from torch import Tensor, nn
from tqdm import tqdm

import rl_triton_jax.torch
from rl_triton_jax.interop import to_jax, to_torch

CLIP, EPOCHS, MINIBATCHES = 0.2, 4, 4


class Outcome(NamedTuple):
    """Of one step of every environment; JAX arrays `[N, ...]`, or tensors once through `to_torch`."""

    obs: Any  # to act on next
    next_obs: Any  # before any reset
    reward: Any
    terminated: Any
    truncated: Any


class Simulation:
    """`num` environments side by side, reset where they ended; compiled."""

    def __init__(self, name: str, num: int, longest: int, backend: str) -> None:
        self.env = envs.get_environment(name, backend=backend)
        self.num, self.longest = num, longest
        self.reset = jax.jit(self._reset)
        self.step = jax.jit(self._step)

    def _reset(self, key: jax.Array) -> tuple[Any, jax.Array, Any]:
        state = jax.vmap(self.env.reset)(jax.random.split(key, self.num))
        return state, jnp.zeros(self.num, jnp.int32), state.obs

    def _step(self, key: jax.Array, state: Any, age: jax.Array, action: jax.Array) -> tuple[Any, jax.Array, Outcome]:
        after = jax.vmap(self.env.step)(state, action)
        age = age + 1
        terminated = after.done != 0
        truncated = ~terminated & (age >= self.longest)
        ended = terminated | truncated
        fresh = jax.vmap(self.env.reset)(jax.random.split(key, self.num))

        def pick(new: jax.Array, old: jax.Array) -> jax.Array:
            return jnp.where(ended.reshape(-1, *[1] * (new.ndim - 1)), new, old)

        following = jax.tree.map(pick, fresh, after)
        outcome = Outcome(following.obs, after.obs, after.reward, terminated, truncated)
        return following, jnp.where(ended, 0, age), outcome


class Agent(nn.Module):
    def __init__(self, features: int, actions: int, hidden: int = 64) -> None:
        super().__init__()
        self.actor = nn.Sequential(nn.Linear(features, hidden), nn.Tanh(), nn.Linear(hidden, actions))
        self.critic = nn.Sequential(nn.Linear(features, hidden), nn.Tanh(), nn.Linear(hidden, 1))
        self.log_std = nn.Parameter(torch.full((actions,), -0.5))

    def policy(self, obs: Tensor) -> torch.distributions.Independent:
        return torch.distributions.Independent(torch.distributions.Normal(self.actor(obs), self.log_std.exp()), 1)

    def value(self, obs: Tensor) -> Tensor:
        return self.critic(obs).squeeze(-1)


def shared(array: jax.Array) -> Tensor:
    """`to_torch`, and a look at the addresses."""
    tensor = to_torch(array)
    assert tensor.data_ptr() == array.unsafe_buffer_pointer(), "copied on the way to torch"
    return tensor


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--env", default="inverted_pendulum", help="a Brax environment")
    parser.add_argument("--backend", default="mjx", help="who simulates: mjx, generalized, spring or positional")
    parser.add_argument("--num-envs", type=int, default=64)
    parser.add_argument("--num-steps", type=int, default=64, help="of each environment between two updates")
    parser.add_argument("--longest", type=int, default=200, help="steps after which an episode is cut off")
    parser.add_argument("--updates", type=int, default=60)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--smoke", action="store_true", help="a few updates only, to see that everything runs")
    args = parser.parse_args()
    steps, num = (8, 4) if args.smoke else (args.num_steps, args.num_envs)
    updates = 2 if args.smoke else args.updates

    torch.manual_seed(args.seed)
    simulation = Simulation(args.env, num, args.longest, args.backend)
    key = jax.random.key(args.seed)
    state, age, first = simulation.reset(key)
    obs = shared(first)
    device = obs.device
    actions = simulation.env.action_size
    agent = Agent(obs.shape[1], actions).to(device)
    optimizer = torch.optim.Adam(agent.parameters(), lr=1e-3)

    def buffer(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
        return torch.zeros(steps, num, *shape, dtype=dtype, device=device)

    all_obs, all_next, all_actions = buffer(obs.shape[1]), buffer(obs.shape[1]), buffer(actions)
    log_probs, rewards = buffer(), buffer()
    terminated, truncated = buffer(dtype=torch.bool), buffer(dtype=torch.bool)
    so_far, finished = torch.zeros(num, device=device), []
    for _ in tqdm(range(updates), unit="update", disable=None):
        for t in range(steps):
            with torch.no_grad():
                policy = agent.policy(obs)
                action = policy.sample()
                all_obs[t], all_actions[t], log_probs[t] = obs, action, policy.log_prob(action)
            given = to_jax(action)
            assert given.unsafe_buffer_pointer() == action.data_ptr(), "copied on the way to JAX"
            key, key_step = jax.random.split(key)
            state, age, outcome = simulation.step(key_step, state, age, jnp.clip(given, -1, 1))
            seen = Outcome(*map(shared, outcome))
            obs = seen.obs
            all_next[t], rewards[t] = seen.next_obs, seen.reward
            terminated[t], truncated[t] = seen.terminated, seen.truncated
            so_far += seen.reward
            ended = seen.terminated | seen.truncated
            finished.extend(so_far[ended].tolist())
            so_far[ended] = 0
        with torch.no_grad():
            advantage, target = rl_triton_jax.torch.gae(
                rewards, agent.value(all_obs), terminated, truncated, next_values=agent.value(all_next)
            )
        batch = [x.flatten(0, 1) for x in (all_obs, all_actions, log_probs, advantage, target)]
        for _ in range(EPOCHS):
            for index in torch.randperm(steps * num, device=device).chunk(MINIBATCHES):
                o, a, log_prob, gain, goal = (x[index] for x in batch)
                ratio = (agent.policy(o).log_prob(a) - log_prob).exp()
                gain = (gain - gain.mean()) / (gain.std() + 1e-8)
                surrogate = torch.minimum(ratio * gain, ratio.clamp(1 - CLIP, 1 + CLIP) * gain)
                loss = -surrogate.mean() + 0.25 * (agent.value(o) - goal).square().mean()
                optimizer.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(agent.parameters(), 0.5)
                optimizer.step()
    last = finished[-50:]
    reached = (
        f"mean return {sum(last) / len(last):.1f} over the last {len(last)} episodes" if last else "no episode finished"
    )
    print(
        f"{args.env} by {args.backend}: {reached}; simulated on {next(iter(first.devices())).platform}, learned on {device.type}"
    )


if __name__ == "__main__":
    main()

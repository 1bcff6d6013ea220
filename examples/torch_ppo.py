"""PPO with torch and Gymnasium: a vectorised environment on the CPU, the learner on a GPU where there is one.

    python examples/torch_ppo.py                         # CartPole-v1
    python examples/torch_ppo.py --env Acrobot-v1        # any Gymnasium environment with discrete actions
    python examples/torch_ppo.py --smoke                 # a few updates only

Laid out as CleanRL's `ppo.py`, but for where episodes end. With `AutoresetMode.SAME_STEP` the observation returned at an end
is already the first of the next episode; the one that the episode really ended in is in `info["final_obs"]`. The rollout
keeps it, so that a step cut off by the time limit gets the value of its own final state.

Schulman, Wolski, Dhariwal, Radford, Klimov, "Proximal Policy Optimization Algorithms" (2017), arXiv:1707.06347.
"""

from __future__ import annotations

import argparse
import time

import gymnasium as gym
import numpy as np
import torch
from torch import Tensor, nn
from tqdm import tqdm

import rl_triton_jax.torch

CLIP, EPOCHS, MINIBATCHES = 0.2, 4, 4
GAMMA, LAMBDA = 0.98, 0.8


class Agent(nn.Module):
    def __init__(self, features: int, actions: int, hidden: int = 64) -> None:
        super().__init__()

        def mlp(outputs: int) -> nn.Sequential:
            return nn.Sequential(
                nn.Linear(features, hidden), nn.Tanh(), nn.Linear(hidden, hidden), nn.Tanh(), nn.Linear(hidden, outputs)
            )

        self.actor, self.critic = mlp(actions), mlp(1)

    def policy(self, obs: Tensor) -> torch.distributions.Categorical:
        return torch.distributions.Categorical(logits=self.actor(obs))

    def value(self, obs: Tensor) -> Tensor:
        return self.critic(obs).squeeze(-1)


class Rollout:
    """`[T, N, ...]` tensors on the learner's device, overwritten by each rollout."""

    def __init__(self, steps: int, envs: int, features: int, device: torch.device) -> None:
        def per_step(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
            return torch.zeros(steps, envs, *shape, dtype=dtype, device=device)

        self.obs, self.next_obs = per_step(features), per_step(features)
        self.action = per_step(dtype=torch.int64)
        self.log_prob, self.reward = per_step(), per_step()
        self.terminated, self.truncated = per_step(dtype=torch.bool), per_step(dtype=torch.bool)


def before_reset(obs: np.ndarray, info: dict) -> np.ndarray:
    """What the step led to, before any reset."""
    if "final_obs" not in info:
        return obs
    obs = obs.copy()
    for i in np.flatnonzero(info["_final_obs"]):
        obs[i] = info["final_obs"][i]
    return obs


def learn(agent: Agent, optimizer: torch.optim.Optimizer, rows: Rollout) -> None:
    with torch.no_grad():
        advantage, target = rl_triton_jax.torch.gae(
            rows.reward,
            agent.value(rows.obs),
            rows.terminated,
            rows.truncated,
            next_values=agent.value(rows.next_obs),
            gamma=GAMMA,
            lambda_=LAMBDA,
        )
    batch = [x.flatten(0, 1) for x in (rows.obs, rows.action, rows.log_prob, advantage, target)]
    for _ in range(EPOCHS):
        for index in torch.randperm(len(batch[0]), device=advantage.device).chunk(MINIBATCHES):
            obs, action, log_prob, gain, goal = (x[index] for x in batch)
            ratio = (agent.policy(obs).log_prob(action) - log_prob).exp()
            gain = (gain - gain.mean()) / (gain.std() + 1e-8)
            surrogate = torch.minimum(ratio * gain, ratio.clamp(1 - CLIP, 1 + CLIP) * gain)
            loss = -surrogate.mean() + 0.25 * (agent.value(obs) - goal).square().mean()
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(agent.parameters(), 0.5)
            optimizer.step()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--env", default="CartPole-v1", help="a Gymnasium environment with discrete actions")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--total-steps", type=int, default=500_000, help="over all environments")
    parser.add_argument("--num-envs", type=int, default=16)
    parser.add_argument("--num-steps", type=int, default=128, help="of each environment between two updates")
    parser.add_argument("--smoke", action="store_true", help="a few updates only, to see that everything runs")
    args = parser.parse_args()
    updates = 3 if args.smoke else max(1, args.total_steps // (args.num_envs * args.num_steps))

    torch.manual_seed(args.seed)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    envs = gym.make_vec(
        args.env,
        num_envs=args.num_envs,
        vectorization_mode="sync",
        vector_kwargs={"autoreset_mode": gym.vector.AutoresetMode.SAME_STEP},
    )
    space = envs.single_action_space
    if not isinstance(space, gym.spaces.Discrete):
        parser.error(f"--env {args.env} has no discrete actions")
    features = int(np.prod(envs.single_observation_space.shape or ()))
    agent = Agent(features, int(space.n)).to(device)
    optimizer = torch.optim.Adam(agent.parameters(), lr=1e-3, eps=1e-5)
    schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.0, updates)
    rows = Rollout(args.num_steps, args.num_envs, features, device)

    def to_device(x: np.ndarray) -> Tensor:
        return torch.as_tensor(x.reshape(args.num_envs, features), dtype=torch.float32, device=device)

    obs, _ = envs.reset(seed=args.seed)
    so_far, finished = np.zeros(args.num_envs), []
    start = time.perf_counter()
    with tqdm(total=updates, unit="update", disable=None) as bar:
        for _ in range(updates):
            for t in range(args.num_steps):
                with torch.no_grad():
                    rows.obs[t] = to_device(obs)
                    policy = agent.policy(rows.obs[t])
                    rows.action[t] = policy.sample()
                    rows.log_prob[t] = policy.log_prob(rows.action[t])
                obs, reward, terminated, truncated, info = envs.step(rows.action[t].cpu().numpy())
                rows.next_obs[t] = to_device(before_reset(obs, info))
                rows.reward[t] = torch.as_tensor(reward)
                rows.terminated[t], rows.truncated[t] = torch.as_tensor(terminated), torch.as_tensor(truncated)
                so_far += reward
                ended = terminated | truncated
                finished.extend(so_far[ended])
                so_far[ended] = 0
            learn(agent, optimizer, rows)
            schedule.step()
            bar.update()
            bar.set_postfix({"return": f"{np.mean(finished[-100:]):.1f}" if finished else "-"})
    envs.close()
    seconds = time.perf_counter() - start
    steps = updates * args.num_envs * args.num_steps
    reached = f"mean return {np.mean(finished[-100:]):.1f} over the last {len(finished[-100:])} episodes"
    print(
        f"{args.env} seed {args.seed}: {reached if finished else 'no episode finished'}, {steps / seconds:,.0f} steps/s "
        f"({steps:,} steps in {seconds:.1f} s) on {device.type}"
    )


if __name__ == "__main__":
    main()

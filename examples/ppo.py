"""Proximal policy optimisation in one file, and in one compiled program.

    python examples/ppo.py                        # CartPole-v1
    python examples/ppo.py --env Pendulum-v1      # any gymnax environment, discrete or continuous actions
    python examples/ppo.py --help                 # every setting below is a flag

Environments, networks, advantages and optimiser all run inside one `jax.jit`: a `lax.scan` over updates, each of them
a rollout (`lax.scan` over steps, `vmap` over environments), one call of `rl_triton_jax.gae`, and some epochs of
minibatches.

What is easily got wrong is where an episode ends. An auto-resetting environment returns the first observation of the
*next* episode there, and an episode cut off by its time limit has not ended in a terminal state: the state it was in
has a value. So the rollout keeps, for every step, the observation before any reset (`next_obs`) and the two flags apart,
and hands `gae` the critic's value of that observation with both flags.

Schulman, Wolski, Dhariwal, Radford, Klimov, "Proximal Policy Optimization Algorithms" (2017), arXiv:1707.06347.
"""

from __future__ import annotations

import argparse
import dataclasses
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple, cast

import flax.linen as nn
import gymnax
import jax
import jax.numpy as jnp
import numpy as np
import optax
from tqdm import tqdm

import rl_triton_jax

REPORTED_EPISODES = 100  # the last line gives the mean return over at least this many of the last finished episodes


def setting(default: Any, help: str) -> Any:
    """A field of `Config` that is also a command-line flag."""
    return dataclasses.field(default=default, metadata={"help": help})


@dataclasses.dataclass(frozen=True)
class Config:
    env: str = setting("CartPole-v1", "name of a gymnax environment")
    seed: int = setting(0, "same seed, same run on the same device")
    total_steps: int = setting(500_000, "steps over all environments, rounded down to whole updates")
    num_envs: int = setting(16, "environments stepped side by side")
    num_steps: int = setting(128, "steps of each environment between two updates")
    epochs: int = setting(4, "passes over a rollout")
    minibatches: int = setting(4, "parts a rollout is split into in each epoch")
    learning_rate: float = setting(1e-3, "of Adam at the start; falls linearly to 0")
    # With 0.99 and 0.95, as usual elsewhere, some seeds solve CartPole and lose it again.
    gamma: float = setting(0.98, "discount")
    gae_lambda: float = setting(0.8, "trace decay of the advantages")
    clip: float = setting(0.2, "how far the probability ratio may move")
    entropy_weight: float = setting(0.0, "weight of the entropy bonus")
    value_weight: float = setting(0.5, "weight of the critic's loss")
    max_grad_norm: float = setting(0.5, "gradients are scaled down to this norm")
    hidden: int = setting(64, "width of both hidden layers")
    out: str = setting("ppo.png", "where the learning curve goes")

    @property
    def num_updates(self) -> int:
        return max(1, self.total_steps // (self.num_envs * self.num_steps))


# ---- Policies and networks


class Categorical(NamedTuple):
    logits: jax.Array  # [..., actions]

    def sample(self, key: jax.Array) -> jax.Array:
        return jax.random.categorical(key, self.logits)

    def log_prob(self, action: jax.Array) -> jax.Array:
        return jnp.take_along_axis(jax.nn.log_softmax(self.logits), action[..., None], axis=-1)[..., 0]

    def entropy(self) -> jax.Array:
        return -(jax.nn.softmax(self.logits) * jax.nn.log_softmax(self.logits)).sum(-1)


class Gaussian(NamedTuple):
    mean: jax.Array  # [..., action]
    log_std: jax.Array  # [action]

    def sample(self, key: jax.Array) -> jax.Array:
        return self.mean + jnp.exp(self.log_std) * jax.random.normal(key, self.mean.shape)

    def log_prob(self, action: jax.Array) -> jax.Array:
        return jax.scipy.stats.norm.logpdf(action, self.mean, jnp.exp(self.log_std)).sum(-1)

    def entropy(self) -> jax.Array:
        return (self.log_std + 0.5 * jnp.log(2 * jnp.pi * jnp.e)).sum(-1)


Policy = Categorical | Gaussian


class MLP(nn.Module):
    hidden: int
    outputs: int
    output_scale: float

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        for _ in range(2):
            x = nn.tanh(nn.Dense(self.hidden, kernel_init=nn.initializers.orthogonal(2**0.5))(x))
        return nn.Dense(self.outputs, kernel_init=nn.initializers.orthogonal(self.output_scale))(x)


class Actor(nn.Module):
    hidden: int
    actions: int
    discrete: bool

    @nn.compact
    def __call__(self, obs: jax.Array) -> Policy:
        head = MLP(self.hidden, self.actions, output_scale=0.01)(obs)  # nearly uniform at first
        if self.discrete:
            return Categorical(head)
        return Gaussian(head, self.param("log_std", nn.initializers.zeros, (self.actions,)))


class Critic(nn.Module):
    hidden: int

    @nn.compact
    def __call__(self, obs: jax.Array) -> jax.Array:
        return MLP(self.hidden, 1, output_scale=1.0)(obs)[..., 0]


# ---- The environment


class Outcome(NamedTuple):
    reward: jax.Array
    terminated: jax.Array  # next_obs is terminal: its value is 0
    truncated: jax.Array  # the time limit was reached: next_obs has a value, but the following row is another episode
    next_obs: jax.Array  # before any reset, so never the first observation of another episode


class Vector:
    """`num_envs` copies of a gymnax environment: flat observations, automatic resets, clipped actions."""

    def __init__(self, name: str, num_envs: int):
        self.env, self.params = gymnax.make(name)
        self.num_envs = num_envs
        space = self.env.action_space(self.params)
        self.discrete = hasattr(space, "n")
        self.actions = space.n if self.discrete else int(np.prod(space.shape))
        self.space = space

    def reset(self, key: jax.Array) -> tuple[jax.Array, Any]:
        obs, state = jax.vmap(self.env.reset, (0, None))(jax.random.split(key, self.num_envs), self.params)
        return self._flat(obs), state

    def step(self, key: jax.Array, state: Any, action: jax.Array) -> tuple[jax.Array, Any, Outcome]:
        """(observation to act on next, state, what the step led to)."""
        if not self.discrete:
            action = jnp.clip(action.reshape(self.num_envs, *self.space.shape), self.space.low, self.space.high)
        keys = jax.random.split(key, self.num_envs)
        obs, state, reward, terminated, truncated, info = jax.vmap(self.env.step, (0, 0, 0, None))(
            keys, state, action, self.params
        )
        next_obs = self._flat(info["final_observation"])
        return self._flat(obs), state, Outcome(reward.astype(jnp.float32), terminated, truncated, next_obs)

    def _flat(self, obs: jax.Array) -> jax.Array:
        return obs.reshape(self.num_envs, -1).astype(jnp.float32)


# ---- Training


Params = Any  # {"actor": ..., "critic": ...}, pytrees of arrays as flax makes them


class Agent(NamedTuple):
    params: Params
    opt_state: optax.OptState


class Running(NamedTuple):
    """Where the environments stand between two rollouts."""

    env_state: Any
    obs: jax.Array
    episode_return: jax.Array  # so far


class Rollout(NamedTuple):
    obs: jax.Array  # [T, N, features], like every field [T, N, ...]
    action: jax.Array
    log_prob: jax.Array
    outcome: Outcome


class Batch(NamedTuple):
    obs: jax.Array
    action: jax.Array
    log_prob: jax.Array
    advantage: jax.Array
    target: jax.Array


class Episodes(NamedTuple):
    """The episodes that finished during an update."""

    count: jax.Array
    return_sum: jax.Array


def make_train(config: Config, report: Callable[[Any, Any], None]) -> Callable[[jax.Array], tuple[Agent, Episodes]]:
    """`train(key)`, to be jitted; `report(update, episodes)` is called on the host about a hundred times."""
    env = Vector(config.env, config.num_envs)
    actor = Actor(config.hidden, env.actions, env.discrete)
    critic = Critic(config.hidden)
    steps_per_update = config.epochs * config.minibatches
    optimizer = optax.chain(
        optax.clip_by_global_norm(config.max_grad_norm),
        optax.adam(optax.linear_schedule(config.learning_rate, 0.0, config.num_updates * steps_per_update), eps=1e-5),
    )

    def policy_at(params: Params, obs: jax.Array) -> Policy:
        return cast(Policy, actor.apply(params["actor"], obs))

    def value_of(params: Params, obs: jax.Array) -> jax.Array:
        return cast(jax.Array, critic.apply(params["critic"], obs))

    def rollout(params: Params, running: Running, key: jax.Array) -> tuple[Running, Rollout, Episodes]:
        def step(running: Running, key: jax.Array) -> tuple[Running, tuple[Rollout, Episodes]]:
            key_action, key_env = jax.random.split(key)
            policy = policy_at(params, running.obs)
            action = policy.sample(key_action)
            obs, env_state, outcome = env.step(key_env, running.env_state, action)
            row = Rollout(running.obs, action, policy.log_prob(action), outcome)

            done = outcome.terminated | outcome.truncated
            episode_return = running.episode_return + outcome.reward
            finished = Episodes(done.sum(), jnp.where(done, episode_return, 0).sum())
            return Running(env_state, obs, jnp.where(done, 0, episode_return)), (row, finished)

        running, (rows, finished) = jax.lax.scan(step, running, jax.random.split(key, config.num_steps))
        return running, rows, jax.tree.map(jnp.sum, finished)

    def advantages(params: Params, rows: Rollout) -> Batch:
        # The critic is not needed to act: it runs once on the whole rollout, and not inside the loop over steps.
        outcome = rows.outcome
        advantage, target = rl_triton_jax.gae(
            outcome.reward,
            value_of(params, rows.obs),
            outcome.terminated,
            outcome.truncated,
            next_values=value_of(params, outcome.next_obs),
            gamma=config.gamma,
            lambda_=config.gae_lambda,
        )
        return Batch(rows.obs, rows.action, rows.log_prob, advantage, target)

    def loss(params: Params, batch: Batch) -> jax.Array:
        policy = policy_at(params, batch.obs)
        ratio = jnp.exp(policy.log_prob(batch.action) - batch.log_prob)
        advantage = (batch.advantage - batch.advantage.mean()) / (batch.advantage.std() + 1e-8)
        gain = jnp.minimum(ratio * advantage, jnp.clip(ratio, 1 - config.clip, 1 + config.clip) * advantage)
        error = value_of(params, batch.obs) - batch.target
        return (
            -gain.mean()
            + config.value_weight * 0.5 * jnp.square(error).mean()
            - config.entropy_weight * policy.entropy().mean()
        )

    def learn(agent: Agent, batch: Batch) -> tuple[Agent, None]:
        grads = jax.grad(loss)(agent.params, batch)
        updates, opt_state = optimizer.update(grads, agent.opt_state, agent.params)
        return Agent(optax.apply_updates(agent.params, updates), opt_state), None

    def epoch(agent: Agent, key: jax.Array, batch: Batch) -> tuple[Agent, None]:
        order = jax.random.permutation(key, config.num_steps * config.num_envs).reshape(config.minibatches, -1)
        return jax.lax.scan(lambda agent, rows: learn(agent, jax.tree.map(lambda x: x[rows], batch)), agent, order)

    def update(carry: tuple[Agent, Running], x: tuple[jax.Array, jax.Array]) -> tuple[tuple[Agent, Running], Episodes]:
        (agent, running), (index, key) = carry, x
        key_rollout, key_epochs = jax.random.split(key)
        running, rows, finished = rollout(agent.params, running, key_rollout)
        batch = jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), advantages(agent.params, rows))
        keys = jax.random.split(key_epochs, config.epochs)
        agent, _ = jax.lax.scan(lambda agent, key: epoch(agent, key, batch), agent, keys)

        jax.lax.cond(
            index % max(1, config.num_updates // 100) == 0,
            lambda: jax.debug.callback(report, index, finished),
            lambda: None,
        )
        return (agent, running), finished

    def train(key: jax.Array) -> tuple[Agent, Episodes]:
        key_actor, key_critic, key_env, key_updates = jax.random.split(key, 4)
        obs, env_state = env.reset(key_env)
        params = {"actor": actor.init(key_actor, obs), "critic": critic.init(key_critic, obs)}
        carry = Agent(params, optimizer.init(params)), Running(env_state, obs, jnp.zeros(config.num_envs))
        keys = jax.random.split(key_updates, config.num_updates)
        (agent, _), finished = jax.lax.scan(update, carry, (jnp.arange(config.num_updates), keys))
        return agent, finished

    return train


# ---- The program around it


def last_episodes(episodes: Episodes) -> tuple[int, float]:
    """(number, mean return) of the episodes finished in the last updates, of as few as hold `REPORTED_EPISODES`."""
    count, total = np.cumsum(episodes.count[::-1]), np.cumsum(episodes.return_sum[::-1], dtype=np.float64)
    enough = min(int(np.searchsorted(count, REPORTED_EPISODES)), len(count) - 1)
    return int(count[enough]), float(total[enough] / count[enough]) if count[enough] else float("nan")


def draw_learning_curve(episodes: Episodes, config: Config) -> None:
    from matplotlib.figure import Figure  # needs no display

    some = np.asarray(episodes.count) > 0
    steps = (np.arange(config.num_updates) + 1)[some] * config.num_envs * config.num_steps
    figure = Figure(figsize=(6, 4), layout="constrained")
    axes = figure.subplots()
    axes.plot(
        steps,
        (np.asarray(episodes.return_sum) / np.maximum(episodes.count, 1))[some],
        marker="." if some.sum() < 30 else "",
    )  # a single point has no line
    axes.set(
        title=f"PPO on {config.env}, seed {config.seed}",
        xlabel="environment steps",
        ylabel="mean return of the episodes\nfinished in an update",
    )
    axes.grid(alpha=0.3)
    Path(config.out).parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(config.out, dpi=120)


def parse_args() -> Config:
    parser = argparse.ArgumentParser(
        description="PPO on a gymnax environment.", formatter_class=argparse.ArgumentDefaultsHelpFormatter
    )
    for field in dataclasses.fields(Config):
        parser.add_argument(
            "--" + field.name.replace("_", "-"),
            type=type(field.default),
            default=field.default,
            help=field.metadata["help"],
        )
    parser.add_argument("--smoke", action="store_true", help="a few updates only, to see that everything runs")
    args = vars(parser.parse_args())
    if args.pop("smoke"):
        args["total_steps"] = 4 * args["num_envs"] * args["num_steps"]
    config = Config(**args)
    if config.num_envs * config.num_steps % config.minibatches:
        parser.error("--minibatches must divide --num-envs times --num-steps")
    return config


def main() -> None:
    config = parse_args()
    total_steps = config.num_updates * config.num_envs * config.num_steps

    # disable=None: no bar where stderr is not a terminal
    with tqdm(total=config.num_updates, unit="update", disable=None) as bar:

        def report(index: np.ndarray, finished: Episodes) -> None:
            bar.update(int(index) + 1 - bar.n)
            if finished.count:
                bar.set_postfix({"return": f"{float(finished.return_sum / finished.count):.1f}"})

        bar.set_description("compiling")
        start = time.perf_counter()
        train = jax.jit(make_train(config, report)).lower(jax.random.key(config.seed)).compile()
        compile_seconds = time.perf_counter() - start

        bar.set_description("training")
        start = time.perf_counter()
        _, episodes = jax.block_until_ready(train(jax.random.key(config.seed)))
        seconds = time.perf_counter() - start
        jax.effects_barrier()  # the last report
        bar.update(config.num_updates - bar.n)

    episodes = jax.device_get(episodes)
    draw_learning_curve(episodes, config)
    count, mean_return = last_episodes(episodes)
    reached = f"mean return {mean_return:.1f} over the last {count} episodes" if count else "no episode finished"
    print(f"learning curve: {config.out}")
    print(
        f"{config.env} seed {config.seed}: {reached}, {total_steps / seconds:,.0f} steps/s ({total_steps:,} steps in "
        f"{seconds:.1f} s, without {compile_seconds:.1f} s of compilation), "
        f"gae by {rl_triton_jax.default_implementation()} on {jax.default_backend()}"
    )


if __name__ == "__main__":
    main()

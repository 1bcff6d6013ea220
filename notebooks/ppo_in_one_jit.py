# ---
# jupyter:
#   jupytext:
#     text_representation:
#       extension: .py
#       format_name: percent
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # PPO in one jit
#
# When environments are written in JAX, a whole training run can be one compiled program: no Python between steps, nothing
# copied to the host, and `vmap` makes many runs of it. This notebook builds proximal policy optimisation (Schulman et al. 2017)
# that way, with `rl_triton_jax.gae` in the middle. `examples/ppo.py` is the same idea as a command with options.

# %%
import time
from typing import Any, NamedTuple

import flax.linen as nn
import gymnax
import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np
import optax

import rl_triton_jax

environments, steps, updates = 16, 128, 160  # steps of each environment between two updates
epochs, minibatches, clip = 4, 4, 0.2
gamma = 0.98

env, env_params = gymnax.make("CartPole-v1")

# %% [markdown]
# ## Networks
#
# Two small ones, for the policy's logits and for the value.


# %%
def normal(scale):
    # Orthogonal initialisation, usual in PPO, is a QR decomposition, and jaxlib 0.10 can wait for ever for several side by
    # side on a CPU of two cores: those of several seeds under vmap.
    return nn.initializers.variance_scaling(scale, "fan_in", "truncated_normal")


class MLP(nn.Module):
    outputs: int
    scale: float

    @nn.compact
    def __call__(self, x):
        for _ in range(2):
            x = nn.tanh(nn.Dense(64, kernel_init=normal(2.0))(x))
        return nn.Dense(self.outputs, kernel_init=normal(self.scale))(x)


actor, critic = MLP(env.action_space(env_params).n, 1e-4), MLP(1, 1.0)
optimizer = optax.chain(
    optax.clip_by_global_norm(0.5),
    optax.adam(optax.linear_schedule(1e-3, 0.0, updates * epochs * minibatches), eps=1e-5),
)


def value(params, obs):
    return critic.apply(params["critic"], obs)[..., 0]


def log_probs(params, obs):
    return jax.nn.log_softmax(actor.apply(params["actor"], obs))


def taken(log_probs, actions):
    return jnp.take_along_axis(log_probs, actions[..., None], -1)[..., 0]


# %% [markdown]
# ## A rollout
#
# The environment resets itself, so the observation that comes back after an end is the first of the *next* episode. What
# the estimator needs is the one before the reset: gymnax hands it over as `final_observation`, and tells the two ends apart:
# `terminated`, the pole fell, or `truncated`, 500 steps were over. Both flags are kept.


# %%
class Step(NamedTuple):
    obs: Any
    action: Any
    log_prob: Any
    reward: Any
    terminated: Any
    truncated: Any
    next_obs: Any  # before any reset


def rollout(params, state, key):
    def step(state, key):
        obs, env_state = state
        key_action, key_env = jax.random.split(key)
        log_p = log_probs(params, obs)
        action = jax.random.categorical(key_action, log_p)
        next_obs, env_state, reward, terminated, truncated, info = jax.vmap(env.step, (0, 0, 0, None))(
            jax.random.split(key_env, environments), env_state, action, env_params
        )
        row = Step(obs, action, taken(log_p, action), reward, terminated, truncated, info["final_observation"])
        return (next_obs, env_state), row

    return jax.lax.scan(step, state, jax.random.split(key, steps))


# %% [markdown]
# ## Advantages
#
# One call. $\lambda$ is an argument of the program here, not a constant of it: it may be traced, differentiated and vmapped
# like any array, and another value compiles nothing.


# %%
def advantages_and_targets(params, rows, lambda_):
    return rl_triton_jax.gae(
        rows.reward,
        value(params, rows.obs),
        rows.terminated,
        rows.truncated,
        next_values=value(params, rows.next_obs),
        gamma=gamma,
        lambda_=lambda_,
    )


# %% [markdown]
# ## Learning
#
# The clipped objective, some epochs of minibatches, all as `lax.scan`.


# %%
def loss(params, rows, advantages, targets):
    log_p = log_probs(params, rows.obs)
    ratio = jnp.exp(taken(log_p, rows.action) - rows.log_prob)
    advantages = (advantages - advantages.mean()) / (advantages.std() + 1e-8)
    gain = jnp.minimum(ratio * advantages, jnp.clip(ratio, 1 - clip, 1 + clip) * advantages)
    return -gain.mean() + 0.25 * jnp.square(value(params, rows.obs) - targets).mean()


def learn(agent, batch):
    params, opt_state = agent
    change, opt_state = optimizer.update(jax.grad(loss)(params, *batch), opt_state, params)
    return (optax.apply_updates(params, change), opt_state), None


def update(carry, key, lambda_):
    agent, state = carry
    key_rollout, key_epochs = jax.random.split(key)
    state, rows = rollout(agent[0], state, key_rollout)
    batch = (rows, *advantages_and_targets(agent[0], rows, lambda_))
    batch = jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), batch)

    def epoch(agent, key):
        order = jax.random.permutation(key, steps * environments).reshape(minibatches, -1)
        return jax.lax.scan(lambda agent, some: learn(agent, jax.tree.map(lambda x: x[some], batch)), agent, order)

    agent, _ = jax.lax.scan(epoch, agent, jax.random.split(key_epochs, epochs))
    return (agent, state), (rows.terminated | rows.truncated).sum()


def train(key, lambda_):
    """How many episodes ended in each update: few are good, for CartPole pays 1 for every step up to 500."""
    key_actor, key_critic, key_env, key_updates = jax.random.split(key, 4)
    state = jax.vmap(env.reset, (0, None))(jax.random.split(key_env, environments), env_params)
    params = {"actor": actor.init(key_actor, state[0]), "critic": critic.init(key_critic, state[0])}
    agent = params, optimizer.init(params)
    keys = jax.random.split(key_updates, updates)
    return jax.lax.scan(lambda carry, key: update(carry, key, lambda_), (agent, state), keys)[1]


# %% [markdown]
# ## One program
#
# In JAX's own notation the estimator is one operation: the kernel on a GPU, an XLA formula elsewhere. Nothing has to be said
# to choose.

# %%
shape = jax.ShapeDtypeStruct((steps, environments), jnp.float32)
flag = jax.ShapeDtypeStruct(shape.shape, jnp.bool_)
text = str(
    jax.make_jaxpr(
        lambda r, v, terminated, truncated, next_values, lambda_: rl_triton_jax.gae(
            r, v, terminated, truncated, next_values=next_values, gamma=gamma, lambda_=lambda_
        )
    )(shape, shape, flag, flag, shape, jax.ShapeDtypeStruct((), jnp.float32))
)
text.count("gae["), rl_triton_jax.default_implementation()

# %% [markdown]
# Three runs, of different seeds, are one `vmap`. They compile to one program and run side by side.

# %%
window = 10  # updates that a mean is taken over


def draw(runs, labels):
    """The mean episode length, from the numbers of ends [runs, updates]; returns that of the last window."""
    ends = runs.reshape(len(runs), -1, window).sum(-1)
    lengths = window * steps * environments / np.maximum(ends, 1)
    at = (np.arange(lengths.shape[1]) + 1) * window * steps * environments
    _, axes = plt.subplots(figsize=(6, 3.2), layout="constrained")
    for line, label in zip(lengths, labels, strict=True):
        axes.plot(at, line, label=label)
    axes.set(xlabel="environment steps", ylabel="mean episode length", title="CartPole-v1", ylim=(0, None))
    axes.legend()
    plt.show()
    return lengths[:, -1]


seeds = jax.random.split(jax.random.key(0), 3)
start = time.perf_counter()
several = jax.jit(jax.vmap(train, (0, None))).lower(seeds, 0.8).compile()
compiled = time.perf_counter()
ends = np.asarray(several(seeds, 0.8))
done = time.perf_counter()
print(
    f"compiled in {compiled - start:.0f} s, then {ends.size * steps * environments:,} steps in {done - compiled:.0f} s"
)
draw(ends, ["seed 0", "seed 1", "seed 2"])

# %% [markdown]
# ## How far ahead?
#
# The same program again, vmapped over $\lambda$ as well: 0 leaves everything to the critic, 1 nothing. Every run has the same
# seed, so what differs is $\lambda$ alone.

# %%
lambdas = jnp.asarray([0.0, 0.8, 0.95, 1.0])
by_lambda = np.asarray(jax.jit(jax.vmap(train, (None, 0)))(seeds[0], lambdas))
draw(by_lambda, [f"λ = {x:g}" for x in lambdas])

# %% [markdown]
# One seed proves little, and CartPole is easy; the point is that such a sweep costs one line, and that nothing was compiled
# for each λ.

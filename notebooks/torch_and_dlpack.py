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
# # torch and DLPack
#
# The estimators have a torch front end with the same names, arguments and numbers, and no JAX in its path. And where a simulator
# is written in JAX and a learner in torch, arrays cross between the two without a copy. This notebook shows both, on a CPU or
# a GPU.

# %%
import jax
import jax.numpy as jnp
import numpy as np
import torch

import rl_triton_jax
import rl_triton_jax.torch
from rl_triton_jax.interop import to_jax, to_torch

device = "cuda" if torch.cuda.is_available() and jax.default_backend() == "gpu" else "cpu"
T, N = 128, 64
generator = torch.Generator().manual_seed(0)


def normal(*sizes):
    return torch.randn(*sizes, generator=generator).to(device)


rewards, values, last_values = normal(T, N), normal(T, N), normal(N)
terminated = (torch.rand(T, N, generator=generator) < 0.02).to(device)

# %% [markdown]
# ## The same call
#
# In torch, and in JAX on the very same memory: `to_jax` gives a JAX array that shares it. Both keep it alive.

# %%
options = {"gamma": 0.99, "lambda_": 0.95}
in_torch = rl_triton_jax.torch.gae(rewards, values, terminated, last_values=last_values, **options)
r, v, d, last = to_jax((rewards, values, terminated, last_values))
in_jax = rl_triton_jax.gae(r, v, d, last_values=last, **options)
float(np.abs(np.asarray(in_jax.advantages) - in_torch.advantages.cpu().numpy()).max())

# %% [markdown]
# No copy, so the addresses are the same; and back again they are the ones we began with.

# %%
addresses = rewards.data_ptr(), r.unsafe_buffer_pointer(), to_torch(r).data_ptr()
len(set(addresses))

# %% [markdown]
# ## A simulator in JAX, a learner in torch
#
# A toy of it: a point is pushed along a line and is paid for being near 0; beyond 3 the episode is over. The step is a jitted
# JAX function, the policy and its gradient are torch's. In every step observations, rewards and flags cross one way and pushes
# the other, and nothing is copied for it. `examples/mjx_torch.py` does the same with a physics engine and PPO.


# %%
@jax.jit
def step(position, push, key):
    moved = position + 0.3 * push + 0.1 * jax.random.normal(key, position.shape)
    ended = jnp.abs(moved) > 3
    return jnp.where(ended, 0.0, moved), {"obs": moved, "reward": 1 - jnp.abs(moved), "terminated": ended}


policy = torch.nn.Linear(1, 1).to(device)
critic = torch.nn.Linear(1, 1).to(device)
torch.nn.init.zeros_(policy.weight)
parameters = [*policy.parameters(), *critic.parameters()]
optimizer = torch.optim.Adam(parameters, lr=0.05)


def learn(position, keys):
    """A rollout and a policy-gradient step; the mean reward."""
    seen, log_probs, rows = [], [], []
    for key in keys:
        obs = to_torch(position)
        distribution = torch.distributions.Normal(policy(obs[:, None])[:, 0], 0.5)
        push = distribution.sample()
        seen.append(obs)
        log_probs.append(distribution.log_prob(push))
        position, row = step(position, to_jax(push), key)
        rows.append(to_torch(row))
    obs, next_obs, reward, ended = (
        torch.stack(x) for x in (seen, *([row[name] for row in rows] for name in ("obs", "reward", "terminated")))
    )
    # Values of the states before any reset; where an episode is over they are not read.
    value, next_value = critic(obs[..., None])[..., 0], critic(next_obs[..., None])[..., 0]
    advantages, returns = rl_triton_jax.torch.gae(
        reward, value.detach(), ended, next_values=next_value.detach(), gamma=0.95, lambda_=0.9, normalize=True
    )
    loss = (value - returns).square().mean() - (torch.stack(log_probs) * advantages).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return position, float(reward.mean())


torch.manual_seed(0)
position, history = jnp.zeros(64), []
for k in range(60):
    position, reward = learn(position, jax.random.split(jax.random.key(k), 32))
    history.append(reward)
np.mean(history[:5]), np.mean(history[-5:])

# %% [markdown]
# ## What is refused
#
# What could only be had by a copy raises, and says how to ask for one. Nothing is copied unasked.

# %%
refused = {}


def attempt(name, convert):
    try:
        convert()
    except (TypeError, ValueError, RuntimeError) as error:
        refused[name] = str(error)


attempt("a strided tensor", lambda: to_jax(torch.ones(4, 6)[:, ::2]))
attempt("a tensor with a gradient", lambda: to_jax(torch.ones(3, requires_grad=True)))
attempt("64 bits, which JAX would cut", lambda: to_jax(torch.ones(3, dtype=torch.float64)))
attempt("a traced array", lambda: jax.jit(to_torch)(jnp.ones(3)))
for name, why in refused.items():
    print(f"{name}:\n    {why}")

# %% [markdown]
# ## Gradients
#
# The torch front end is differentiable, to any order: here the derivative of all advantages by $\gamma$, beside a finite
# difference in float64.

# %%
exact = [x.double() for x in (rewards, values, last_values)]


def total(gamma):
    result = rl_triton_jax.torch.gae(*exact[:2], terminated, last_values=exact[2], gamma=gamma, lambda_=0.95)
    return result.advantages.sum()


gamma = torch.tensor(0.9, dtype=torch.float64, device=device, requires_grad=True)
(derivative,) = torch.autograd.grad(total(gamma), gamma)
difference = (total(0.9 + 1e-6) - total(0.9 - 1e-6)) / 2e-6
float(abs(derivative - difference) / abs(difference))

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
# # Where an episode ends
#
# An episode can end in two ways, and an estimator that cannot tell them apart is biased. This notebook shows it on a
# problem whose value is known exactly: every step pays 1 and the discount is 0.9, so every state is worth 1 / (1 - 0.9)
# = 10. With exact values every advantage is 0: nothing is better or worse than expected.

# %%
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np

import rl_triton_jax

T, gamma, lambda_ = 60, 0.9, 0.95
rewards = jnp.ones(T)
values = jnp.full(T, 10.0)
time_limit = (jnp.arange(T) + 1) % 20 == 0  # the environment is reset after every 20 steps

# %% [markdown]
# ## Truncated: the clock ran out
#
# A time limit says nothing about the world: the state in which the episode was cut off is as good as any. Its value
# goes in as `final_values`, read only where `truncated` is set. The next row belongs to another episode, so the trace
# stops there too.

# %%
right = rl_triton_jax.gae(
    rewards,
    values,
    truncated=time_limit,
    final_values=jnp.where(time_limit, 10.0, jnp.nan),  # NaN wherever it is not read
    last_values=10.0,
    gamma=gamma,
    lambda_=lambda_,
)
np.abs(right.advantages).max()

# %% [markdown]
# ## Taken for a termination
#
# With one `done` flag for both, the value after the limit is taken to be 0. Now the last steps of each episode look bad,
# although the agent did nothing wrong, and the error spreads backward with the trace.

# %%
wrong = rl_triton_jax.gae(rewards, values, terminated=time_limit, last_values=10.0, gamma=gamma, lambda_=lambda_)
wrong.advantages[17:21]

# %%
figure, axes = plt.subplots(figsize=(7, 3), layout="constrained")
axes.plot(right.advantages, label="truncated, with the value of the final state")
axes.plot(wrong.advantages, label="taken for a termination")
axes.set(xlabel="step", ylabel="advantage (the truth is 0)")
_ = axes.legend()
# %% [markdown]
# ## Not told at all
#
# Without any flag the advantage of one episode leaks into the one before. Here that cannot be seen, because all states
# are worth the same; so let the second episode pay 5 a step, with values to match. Only the flags keep the first one
# clean.

# %%
better = (jnp.arange(T) >= 20) & (jnp.arange(T) < 40)
rewards2 = jnp.where(better, 5.0, 1.0)
values2 = rewards2 / (1 - gamma)
final = jnp.where(time_limit, values2, jnp.nan)
clean = rl_triton_jax.gae(
    rewards2, values2, truncated=time_limit, final_values=final, last_values=10.0, gamma=gamma, lambda_=lambda_
)
leaky = rl_triton_jax.gae(rewards2, values2, last_values=10.0, gamma=gamma, lambda_=lambda_)
float(jnp.abs(clean.advantages).max()), float(jnp.abs(leaky.advantages[:20]).max())

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
from types import SimpleNamespace

import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np

import rl_triton_jax
from rl_triton_jax.compat import brax, purejaxrl, rlax

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

# %% [markdown]
# ## The same data, six ways
#
# Four steps, r = [1, 2, 3, 4], V = [0.5, 1, 1.5, 2], V(s_T) = 2.5, $\gamma$ = 0.99, $\lambda$ = 0.95. The episode was
# cut off after step 1, in a state worth 1.2; rows 2 and 3 belong to the next one. What libraries make of step 1:
#
# | | what is done | by whom |
# |---|---|---|
# | 1 | V of the state it was cut off in, nothing carried over | right; this library, and TorchRL when it is given that value |
# | 2 | counted as a termination | one `done` flag for both: PureJaxRL, CleanRL, JaxMARL |
# | 3 | ignored | rlax, which has no flag for it, unless the discount is set to 0: then it is way 2 |
# | 4 | V of the row behind it, the first state of the *next* episode | any of them, when values are shifted by one row |
# | 5 | a termination, with r + γ V(s_t) as its reward: the value of the state *before* the cut | rsl_rl, rl_games |
# | 6 | the step is dropped: its advantage is 0 | Brax |
#
# Ways 2, 3 and 6 are run by the drop-ins, whose numbers are those of the libraries.

# %%
rewards, values, last_value = jnp.arange(1.0, 5.0), jnp.asarray([0.5, 1.0, 1.5, 2.0]), jnp.float32(2.5)
cut = jnp.arange(4) == 1
options = {"last_values": last_value, "gamma": 0.99, "lambda_": 0.95}


def cut_off_in(value):
    final_values = jnp.where(cut, value, jnp.nan)
    return rl_triton_jax.gae(rewards, values, truncated=cut, final_values=final_values, **options).advantages


column = SimpleNamespace(done=cut[:, None], value=values[:, None], reward=rewards[:, None])
six = {
    "1 right": cut_off_in(1.2),
    "2 termination": purejaxrl.calculate_gae(column, last_value[None], 0.99, 0.95)[0][:, 0],
    "3 ignored": rlax.truncated_generalized_advantage_estimation(
        rewards, jnp.full(4, 0.99), 0.95, jnp.append(values, last_value)
    ),
    "4 next row": cut_off_in(values[2]),
    "5 r + γV(s_t)": rl_triton_jax.gae(rewards + 0.99 * values * cut, values, terminated=cut, **options).advantages,
    "6 dropped": brax.compute_gae(cut, jnp.zeros(4), rewards, values, last_value, lambda_=0.95, discount=0.99)[1],
}
print(f"{'':16}" + "".join(f"{f'A_{t}':>11}" for t in range(4)))
for name, advantages in six.items():
    print(f"{name:16}" + "".join(f"{float(x):11.6f}" for x in advantages))

# %% [markdown]
# Only step 1 was cut off, but step 0 is wrong as well: every error is passed on by the trace. Steps 2 and 3 lie behind the
# cut and are the same for all, except in Brax, whose advantages are of another kind: they compare $r_t + \gamma v_{t+1}$
# with V(s_t), where $v$ are λ-returns, so $\lambda$ counts from the next step on.
#
# How wrong is it? The error at step 1 is the difference to 2.188, in units in which a step pays 1 to 4.

# %%
errors = {name: np.asarray(advantages - six["1 right"])[:2] for name, advantages in six.items()}
figure, axes = plt.subplots(figsize=(7, 3), layout="constrained")
for shift, step in ((-0.2, 0), (0.2, 1)):
    axes.bar(np.arange(6) + shift, [errors[name][step] for name in six], width=0.4, label=f"step {step}")
axes.set(ylabel="error of the advantage")
axes.set_xticks(range(6), list(six), rotation=15)
_ = axes.legend()

# %%
np.stack([np.asarray(advantages) for advantages in six.values()])[:, :2]

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
# # One recurrence, seven estimators
#
# An action is judged by what came after it. How far ahead to look, how much to trust the critic on the way, what to do
# with actions that the learner would not have taken: that is what estimators differ in. What they share is
#
# $$y_t = a_t\, y_{t+1} + b_t,$$
#
# walked from the last step to the first, with nothing carried over the end of an episode. This notebook draws it.

# %%
import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np

import rl_triton_jax as rl

T = 24
rng = np.random.default_rng(0)
rewards = jnp.asarray(rng.normal(size=T), jnp.float32)
values = jnp.asarray(rng.normal(size=T), jnp.float32)
last_value = jnp.float32(0.5)
terminated = jnp.arange(T) == 7  # the first episode ends here, in a terminal state
truncated = jnp.arange(T) == 15  # the second is cut off here; the third goes on beyond the buffer
final_values = jnp.where(truncated, 1.2, jnp.nan)  # V of the state it was cut off in; nothing else is read

# %% [markdown]
# ## By hand
#
# Generalised advantage estimation (Schulman et al. 2016) adds up temporal-difference errors,
# $\delta_t = r_t + \gamma V(s_{t+1}) - V(s_t)$, with weights that fall by $\gamma\lambda$ a step. So $b_t = \delta_t$ and
# $a_t = \gamma\lambda$. `linear_recurrence` is the walk alone, `gae` all of it in one kernel.

# %%
gamma, lambda_ = 0.97, 0.9
next_values = jnp.append(values[1:], last_value)
next_values = jnp.where(truncated, final_values, jnp.where(terminated, 0, next_values))
delta = rewards + gamma * next_values - values

by_hand = rl.linear_recurrence(gamma * lambda_, delta, reset=terminated | truncated, reverse=True)
fused = rl.gae(
    rewards,
    values,
    terminated,
    truncated,
    last_values=last_value,
    final_values=final_values,
    gamma=gamma,
    lambda_=lambda_,
).advantages
float(jnp.abs(by_hand - fused).max())

# %% [markdown]
# ## Where credit goes
#
# The estimators are differentiable, so the weight that reward $k$ has in the result at step $t$ is a derivative, and
# `jax.jacobian` gives all of them: a row for each step, a column for each reward. The two ends of episodes cut the
# picture into blocks. Larger $\lambda$ looks further ahead: with 0 every step sees its own reward only, the rest is
# left to the critic.


# %%
def weights(estimate):
    """What each reward counts for at each step: [T, T]."""
    return np.asarray(jax.jacobian(estimate)(rewards))


def draw(pictures, title):
    figure, axes = plt.subplots(
        1, len(pictures), figsize=(2.6 * len(pictures), 2.9), layout="constrained", squeeze=False
    )
    for axis, (name, picture) in zip(axes[0], pictures.items(), strict=True):
        image = axis.imshow(picture, vmin=0, vmax=1, cmap="viridis")
        axis.set(title=name, xlabel="reward k")
    axes[0][0].set_ylabel("result at step t")
    figure.colorbar(image, ax=axes, label="weight")
    figure.suptitle(title)


ends = {"last_values": last_value, "final_values": final_values, "gamma": gamma}


def gae(lambda_):
    return lambda r: rl.gae(r, values, terminated, truncated, **ends, lambda_=lambda_).advantages


draw({f"λ = {x}": weights(gae(x)) for x in (0.0, 0.5, 0.9, 1.0)}, "GAE")

# %% [markdown]
# ## Actions of somebody else
#
# When the data are those of an older policy $\mu$, each step is weighted by how likely the learner $\pi$ would have
# taken it, $\rho_t = \pi(a_t|s_t) / \mu(a_t|s_t)$. Products of ratios explode, so V-trace (Espeholt et al. 2018) clips
# them at $\bar c$: credit fades where the learner would have done something else, and never grows.

# %%
log_rhos = jnp.asarray(rng.normal(scale=0.7, size=T), jnp.float32)


def vtrace(clip):
    return lambda r: (
        rl.vtrace(
            r, values, terminated, truncated, log_rhos=log_rhos, **ends, clip_rho_threshold=clip, clip_c_threshold=clip
        ).vs
    )


draw(
    {
        "ratios all 1": weights(
            lambda r: rl.vtrace(r, values, terminated, truncated, log_rhos=jnp.zeros(T), **ends).vs
        ),
        "clipped at 1": weights(vtrace(1.0)),
        "clipped at 0.5": weights(vtrace(0.5)),
    },
    "V-trace targets",
)

# %% [markdown]
# ## All seven
#
# Five look ahead. The last two look back: eligibility traces (what has been seen, fading) and sums since the episode
# began are the same recurrence walked forward in time, with the triangle on the other side.

# %%
q_values, next_expected_q = values, next_values
seven = {
    "GAE": gae(lambda_),
    "V-trace": vtrace(1.0),
    "Retrace(λ)": lambda r: (
        rl.retrace(
            r,
            q_values,
            terminated,
            truncated,
            next_expected_q=next_expected_q,
            log_rhos=log_rhos,
            gamma=gamma,
            lambda_=lambda_,
        ).targets
    ),
    "λ-returns": lambda r: rl.lambda_returns(r, values, terminated, truncated, **ends, lambda_=lambda_),
    "discounted": lambda r: rl.discounted_returns(r, terminated, truncated, **ends),
    "traces": lambda x: rl.eligibility_traces(x, terminated, truncated, gamma=gamma, lambda_=lambda_),
    "episodic sum": lambda x: rl.episodic_cumsum(x, terminated | truncated),
}
pictures = {name: weights(estimate) for name, estimate in seven.items()}
draw(pictures, "the same data, seven ways")

# %% [markdown]
# No weight crosses an end, in none of them: the largest weight outside of the blocks is

# %%
episode = np.cumsum(np.concatenate([[0], np.asarray(terminated | truncated)[:-1]]))
outside = episode[:, None] != episode[None, :]
max(float(np.abs(picture[outside]).max()) for picture in pictures.values())

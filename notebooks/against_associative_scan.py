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
# # Against `jax.lax.associative_scan`
#
# JAX has a tool for recurrences already. This notebook writes generalised advantage estimation with it, and compares what
# comes out: the numbers, what happens behind the end of an episode, and the time.

# %%
import sys

import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np

import rl_triton_jax

sys.path.insert(0, "..")  # the benchmarks are not installed with the package

gamma, lambda_ = 0.99, 0.95

# %% [markdown]
# ## Six lines
#
# Two steps of $y_t = a_t\, y_{t+1} + b_t$ are one step with other coefficients, and how steps are joined does not matter: so
# pairs (a, b) can be joined in a tree, in $\log_2 T$ rounds instead of T steps. Every round is a pass over memory, though,
# and the pairs are an array more than the problem has.


# %%
def joined(later, earlier):
    a_later, b_later = later
    a_earlier, b_earlier = earlier
    return a_earlier * a_later, a_earlier * b_later + b_earlier


@jax.jit
def by_associative_scan(rewards, values, terminated, last_values):
    goes_on = 1 - terminated.astype(rewards.dtype)
    next_values = jnp.concatenate([values[1:], last_values[None]])
    delta = rewards + gamma * goes_on * next_values - values
    _, advantages = jax.lax.associative_scan(joined, (gamma * lambda_ * goes_on, delta), reverse=True)
    return advantages, advantages + values


@jax.jit
def fused(rewards, values, terminated, last_values):
    return rl_triton_jax.gae(rewards, values, terminated, last_values=last_values, gamma=gamma, lambda_=lambda_)


def in_float64(rewards, values, terminated, last_values):
    """What both should give, a step at a time."""
    rewards, values, last_values = (np.asarray(x, np.float64) for x in (rewards, values, last_values))
    terminated, advantages, carry = np.asarray(terminated), np.empty(rewards.shape), np.zeros(rewards.shape[1:])
    for t in reversed(range(len(rewards))):
        next_value = last_values if t == len(rewards) - 1 else values[t + 1]
        delta = rewards[t] + gamma * np.where(terminated[t], 0, next_value) - values[t]
        carry = advantages[t] = delta + gamma * lambda_ * np.where(terminated[t], 0, carry)
    return advantages


def data(T, N, seed=0):
    keys = jax.random.split(jax.random.key(seed), 4)
    rewards, values = jax.random.normal(keys[0], (T, N)), jax.random.normal(keys[1], (T, N))
    return rewards, values, jax.random.bernoulli(keys[2], 0.02, (T, N)), jax.random.normal(keys[3], (N,))


# %% [markdown]
# ## The numbers
#
# Both are right, to the rounding of float32. A chain of T multiply-adds does not lose more than a tree here, because
# $\gamma\lambda < 1$ forgets old roundings.

# %%
lengths = [16, 64, 256, 1024, 4096]
errors = {"associative_scan": [], "rl_triton_jax": []}
for T in lengths:
    arrays = data(T, 64)
    right = in_float64(*arrays)
    for name, estimate in (("associative_scan", by_associative_scan), ("rl_triton_jax", fused)):
        advantages = np.asarray(estimate(*arrays)[0], np.float64)
        errors[name].append(np.abs(advantages - right).max() / np.abs(right).max())

figure, axes = plt.subplots(figsize=(6, 3.2), layout="constrained")
for name, worst in errors.items():
    axes.plot(lengths, worst, marker="o", label=name)
axes.axhline(float(jnp.finfo(jnp.float32).eps), color="black", linestyle="--", label="float32's epsilon")
axes.set(xscale="log", yscale="log", xlabel="T", ylabel="largest error / largest advantage")
axes.legend()
plt.show()
max(max(worst) for worst in errors.values())

# %% [markdown]
# ## Behind the end of an episode
#
# The six lines multiply with `goes_on`. That is 0 where an episode ended, and 0 times a finite number is 0. But rows behind an
# end may hold anything: a padded buffer, a simulator that diverged and was reset, a value network that overflowed on a state
# that nobody will visit. 0 times NaN is NaN, and the trace carries it back through the whole episode *before*.
#
# Here every step from 20 on is garbage, and step 19 terminated: the first 20 steps do not depend on the rest.

# %%
rewards, values, _, last_values = data(32, 1)
terminated = (jnp.arange(32) == 19)[:, None]
garbage = (jnp.arange(32) >= 20)[:, None]
broken = jnp.where(garbage, jnp.nan, rewards), jnp.where(garbage, jnp.nan, values), terminated, last_values

{
    name: int(jnp.isnan(estimate(*broken)[0][:20]).sum())
    for name, estimate in (("associative_scan", by_associative_scan), ("rl_triton_jax", fused))
}

# %% [markdown]
# A select, `jnp.where(terminated, 0, …)`, in the temporal-difference error is not enough, for the tree multiplies too: where a is
# 0 and b from behind the end is NaN, `a_earlier * b_later` is NaN again.

# %%
goes_on = 1 - terminated.astype(jnp.float32)
next_values = jnp.concatenate([broken[1][1:], last_values[None]])
delta = broken[0] + gamma * jnp.where(terminated, 0, next_values) - broken[1]
_, selected = jax.lax.associative_scan(joined, (gamma * lambda_ * goes_on, delta), reverse=True)
int(jnp.isnan(selected[:20]).sum())

# %% [markdown]
# ## The time
#
# Where there is a GPU, the cell below measures on it. Where there is none, it shows the results that are committed with the
# benchmarks and says whose they are. Time is device time, in µs, with the buffers reused; a copy moves as many bytes as the
# problem must read and write.

# %%
from benchmarks import plot, run
from benchmarks.rows import latest, load

if rl_triton_jax.default_implementation() == "triton":
    import tempfile

    shapes = "20x256,128x4096,128x32768,512x16384,1024x4096,4096x64"
    options = ["--suite", "jax", "--light", "--shapes", shapes, "--out", tempfile.mkdtemp()]
    results = load([run.main(options, log=lambda _: None)])
    print("Measured now, on this machine.")
else:
    results = load(sorted(run.RESULTS.glob("*/*.json")))
    print("No GPU here: these were measured before, and are read from benchmarks/results.")
for one in results:
    header = one["header"]
    versions = {name: header["versions"].get(name) for name in ("jax", "triton")}
    print(header["device"], header["date"][:10], versions)

# %%
rows = [
    row
    for row in latest(results).values()
    if (row["op"], row["layout"], row["dtype"], row["warm"], row["truncation"])
    == ("gae", "time_major", "float32", "warm", False)
    and row["outputs"] == "advantages,returns"
]
times = {}
for row in rows:
    times.setdefault((row["T"], row["N"]), {})[row["provider"]] = row
print(f"{'TxN':>12} {'a copy':>8} {'ours':>8} {'associative_scan':>17} {'ratio':>6}")
ratios = {}
for (T, N), found in sorted(times.items(), key=lambda item: item[0][0] * item[0][1]):
    if {"ours_xla_triton", "associative_scan"} <= found.keys():
        ours, theirs = found["ours_xla_triton"], found["associative_scan"]
        ratios[f"{T}x{N}"] = theirs["device_us"] / ours["device_us"]
        print(
            f"{f'{T}x{N}':>12} {ours['copy_us']:8.2f} {ours['device_us']:8.2f} {theirs['device_us']:17.2f}"
            f" {ratios[f'{T}x{N}']:6.1f}"
        )

# %%
plot.by_shape(list(latest(results).values()))

# %% [markdown]
# At small sizes it is launches that count, not bytes: a fused kernel is one, the tree several. At large ones it is passes over
# memory. The serial loop, `lax.scan`, launches at every step.

# %%
plot.heat_map(list(latest(results).values()))

# %% [markdown]
# The same for all estimators: how many times longer the best baseline takes than the kernel, wherever both were measured. Red is
# slower than the baseline.

# %%
{name: round(ratio, 1) for name, ratio in ratios.items()}

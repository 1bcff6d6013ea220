"""One PPO training step, whole: what does the estimator's share come to? Writes one JSON file.

    python -m benchmarks.train_step --out results.json
    python -m benchmarks.train_step --quick --out results.json     # does everything run and agree?
    python -m benchmarks.train_step --show results.json            # a table

The same step is compiled with each estimator in turn, at the sizes of two kinds of training code:

* `brax`: the learning half of a step of Brax's PPO on a small locomotion task, 4 passes over 32 minibatches of 256 trajectories
  of 20 steps. Advantages are computed anew inside every loss: 128 calls. The simulation is left out, its data are random.
* `purejaxrl`: a whole step of PureJaxRL's PPO on CartPole, 4 environments of gymnax for 128 steps, one call, 4 passes over 4
  minibatches.

Each estimator first passes the gate of the benchmarks, and the mean loss of its step is compared with that of the plain loop.
Steps of all estimators are then timed in turn, round after round, so that what drifts, drifts for all.
"""

from __future__ import annotations

import argparse
import functools
import importlib.util
import json
import statistics
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from . import environment
from .bench import prepare
from .measure import QUICK, device_time, relative_spread
from .ops import all_ops
from .problem import Problem
from .providers import all_providers
from .shapes import Shape

PLAIN = "lax_scan_1"
ESTIMATORS = ("ours_xla_triton", "ours_jax_triton", "ours_xla", "associative_scan", "lax_scan_16", PLAIN)
LOSS_TOLERANCE = 1e-3  # a step is hundreds of Adam updates, which part from each other slowly

Estimate = Callable[[Any, Any, Any, Any], tuple[Any, Any]]  # (rewards, values, terminated, last values)


class Setting(NamedTuple):
    """A training step: `make(estimate, sizes)` gives (step, carry), and step(carry) the mean loss and another carry."""

    make: Callable[[Estimate, Sizes], tuple[Callable[[Any], tuple[Any, Any]], Any]]
    sizes: Sizes
    small: Sizes  # under --quick
    needs: tuple[str, ...]


class Sizes(NamedTuple):
    T: int
    N: int  # of one call of the estimator
    minibatches: int
    epochs: int = 4


def _mlp(widths: Sequence[int], activation: Any) -> Any:
    import flax.linen as nn

    layers: list[Any] = []
    for width in widths[:-1]:
        layers += [nn.Dense(width), activation]
    return nn.Sequential([*layers, nn.Dense(widths[-1])])


def _objective(log_probs: Any, old_log_probs: Any, advantages: Any, clip: float) -> Any:
    import jax.numpy as jnp

    advantages = (advantages - advantages.mean()) / (advantages.std() + 1e-8)
    ratio = jnp.exp(log_probs - old_log_probs)
    return jnp.minimum(ratio * advantages, jnp.clip(ratio, 1 - clip, 1 + clip) * advantages).mean()


def _brax(estimate: Estimate, sizes: Sizes) -> tuple[Any, Any]:
    import flax.linen as nn
    import jax
    import jax.numpy as jnp
    import optax

    features, actions = 87, 8
    policy, critic = _mlp((*[32] * 4, 2 * actions), nn.swish), _mlp((*[256] * 5, 1), nn.swish)
    optimizer = optax.adam(3e-4)
    trajectories = sizes.minibatches * sizes.N

    def log_prob(params: Any, obs: Any, action: Any) -> Any:
        mean, log_std = jnp.split(policy.apply(params["policy"], obs), 2, axis=-1)
        return jax.scipy.stats.norm.logpdf(action, mean, jnp.exp(0.1 * log_std)).sum(-1)

    def loss(params: Any, batch: Any) -> Any:
        batch = jax.tree.map(lambda x: jnp.swapaxes(x, 0, 1), batch)  # stored by trajectory, estimated in time order
        values = critic.apply(params["value"], batch["obs"])[..., 0]
        advantages, targets = estimate(batch["reward"], values[:-1], batch["terminated"], values[-1])
        advantages, targets = jax.lax.stop_gradient((advantages, targets))
        new = log_prob(params, batch["obs"][:-1], batch["action"])
        error = jnp.square(targets - values[:-1]).mean()
        return 0.25 * error - _objective(new, batch["log_prob"], advantages, 0.3)

    def learn(agent: Any, batch: Any) -> tuple[Any, Any]:
        params, state = agent
        value, grads = jax.value_and_grad(loss)(params, batch)
        change, state = optimizer.update(grads, state, params)
        return (optax.apply_updates(params, change), state), value

    def step(carry: Any) -> tuple[Any, Any]:
        agent, data, key = carry

        def epoch(agent: Any, key: Any) -> tuple[Any, Any]:
            order = jax.random.permutation(key, trajectories)
            batches = jax.tree.map(lambda x: x[order].reshape(sizes.minibatches, sizes.N, *x.shape[1:]), data)
            return jax.lax.scan(learn, agent, batches)

        key, *keys = jax.random.split(key, sizes.epochs + 1)
        agent, losses = jax.lax.scan(epoch, agent, jnp.stack(keys))
        return losses.mean(), (agent, data, key)

    keys = jax.random.split(jax.random.key(0), 8)
    shape = trajectories, sizes.T
    data = {
        "obs": jax.random.normal(keys[0], (trajectories, sizes.T + 1, features)),
        "action": jax.random.normal(keys[1], (*shape, actions)),
        "reward": jax.random.normal(keys[2], shape),
        "terminated": jax.random.uniform(keys[3], shape) < 0.02,
    }
    params = {"policy": policy.init(keys[5], data["obs"][0]), "value": critic.init(keys[6], data["obs"][0])}
    data["log_prob"] = jax.jit(log_prob)(params, data["obs"][:, :-1], data["action"])
    return step, ((params, optimizer.init(params)), data, keys[7])


def _purejaxrl(estimate: Estimate, sizes: Sizes) -> tuple[Any, Any]:
    import flax.linen as nn
    import gymnax
    import jax
    import jax.numpy as jnp
    import optax

    env, env_params = gymnax.make("CartPole-v1")
    policy, critic = _mlp((64, 64, 2), nn.tanh), _mlp((64, 64, 1), nn.tanh)
    optimizer = optax.chain(optax.clip_by_global_norm(0.5), optax.adam(2.5e-4, eps=1e-5))

    def log_probs(params: Any, obs: Any) -> Any:
        return jax.nn.log_softmax(policy.apply(params["policy"], obs))

    def value(params: Any, obs: Any) -> Any:
        return critic.apply(params["value"], obs)[..., 0]

    def taken(log_probs: Any, action: Any) -> Any:
        return jnp.take_along_axis(log_probs, action[..., None], -1)[..., 0]

    def loss(params: Any, batch: Any) -> Any:
        new = log_probs(params, batch["obs"])
        gain = _objective(taken(new, batch["action"]), batch["log_prob"], batch["advantage"], 0.2)
        error = jnp.square(value(params, batch["obs"]) - batch["target"]).mean()
        entropy = -(jnp.exp(new) * new).sum(-1).mean()
        return 0.25 * error - gain - 0.01 * entropy

    def learn(agent: Any, batch: Any) -> tuple[Any, Any]:
        params, state = agent
        found, grads = jax.value_and_grad(loss)(params, batch)
        change, state = optimizer.update(grads, state, params)
        return (optax.apply_updates(params, change), state), found

    def act(params: Any, state: Any, key: Any) -> tuple[Any, Any]:
        obs, env_state = state
        key_action, key_env = jax.random.split(key)
        log_p = log_probs(params, obs)
        action = jax.random.categorical(key_action, log_p)
        after, env_state, reward, terminated, truncated, _ = jax.vmap(env.step, (0, 0, 0, None))(
            jax.random.split(key_env, sizes.N), env_state, action, env_params
        )
        row = {"obs": obs, "action": action, "log_prob": taken(log_p, action), "reward": reward}
        # One flag for both ends, as there.
        return (after, env_state), row | {"value": value(params, obs), "done": terminated | truncated}

    def step(carry: Any) -> tuple[Any, Any]:
        agent, state, key = carry
        key, key_act, key_learn = jax.random.split(key, 3)
        state, rows = jax.lax.scan(functools.partial(act, agent[0]), state, jax.random.split(key_act, sizes.T))
        advantages, targets = estimate(rows["reward"], rows["value"], rows["done"], value(agent[0], state[0]))
        batch = rows | {"advantage": advantages, "target": targets}
        batch = jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), batch)

        def epoch(agent: Any, key: Any) -> tuple[Any, Any]:
            order = jax.random.permutation(key, sizes.T * sizes.N).reshape(sizes.minibatches, -1)
            return jax.lax.scan(learn, agent, jax.tree.map(lambda x: x[order], batch))

        agent, losses = jax.lax.scan(epoch, agent, jax.random.split(key_learn, sizes.epochs))
        return losses.mean(), (agent, state, key)

    keys = jax.random.split(jax.random.key(0), 4)
    state = jax.vmap(env.reset, (0, None))(jax.random.split(keys[0], sizes.N), env_params)
    params = {"policy": policy.init(keys[1], state[0]), "value": critic.init(keys[2], state[0])}
    return step, ((params, optimizer.init(params)), state, keys[3])


SETTINGS = {
    "brax": Setting(_brax, Sizes(20, 256, 32), Sizes(5, 4, 2), ("flax", "optax")),
    "purejaxrl": Setting(_purejaxrl, Sizes(128, 4, 4), Sizes(8, 4, 2), ("flax", "optax", "gymnax")),
}


def estimator(name: str, problem: Problem) -> Estimate:
    """A provider of the benchmarks as a function of arrays; it sees the same problem as where it is timed by itself."""
    function = all_providers()[name].make(problem)

    def estimate(rewards: Any, values: Any, terminated: Any, last_values: Any) -> tuple[Any, Any]:
        inputs = {"rewards": rewards, "values": values, "terminated": terminated, "last_values": last_values}
        advantages, returns = function(inputs)
        return advantages, returns

    return estimate


def measure(name: str, quick: bool) -> list[dict[str, Any]]:
    import jax

    setting = SETTINGS[name]
    sizes = setting.small if quick else setting.sizes
    problem = all_ops()["gae"].problem(Shape("time_major", sizes.T, sizes.N))
    rows: list[dict[str, Any]] = []
    steps: dict[str, Callable[[], Any]] = {}
    for provider in ESTIMATORS:
        row: dict[str, Any] = {"setting": name, "provider": provider, **sizes._asdict(), "error": None}
        rows.append(row)
        why = all_providers()[provider].why_not() or prepare(problem, all_providers()[provider])[0]["error"]
        if why:
            row["error"] = why
            continue
        step, carry = setting.make(estimator(provider, problem), sizes)
        start = time.perf_counter()
        compiled = jax.jit(step).lower(carry).compile()
        row["compile_s"] = time.perf_counter() - start
        row["loss"] = float(compiled(carry)[0])
        steps[provider] = functools.partial(compiled, carry)
    ready = [row for row in rows if not row["error"]]
    plain = next(row["loss"] for row in ready if row["provider"] == PLAIN)
    for row in ready:
        if not abs(row["loss"] - plain) <= LOSS_TOLERANCE * abs(plain):
            row["error"] = f"refused: its loss is {row['loss']:.6g}, that of the plain loop {plain:.6g}"
    ready = [row for row in ready if not row["error"]]

    times: dict[str, list[float]] = {row["provider"]: [] for row in ready}
    for _ in range(4 if quick else 60):
        for provider, taken in times.items():
            start = time.perf_counter()
            jax.block_until_ready(steps[provider]())
            taken.append(time.perf_counter() - start)
    for row in ready:
        taken = times[row["provider"]][2:]
        half = len(taken) // 2
        row["step_us"] = statistics.median(taken) * 1e6
        row["spread"] = relative_spread([statistics.median(taken[:half]), statistics.median(taken[half:])])
        timed = device_time(steps[row["provider"]], jax.block_until_ready, QUICK)
        row["device_us"], row["launches"] = (timed.us, timed.launches) if timed.method != "wall" else (None, None)
    return rows


def table(results: dict[str, Any]) -> str:
    """Markdown. The ratio is that of whole steps, to the first estimator that was measured."""
    lines = [
        "| step | estimator | whole step, ms | to ours | in kernels, ms | launches | compile, s |",
        "|---|---|" + "---:|" * 5,
    ]
    base: dict[str, float] = {}
    for row in results["rows"]:
        if row["error"]:
            continue
        ratio = row["step_us"] / base.setdefault(row["setting"], row["step_us"])
        device = "-" if row["device_us"] is None else f"{row['device_us'] / 1e3:.3g}"
        launches = "-" if row["launches"] is None else f"{row['launches']:.0f}"
        cells = [row["setting"], f"`{row['provider']}`", f"{row['step_us'] / 1e3:.3g}", f"{ratio:.2f}"]
        lines.append(f"| {' | '.join([*cells, device, launches, format(row['compile_s'], '.2g')])} |")
    return "\n".join(lines)


def main(argv: Sequence[str] | None = None, log: Callable[[str], None] = print) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.train_step", description=(__doc__ or "").partition("\n")[0]
    )
    parser.add_argument("--settings", default=",".join(SETTINGS), help=f"comma list of {', '.join(SETTINGS)}")
    parser.add_argument("--quick", action="store_true", help="small sizes, few repetitions")
    mode = parser.add_mutually_exclusive_group(required=True)
    mode.add_argument("--out", type=Path)
    mode.add_argument("--show", type=Path)
    args = parser.parse_args(argv)
    if args.show:
        log(table(json.loads(args.show.read_text())))
        return 0
    results: dict[str, Any] = {"header": environment.describe() | {"quick": args.quick}, "rows": []}
    for name in args.settings.split(","):
        missing = [need for need in SETTINGS[name].needs if importlib.util.find_spec(need) is None]
        if missing:
            log(f"not measured: {name}: {', '.join(missing)} not installed")
            continue
        results["rows"] += measure(name, args.quick)
        args.out.write_text(json.dumps(results, indent=1) + "\n")
    for row in results["rows"]:
        if row["error"]:
            log(f"not measured: {row['setting']} {row['provider']}: {row['error']}")
    log(table(results))
    return 1 if any("refused" in (row["error"] or "") for row in results["rows"]) else 0


if __name__ == "__main__":
    raise SystemExit(main())

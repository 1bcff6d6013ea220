"""Brax's own PPO trainer with one function exchanged: its `compute_gae` for ours.

    python examples/brax_ppo.py                        # needs brax: pip install brax
    python examples/brax_ppo.py --gae brax             # Brax's own, to compare
    python examples/brax_ppo.py --smoke

The trainer looks the function up in its module when it is traced, so that setting it there is all there is to do. It sits
inside the differentiated loss, in a `lax.scan` over minibatches.
"""

from __future__ import annotations

import argparse
import functools
import time
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from brax import envs
from brax.training.agents.ppo import losses
from brax.training.agents.ppo import train as ppo

import rl_triton_jax
from rl_triton_jax.compat.brax import compute_gae


def device_put_replicated(tree: Any, devices: list[Any]) -> Any:
    """What Brax 0.14 calls and JAX no longer has: one copy for each device of `pmap`, stacked."""
    one_each = jax.NamedSharding(jax.sharding.Mesh(np.asarray(devices), ("devices",)), jax.P("devices"))
    return jax.tree.map(lambda x: jax.device_put(jnp.stack([x] * len(devices)), one_each), tree)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--env", default="inverted_pendulum", help="a Brax environment")
    parser.add_argument(
        "--backend", default="generalized", help="who simulates: generalized, spring, positional or mjx"
    )
    parser.add_argument("--gae", choices=("ours", "brax"), default="ours")
    parser.add_argument("--steps", type=int, default=400_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--smoke", action="store_true", help="one update only, to see that everything runs")
    args = parser.parse_args()
    if not hasattr(jax, "device_put_replicated"):
        setattr(jax, "device_put_replicated", device_put_replicated)  # noqa: B010 (it is no known attribute)
    if args.gae == "ours":
        losses.compute_gae = compute_gae

    sizes = {"num_envs": 8, "batch_size": 8, "num_minibatches": 1, "unroll_length": 5, "num_updates_per_batch": 1}
    if not args.smoke:
        sizes = {
            "num_envs": 128,
            "batch_size": 64,
            "num_minibatches": 8,
            "unroll_length": 10,
            "num_updates_per_batch": 4,
        }
    returns: list[float] = []

    def progress(steps: int, metrics: dict) -> None:
        returns.append(float(metrics["eval/episode_reward"]))
        print(f"{steps:>9,} steps: mean return {returns[-1]:.1f}", flush=True)

    train = functools.partial(
        ppo.train,
        num_timesteps=40 if args.smoke else args.steps,
        num_evals=2 if args.smoke else 6,
        num_eval_envs=8 if args.smoke else 128,
        episode_length=10 if args.smoke else 500,
        normalize_observations=True,
        action_repeat=1,
        discounting=0.97,
        gae_lambda=0.95,
        learning_rate=1e-3,
        entropy_cost=1e-3,
        reward_scaling=1.0,
        seed=args.seed,
        **sizes,
    )
    start = time.perf_counter()
    train(environment=envs.get_environment(args.env, backend=args.backend), progress_fn=progress)
    by = rl_triton_jax.default_implementation() if args.gae == "ours" else "lax.scan"
    print(
        f"{args.env} seed {args.seed}, {args.gae} GAE: mean return {returns[0]:.1f} at first, {returns[-1]:.1f} at last, in "
        f"{time.perf_counter() - start:.0f} s; gae by {by}"
    )


if __name__ == "__main__":
    main()

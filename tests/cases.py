"""One problem for each estimator and each way to call it, at any shape: NumPy arrays with NaN wherever nothing may be read."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

ACTIONS = 5


class Case(NamedTuple):
    """`name` is the public function, `estimator` the description behind it; the key `axis` is left to the caller."""

    name: str
    estimator: str
    variant: str
    arguments: dict[str, Any]

    @property
    def label(self) -> str:
        return f"{self.name}, {self.variant}"


def cases(shape: tuple[int, ...], axis: int, seed: int = 0, rate: float = 0.2) -> Iterator[Case]:
    rng = np.random.default_rng(seed)
    batch = tuple(n for i, n in enumerate(shape) if i != axis)

    def normal(*dims: int) -> np.ndarray:
        return rng.standard_normal(dims or shape).astype(np.float32)

    def uniform(low: float, high: float, dims: tuple[int, ...] = shape) -> np.ndarray:
        return rng.uniform(low, high, dims).astype(np.float32)

    terminated, truncated = rng.random(shape) < rate, rng.random(shape) < rate
    mask = rng.random(shape) < 0.7
    flags = {"terminated": terminated, "truncated": truncated}
    next_q = np.where(terminated[..., None], np.nan, normal(*shape, ACTIONS)).astype(np.float32)
    probs = uniform(0.1, 1, (*shape, ACTIONS))
    probs = (probs / probs.sum(-1, keepdims=True)).astype(np.float32)
    next_values = np.where(terminated, np.nan, normal()).astype(np.float32)
    last = {
        "last_values": normal(*batch) if batch else np.float32(0.7),
        "final_values": np.where(truncated & ~terminated, normal(), np.nan).astype(np.float32),
    }
    rewards, values, log_rhos = normal(), normal(), (0.5 * normal()).astype(np.float32)
    base: dict[str, Any] = {"rewards": rewards, **flags}
    per_step = {"gamma": uniform(0.8, 1), "lambda_": uniform(0.5, 1)}

    def masked(arguments: dict[str, Any]) -> dict[str, Any]:
        """With a mask, and NaN behind it."""
        dead = {
            name: np.where(mask, x, np.nan).astype(np.float32)
            for name, x in arguments.items()
            if name not in ("last_values", "gamma", "lambda_") and getattr(x, "dtype", None) == np.float32
        }
        return {**arguments, **dead, "mask": mask}

    def made(name: str, variant: str, arguments: dict[str, Any], estimator: str = "") -> Case:
        return Case(name, estimator or name, variant, arguments)

    with_values = {**base, "values": values, **last}
    with_next = {**base, "values": values, "next_values": next_values}
    yield made("gae", "last values", with_values)
    yield made("gae", "normalized", {**with_values, "normalize": True})
    yield made("gae", "normalized under a mask", {**masked(with_values), "normalize": True})
    yield made("lambda_returns", "last values", with_values)
    yield made("lambda_returns", "per step", {**with_values, **per_step})
    yield made("lambda_returns", "next values", {**base, "next_values": next_values})
    yield made("lambda_returns", "mask", masked(with_values))
    yield made("lambda_returns", "mask, next values", masked({**base, "next_values": next_values}))
    yield made("q_lambda", "flags", {**base, "next_q_values": next_q}, "lambda_returns")
    yield made("discounted_returns", "no flags", {"rewards": rewards, "last_values": last["last_values"]})
    yield made("discounted_returns", "flags", {**base, **last})
    yield made("discounted_returns", "mask", masked({**base, **last}))
    yield made("vtrace", "last values", {**with_values, "log_rhos": log_rhos})
    yield made("vtrace", "per step", {**with_values, **per_step, "log_rhos": log_rhos, "clip_rho_threshold": 0.9})
    two = {"target_log_probs": normal(), "behavior_log_probs": normal(), "clip_c_threshold": None}
    yield made("vtrace", "next values, probabilities", {**with_next, **two})
    yield made("vtrace", "mask", masked({**with_values, "log_rhos": log_rhos}))
    yield made("puffer_advantage", "flags", {**with_values, "log_rhos": log_rhos}, "vtrace")
    q = {**base, "q_values": values}
    expected = {"next_expected_q": next_values}
    ratios = {"target_probs": uniform(0.1, 1), "behavior_probs": uniform(0.1, 1)}
    folded = {"next_q_values": next_q, "next_target_probs": probs}
    yield made("retrace", "actions", {**q, **folded, "log_rhos": log_rhos, "lambda_": 0.9}, "off_policy")
    yield made("retrace", "probabilities", {**q, **expected, **ratios, **per_step}, "off_policy")
    yield made("tree_backup", "flags", {**q, **folded, "target_probs": ratios["target_probs"]}, "off_policy")
    yield made("general_off_policy_returns", "flags", {**q, **expected, "coefficients": normal()}, "off_policy")
    yield made("upgo", "last values", with_values)
    yield made("upgo", "next values", {**with_next, "gamma": per_step["gamma"]})
    yield made("n_step_returns", "3 steps", {**with_values, "n": 3})
    yield made("n_step_returns", "7 steps, next values", {**base, "next_values": next_values, "n": 7})
    initial = {"initial": last["last_values"]}
    yield made("eligibility_traces", "flags", {"inputs": rewards, **flags, **initial, **per_step})
    yield made("episodic_cumsum", "after", {"inputs": rewards, "done": terminated, **initial})
    yield made("episodic_cumsum", "before", {"inputs": rewards, "done": terminated, "resets": "before"})
    integers = rng.integers(-(2**28), 2**28, shape).astype(np.int32)
    yield made("episodic_cumsum", "integers", {"inputs": integers // max(1, shape[axis]), "done": terminated})

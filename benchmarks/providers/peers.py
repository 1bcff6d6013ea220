"""GAE by other libraries, as they publish it. Measured on request (`--providers brax,rlax,...`), where they are installed.

Each is called with what it wants prepared inside the timed function (next values, discounts, a feature axis), as its users do.
"""

from __future__ import annotations

import functools
import importlib.util
from collections.abc import Callable, Sequence
from typing import Any

from ..problem import Inputs, Problem
from ..provider import Function, Provider
from ..transitions import next_values, stops


def _brax(problem: Problem) -> Function:
    from brax.training.agents.ppo.losses import compute_gae

    def function(inputs: Inputs) -> Sequence[Any]:
        import jax.numpy as jnp

        ended = jnp.asarray(inputs["terminated"], jnp.float32)
        rewards, values = inputs["rewards"], inputs["values"]
        targets, _ = compute_gae(
            jnp.zeros_like(ended),
            ended,
            rewards,
            values,
            inputs["last_values"],
            lambda_=problem.lambda_,
            discount=problem.gamma,
        )
        # What Brax calls advantages takes another step of its targets. The trace itself is this.
        return [targets - values, targets][: len(problem.outputs)]

    return function


def _why_not_brax(problem: Problem) -> str | None:
    if problem.shape.layout != "time_major":
        return "Brax's is time-major"
    # It drops the step at which an episode was cut off.
    return "Brax means something else by truncation" if problem.truncation else None


def _rlax(problem: Problem) -> Function:
    import jax
    import jax.numpy as jnp
    import rlax

    batch = 1 - problem.shape.axis
    one = functools.partial(rlax.truncated_generalized_advantage_estimation, stop_target_gradients=False)
    every = jax.vmap(one, in_axes=(batch, batch, None, batch), out_axes=batch)

    def function(inputs: Inputs) -> Sequence[Any]:
        values = inputs["values"]
        longer = jnp.concatenate([values, problem.edge(inputs["last_values"])], axis=problem.shape.axis)
        discounts = jnp.where(inputs["terminated"] != 0, 0.0, jnp.full_like(values, problem.gamma))
        advantages = every(inputs["rewards"], discounts, problem.lambda_, longer)
        return [advantages, advantages + values][: len(problem.outputs)]

    return function


def _why_not_rlax(problem: Problem) -> str | None:
    return "rlax has no truncation" if problem.truncation else None


def _torchrl(name: str, problem: Problem) -> Function:
    import torch
    from torchrl.objectives.value import functional

    estimate = getattr(functional, name)

    def theirs(x: Any) -> Any:
        """[N, T, 1]"""
        return (x if problem.shape.axis == 1 else x.T)[..., None]

    def function(inputs: Inputs) -> Sequence[Any]:
        results = estimate(
            problem.gamma,
            problem.lambda_,
            theirs(inputs["values"]),
            theirs(next_values(torch, problem, inputs)),
            theirs(inputs["rewards"]),
            theirs(stops(inputs)),
            theirs(inputs["terminated"] != 0),
        )
        back = (x[..., 0] for x in results)
        return [x if problem.shape.axis == 1 else x.T for x in back][: len(problem.outputs)]

    return function


def _missing(package: str) -> str | None:
    return None if importlib.util.find_spec(package) else f"{package} is not installed"


def _peer(name: str, framework: Any, package: str, make: Callable[[Problem], Function], **rest: Any) -> Provider:
    why_not = functools.partial(_missing, package)
    return Provider(name, framework, make, priority=5, ops=("gae",), why_not=why_not, default=False, light=True, **rest)


PROVIDERS = (
    _peer("brax", "jax", "brax", _brax, why_not_problem=_why_not_brax),
    _peer("rlax", "jax", "rlax", _rlax, why_not_problem=_why_not_rlax),
    _peer("torchrl_vectorised", "torch", "torchrl", functools.partial(_torchrl, "vec_generalized_advantage_estimate")),
    _peer("torchrl_loop", "torch", "torchrl", functools.partial(_torchrl, "generalized_advantage_estimate")),
)

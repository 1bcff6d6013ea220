"""GAE and its derivatives by rewards and values, as where advantages are part of a loss: forward and backward in one call."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from ..frameworks import pullback
from ..problem import Inputs, Op, Problem, Scan, arrays
from ..transitions import FINAL_VALUES, STATE_VALUES, Walk
from .gae import OP as GAE

BARS = ("advantages_bar", "returns_bar")  # derivatives of a loss by each result
BY = ("rewards", "values")


class GaeGradient(Op):
    name = "gae_gradient"
    function = GAE.function
    outputs = (*GAE.outputs, "rewards_bar", "values_bar")
    inputs = arrays(**STATE_VALUES, advantages_bar="normal", returns_bar="normal")
    inputs_if_truncated = FINAL_VALUES
    fed = (*BY, *BARS)
    differentiates = True

    def reference(self, problem: Problem, inputs: Mapping[str, np.ndarray]) -> list[np.ndarray]:
        """The adjoint walks the other way: what reaches A_t comes from its own result and from the step before."""
        walk = Walk(problem, inputs)
        advantages_bar, returns_bar = (walk[name] for name in BARS)
        rewards_bar, values_bar = np.empty((walk.T, walk.N)), np.empty((walk.T, walk.N))
        before = np.zeros(walk.N)
        for t in range(walk.T):
            arrives = np.where(walk.stops[t - 1], 0.0, before) if t else before
            rewards_bar[t] = advantages_bar[t] + returns_bar[t] + problem.gamma * problem.lambda_ * arrives
            values_bar[t] = returns_bar[t] - rewards_bar[t] + problem.gamma * arrives
            before = rewards_bar[t]
        return [*GAE.reference(_forward(problem), inputs), problem.back(rewards_bar), problem.back(values_bar)]

    def call(self, library: Any, problem: Problem, inputs: Inputs, **options: Any) -> Sequence[Any]:
        return _with_gradients(lambda given: GAE.call(library, _forward(problem), given, **options), inputs)

    def recurrence(self, xp: Any, problem: Problem, inputs: Inputs) -> tuple[Any, Any]:
        return GAE.recurrence(xp, _forward(problem), inputs)

    def formula(self, xp: Any, problem: Problem, inputs: Inputs, scan: Scan) -> Sequence[Any]:
        return _with_gradients(lambda given: GAE.formula(xp, _forward(problem), given, scan), inputs)


def _forward(problem: Problem) -> Problem:
    """The same without derivatives."""
    return dataclasses.replace(problem, op=GAE, outputs=GAE.outputs)


def _with_gradients(function: Callable[[Inputs], Sequence[Any]], inputs: Inputs) -> Sequence[Any]:
    """(advantages, returns, derivatives of the loss by rewards and by values)."""
    rest = {name: x for name, x in inputs.items() if name not in BARS}
    return pullback(function, rest, BY, [inputs[name] for name in BARS])


OP = GaeGradient()

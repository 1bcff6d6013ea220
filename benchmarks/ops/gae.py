"""Generalised advantage estimation from rewards, values, one-byte flags and the value after the last step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ..problem import VARIANTS, Inputs, Op, Problem
from ..transitions import FINAL_VALUES, STATE_VALUES, State, Walk, stops, td_errors


class Gae(Op):
    name = "gae"
    outputs = ("advantages", "returns")
    inputs = STATE_VALUES
    inputs_if_truncated = FINAL_VALUES
    fed = ("rewards", "values")
    variants = VARIANTS

    def reference(self, problem: Problem, inputs: Mapping[str, np.ndarray]) -> list[np.ndarray]:
        walk = Walk(problem, inputs)
        r, v = walk["rewards"], walk["values"]

        def step(t: int, advantage: np.ndarray, _: np.ndarray) -> State:
            through = np.where(walk.stops[t], 0.0, advantage)
            delta = r[t] + problem.gamma * walk.next_value(t) - v[t]
            advantage = delta + problem.gamma * problem.lambda_ * through
            return advantage, advantage + v[t]

        return walk.run(step)

    def options(self, problem: Problem) -> dict[str, Any]:
        return {**super().options(problem), "with_returns": "returns" in problem.outputs}

    def recurrence(self, xp: Any, problem: Problem, inputs: Inputs) -> tuple[Any, Any]:
        b = td_errors(xp, problem, inputs)
        return xp.where(stops(inputs), 0.0, xp.full_like(b, problem.gamma * problem.lambda_)), b

    def finish(self, xp: Any, problem: Problem, y: Any, inputs: Inputs) -> Sequence[Any]:
        return [y, y + inputs["values"]]


OP = Gae()

"""Discounted sums of rewards, with values at the ends only."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ..problem import Inputs, Op, Problem, arrays
from ..transitions import FINAL_VALUES, State, Walk, bootstrap, ends


class DiscountedReturns(Op):
    name = "discounted_returns"
    outputs = ("returns",)
    inputs = arrays(rewards="normal", terminated="flag", last_values="edge")
    inputs_if_truncated = FINAL_VALUES
    constants = ("gamma",)
    fed = ("rewards",)

    def reference(self, problem: Problem, inputs: Mapping[str, np.ndarray]) -> list[np.ndarray]:
        walk = Walk(problem, inputs)

        def step(t: int, following: np.ndarray) -> State:
            following = np.where(walk.ends[t], walk.next_value(t), following)
            return (walk["rewards"][t] + problem.gamma * following,)

        return walk.run(step)

    def recurrence(self, xp: Any, problem: Problem, inputs: Inputs) -> tuple[Any, Any]:
        r, end = inputs["rewards"], ends(xp, problem, inputs)
        value = bootstrap(xp, inputs, problem.edge(inputs["last_values"]))
        a = xp.where(end, 0.0, xp.full_like(r, problem.gamma))
        return a, r + xp.where(end, problem.gamma * value, 0.0)


OP = DiscountedReturns()

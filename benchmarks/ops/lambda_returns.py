"""lambda-returns from rewards and values."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ..problem import Inputs, Op, Problem
from ..transitions import FINAL_VALUES, STATE_VALUES, State, Walk, mixed_returns, next_values


class LambdaReturns(Op):
    name = "lambda_returns"
    outputs = ("returns",)
    inputs = STATE_VALUES
    inputs_if_truncated = FINAL_VALUES
    fed = ("rewards",)

    def reference(self, problem: Problem, inputs: Mapping[str, np.ndarray]) -> list[np.ndarray]:
        walk = Walk(problem, inputs)

        def step(t: int, following: np.ndarray) -> State:
            v_next = walk.next_value(t)
            mixed = (1 - problem.lambda_) * v_next + problem.lambda_ * following
            return (walk["rewards"][t] + problem.gamma * np.where(walk.ends[t], v_next, mixed),)

        return walk.run(step)

    def recurrence(self, xp: Any, problem: Problem, inputs: Inputs) -> tuple[Any, Any]:
        return mixed_returns(xp, problem, inputs, next_values(xp, problem, inputs))


OP = LambdaReturns()

"""Peng's Q(lambda): lambda-returns of the best action's value, the maximum folded in."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ..problem import Inputs, Op, Problem, arrays
from ..transitions import TRUNCATED, State, Walk, bootstrap, mixed_returns


class QLambda(Op):
    name = "q_lambda"
    outputs = ("returns",)
    inputs = arrays(rewards="normal", next_q_values="actions", terminated="flag")
    inputs_if_truncated = TRUNCATED
    fed = ("rewards",)

    def reference(self, problem: Problem, inputs: Mapping[str, np.ndarray]) -> list[np.ndarray]:
        walk = Walk(problem, inputs)
        best = walk.over_actions(lambda a: inputs["next_q_values"][..., a].astype(np.float64), np.maximum)

        def step(t: int, following: np.ndarray) -> State:
            v_next = np.where(walk.ended[t], 0, best[t])
            mixed = (1 - problem.lambda_) * v_next + problem.lambda_ * following
            return (walk["rewards"][t] + problem.gamma * np.where(walk.ends[t], v_next, mixed),)

        return walk.run(step)

    def recurrence(self, xp: Any, problem: Problem, inputs: Inputs) -> tuple[Any, Any]:
        return mixed_returns(xp, problem, inputs, bootstrap(xp, inputs, xp.amax(inputs["next_q_values"], -1)))


OP = QLambda()

"""n-step returns, n = 5. No first-order recurrence: the baseline is n shifted multiply-adds, which XLA fuses."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ..problem import Inputs, Op, Problem, Scan
from ..transitions import FINAL_VALUES, STATE_VALUES, Walk, ends, later, next_values


class NStepReturns(Op):
    name = "n_step_returns"
    outputs = ("returns",)
    inputs = STATE_VALUES
    inputs_if_truncated = FINAL_VALUES
    constants = ("gamma",)
    fed = ("rewards",)

    def __init__(self, n: int) -> None:
        self.n = n

    def reference(self, problem: Problem, inputs: Mapping[str, np.ndarray]) -> list[np.ndarray]:
        walk = Walk(problem, inputs)
        returns = np.zeros((walk.T, walk.N))
        for t in range(walk.T):
            discount = np.ones(walk.N)  # 0 once the window has ended
            for s in range(t, min(t + self.n, walk.T)):
                returns[t] += discount * walk["rewards"][s]
                discount = discount * problem.gamma
                closes = walk.ends[s] | (s == t + self.n - 1)
                returns[t] += np.where(closes, discount * walk.next_value(s), 0.0)
                discount = np.where(closes, 0.0, discount)
        return [problem.back(returns)]

    def options(self, problem: Problem) -> dict[str, Any]:
        return {**super().options(problem), "n": self.n}

    def formula(self, xp: Any, problem: Problem, inputs: Inputs, scan: Scan) -> Sequence[Any]:
        r, v_next, end = inputs["rewards"], next_values(xp, problem, inputs), ends(xp, problem, inputs)
        y = r + problem.gamma * v_next
        for _ in range(1, self.n):
            y = r + problem.gamma * xp.where(end, v_next, later(xp, problem, y, y[problem.steps(-1, None)]))
        return [y]


OP = NStepReturns(5)

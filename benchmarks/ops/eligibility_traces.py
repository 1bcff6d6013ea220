"""Accumulating eligibility traces, forward in time."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ..problem import Inputs, Op, Problem, arrays
from ..transitions import TRUNCATED, State, Walk, earlier, stops


class EligibilityTraces(Op):
    name = "eligibility_traces"
    outputs = ("traces",)
    inputs = arrays(inputs="normal", terminated="flag")
    inputs_if_truncated = TRUNCATED
    fed = ("inputs",)
    backward = False

    def reference(self, problem: Problem, inputs: Mapping[str, np.ndarray]) -> list[np.ndarray]:
        walk = Walk(problem, inputs)

        def step(t: int, trace: np.ndarray) -> State:
            kept = np.where(walk.stops[t - 1], 0, trace) if t else trace
            return (walk["inputs"][t] + problem.gamma * problem.lambda_ * kept,)

        return walk.run(step)

    def recurrence(self, xp: Any, problem: Problem, inputs: Inputs) -> tuple[Any, Any]:
        b, stop = inputs["inputs"], stops(inputs)
        starts = earlier(xp, problem, stop, stop[problem.steps(0, 1)])
        return xp.where(starts, 0.0, xp.full_like(b, problem.gamma * problem.lambda_)), b


OP = EligibilityTraces()

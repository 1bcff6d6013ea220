"""V-trace with lambda and all thresholds at 1."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ..problem import Inputs, Op, Problem, arrays
from ..transitions import (
    FINAL_VALUES,
    STATE_VALUES,
    State,
    Walk,
    clipped_ratio,
    ends,
    later,
    next_values,
    stops,
    td_errors,
)


class VTrace(Op):
    name = "vtrace"
    outputs = ("vs", "pg_advantages")
    inputs = arrays(**STATE_VALUES, log_rhos="normal")
    inputs_if_truncated = FINAL_VALUES
    fed = ("values", "rewards")
    lambda_ = 1.0

    def reference(self, problem: Problem, inputs: Mapping[str, np.ndarray]) -> list[np.ndarray]:
        walk, gamma = Walk(problem, inputs), problem.gamma
        r, v = walk["rewards"], walk["values"]

        def step(t: int, vs: np.ndarray, _: np.ndarray, correction: np.ndarray) -> State:
            weight, v_next = np.minimum(1, np.exp(walk["log_rhos"][t])), walk.next_value(t)
            through = np.where(walk.stops[t], 0, gamma * problem.lambda_ * weight * correction)
            correction = weight * (r[t] + gamma * v_next - v[t]) + through
            target = np.where(walk.ends[t], v_next, vs)
            return v[t] + correction, weight * (r[t] + gamma * target - v[t]), correction

        return walk.run(step, states=3)

    def recurrence(self, xp: Any, problem: Problem, inputs: Inputs) -> tuple[Any, Any]:
        weight = clipped_ratio(xp, inputs)
        a = xp.where(stops(inputs), 0.0, problem.gamma * problem.lambda_ * weight)
        return a, weight * td_errors(xp, problem, inputs)

    def finish(self, xp: Any, problem: Problem, y: Any, inputs: Inputs) -> Sequence[Any]:
        v = inputs["values"]
        vs = v + y
        vs_next = later(xp, problem, vs, vs[problem.steps(-1, None)])
        target = xp.where(ends(xp, problem, inputs), next_values(xp, problem, inputs), vs_next)
        return [vs, clipped_ratio(xp, inputs) * (inputs["rewards"] + problem.gamma * target - v)]


OP = VTrace()

"""PufferLib's advantage, in this package's indexing: V-trace's correction."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ..problem import Inputs, Problem
from ..transitions import State, Walk
from .vtrace import VTrace


class PufferAdvantage(VTrace):
    name = "puffer_advantage"
    outputs = ("advantages",)
    fed = ("rewards",)
    lambda_ = 0.95

    def reference(self, problem: Problem, inputs: Mapping[str, np.ndarray]) -> list[np.ndarray]:
        walk, gamma = Walk(problem, inputs), problem.gamma

        def step(t: int, advantage: np.ndarray) -> State:
            weight = np.minimum(1, np.exp(walk["log_rhos"][t]))
            delta = walk["rewards"][t] + gamma * walk.next_value(t) - walk["values"][t]
            return (weight * (delta + gamma * problem.lambda_ * np.where(walk.stops[t], 0, advantage)),)

        return walk.run(step)

    def finish(self, xp: Any, problem: Problem, y: Any, inputs: Inputs) -> Sequence[Any]:
        return [y]


OP = PufferAdvantage()

"""y_t = a_t y_{t-1} + b_t, restarting from b_t where `reset` is set."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ..problem import Inputs, Op, Problem, arrays
from ..transitions import State, Walk


class LinearRecurrence(Op):
    name = "linear_recurrence"
    outputs = ("y",)
    inputs = arrays(a="unit", b="normal", reset="flag")
    constants = ()
    fed = ("b",)
    variants = ("plain",)
    backward = False

    def make_inputs(self, problem: Problem) -> dict[str, np.ndarray]:
        # |a| <= 0.4: a chain of 64 calls, each fed the last one's y as its b, stays finite.
        inputs = super().make_inputs(problem)
        return inputs | {"a": (0.8 * inputs["a"].astype(np.float32) - 0.4).astype(problem.host_type())}

    def reference(self, problem: Problem, inputs: Mapping[str, np.ndarray]) -> list[np.ndarray]:
        walk = Walk(problem, inputs)
        restarts = walk.flag("reset")

        def step(t: int, y: np.ndarray) -> State:
            return (np.where(restarts[t], 0, walk["a"][t] * y) + walk["b"][t],)

        return walk.run(step)

    def recurrence(self, xp: Any, problem: Problem, inputs: Inputs) -> tuple[Any, Any]:
        return xp.where(inputs["reset"] != 0, 0.0, inputs["a"]), inputs["b"]


OP = LinearRecurrence()

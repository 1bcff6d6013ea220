"""Running sums within episodes, forward in time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ..problem import Inputs, Op, Problem, arrays
from ..transitions import State, Walk, earlier


class EpisodicCumsum(Op):
    name = "episodic_cumsum"
    outputs = ("sums",)
    inputs = arrays(inputs="normal", done="flag")
    constants = ()
    fed = ("inputs",)
    variants = ("plain",)
    backward = False

    def reference(self, problem: Problem, inputs: Mapping[str, np.ndarray]) -> list[np.ndarray]:
        walk = Walk(problem, inputs)
        done = walk.flag("done")

        def step(t: int, total: np.ndarray) -> State:
            return (walk["inputs"][t] + (np.where(done[t - 1], 0, total) if t else total),)

        return walk.run(step)

    def recurrence(self, xp: Any, problem: Problem, inputs: Inputs) -> tuple[Any, Any]:
        done = inputs["done"] != 0
        starts = earlier(xp, problem, done, done[problem.steps(0, 1)])
        return xp.where(starts, 0.0, xp.ones_like(inputs["inputs"])), inputs["inputs"]

    def feed(self, inputs: Inputs, outputs: Sequence[Any]) -> dict[str, Any]:
        # Sums of sums overflow: from the second call on every step is done, in a way that no compiler can know.
        done = inputs["done"]
        return super().feed(inputs, outputs) | {"done": (done < 2).astype(done.dtype)}


OP = EpisodicCumsum()

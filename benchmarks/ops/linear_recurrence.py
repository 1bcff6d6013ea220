"""y_t = a_t y_{t-1} + b_t, restarting from b_t where `reset` is set."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ..problem import Inputs, Op, Problem, accumulate


class LinearRecurrence(Op):
    name = "linear_recurrence"
    outputs = ("y",)
    backward = False

    def make_inputs(self, problem: Problem, rng: np.random.Generator) -> dict[str, np.ndarray]:
        # |a| <= 0.4: a chain of 64 calls, each fed the last one's y as its b, stays finite.
        a = (0.8 * rng.random(problem.shape.dims, dtype=np.float32) - 0.4).astype(problem.host_type())
        return {"a": a, "b": problem.normal(rng), "reset": problem.flag(rng)}

    def reference(self, problem: Problem, inputs: Mapping[str, np.ndarray]) -> list[np.ndarray]:
        a, b = problem.time_major(inputs["a"]), problem.time_major(inputs["b"])
        restarts = problem.time_major(inputs["reset"], bool)
        y = np.empty_like(b)
        carry = np.zeros(problem.shape.N)
        for t in range(problem.shape.T):
            carry = np.where(restarts[t], b[t], a[t] * carry + b[t])
            y[t] = carry
        return [problem.back(y)]

    def count_bytes(self, problem: Problem, inputs: Mapping[str, np.ndarray]) -> int:
        return (2 * problem.itemsize + 1) * problem.elements + problem.output_bytes

    def call(self, library: Any, problem: Problem, inputs: Inputs, **options: Any) -> Sequence[Any]:
        a, b, reset = inputs["a"], inputs["b"], inputs["reset"]
        return [library.linear_recurrence(a, b, reset=reset, axis=problem.shape.axis, **options)]

    def recurrence(self, xp: Any, problem: Problem, inputs: Inputs) -> tuple[Any, Any]:
        a, b = accumulate(xp, inputs["a"]), accumulate(xp, inputs["b"])
        return xp.where(inputs["reset"] != 0, 0.0, a), b

    def finish(self, xp: Any, problem: Problem, y: Any, inputs: Inputs) -> Sequence[Any]:
        return [xp.asarray(y, dtype=getattr(xp, problem.dtype))]

    def feed(self, inputs: Inputs, outputs: Sequence[Any]) -> dict[str, Any]:
        return dict(inputs) | {"b": outputs[0]}


OP = LinearRecurrence()

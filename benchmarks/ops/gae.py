"""Generalised advantage estimation from rewards, values, one-byte flags and the value after the last step."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ..problem import Inputs, Op, Problem, accumulate, touched_bytes


class Gae(Op):
    name = "gae"
    outputs = ("advantages", "returns")
    variants = ("plain", "truncation", "first_output")

    def make_inputs(self, problem: Problem, rng: np.random.Generator) -> dict[str, np.ndarray]:
        inputs = {
            "rewards": problem.normal(rng),
            "values": problem.normal(rng),
            "terminated": problem.flag(rng),
            "last_values": problem.normal(rng, (problem.shape.N,)),
        }
        if problem.truncation:
            inputs["truncated"] = problem.flag(rng)
            inputs["final_values"] = problem.normal(rng)
        return inputs

    def reference(self, problem: Problem, inputs: Mapping[str, np.ndarray]) -> list[np.ndarray]:
        r, v = problem.time_major(inputs["rewards"]), problem.time_major(inputs["values"])
        ended = problem.time_major(inputs["terminated"], bool)
        cut = problem.time_major(inputs["truncated"], bool) if problem.truncation else np.zeros_like(ended)
        final = problem.time_major(inputs["final_values"]) if problem.truncation else v
        advantages = np.empty_like(r)
        carry = np.zeros(problem.shape.N)
        following = inputs["last_values"].astype(np.float64)
        for t in range(problem.shape.T - 1, -1, -1):
            bootstrap = np.where(ended[t], 0.0, np.where(cut[t], final[t], following))
            through = np.where(ended[t] | cut[t], 0.0, carry)
            carry = r[t] + problem.gamma * bootstrap - v[t] + problem.gamma * problem.lambda_ * through
            advantages[t] = carry
            following = v[t]
        results = {"advantages": advantages, "returns": advantages + v}
        return [problem.back(results[name]) for name in problem.outputs]

    def count_bytes(self, problem: Problem, inputs: Mapping[str, np.ndarray]) -> int:
        read = (2 * problem.elements + problem.shape.N) * problem.itemsize + problem.elements
        if problem.truncation:
            used = (inputs["truncated"] != 0) & (inputs["terminated"] == 0)
            read += problem.elements + touched_bytes(used, problem.itemsize)
        return read + problem.output_bytes

    def call(self, library: Any, problem: Problem, inputs: Inputs, **options: Any) -> Sequence[Any]:
        result = library.gae(
            **inputs,
            gamma=problem.gamma,
            lambda_=problem.lambda_,
            axis=problem.shape.axis,
            with_returns="returns" in problem.outputs,
            **options,
        )
        return [getattr(result, name) for name in problem.outputs]

    def recurrence(self, xp: Any, problem: Problem, inputs: Inputs) -> tuple[Any, Any]:
        r, v, last = (accumulate(xp, inputs[name]) for name in ("rewards", "values", "last_values"))
        following = xp.concatenate((v[problem.steps(1, None)], problem.edge(last)), axis=problem.shape.axis)
        ended = inputs["terminated"] != 0
        if problem.truncation:
            cut = inputs["truncated"] != 0
            following = xp.where(cut, accumulate(xp, inputs["final_values"]), following)
            stops = ended | cut
        else:
            stops = ended
        b = r + problem.gamma * xp.where(ended, 0.0, following) - v
        return xp.where(stops, 0.0, xp.full_like(b, problem.gamma * problem.lambda_)), b

    def finish(self, xp: Any, problem: Problem, y: Any, inputs: Inputs) -> Sequence[Any]:
        results = [y, y + accumulate(xp, inputs["values"])][: len(problem.outputs)]
        return [xp.asarray(x, dtype=getattr(xp, problem.dtype)) for x in results]

    def feed(self, inputs: Inputs, outputs: Sequence[Any]) -> dict[str, Any]:
        return dict(inputs) | dict(zip(("rewards", "values"), outputs, strict=False))

    def chained(self, problem: Problem) -> Problem:
        # (r, v) -> (A, A + v) has eigenvalues of about one here; with 0.99 and 0.95 sixty-four calls overflow float32.
        return dataclasses.replace(problem, gamma=0.1, lambda_=0.1)


OP = Gae()

"""GAE over N packed sequences of T steps on average: random lengths, one of them 64 times the mean."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ..problem import Inputs, Op, Problem, arrays

LONGEST = 64  # times the mean


class GaePacked(Op):
    name = "gae_packed"
    outputs = ("advantages", "returns")
    inputs = arrays(rewards="normal", values="normal", last_values="edge")
    fed = ("rewards", "values")
    variants = ("plain",)

    def problem(self, *args: Any, **kwargs: Any) -> Problem:
        problem = super().problem(*args, **kwargs)
        return dataclasses.replace(problem, shape=problem.shape._replace(layout="packed"))

    def make_inputs(self, problem: Problem) -> dict[str, np.ndarray]:
        rng = np.random.default_rng([problem.seed, problem.shape.T, problem.shape.N])
        sequences, total = problem.shape.N, problem.elements
        # Each has a token at least; few short sequences leave the long one half of the tokens.
        spare = total - (sequences - 1)
        longest = min(LONGEST * problem.shape.T, total // 2, spare) if sequences > 1 else total
        cuts = np.sort(rng.integers(0, spare - longest, max(sequences - 2, 0), endpoint=True))
        others = 1 + np.diff(cuts, prepend=0, append=spare - longest)
        lengths = np.insert(others[: sequences - 1], rng.integers(sequences), longest)
        return super().make_inputs(problem) | {"cu_seqlens": np.cumsum([0, *lengths]).astype(np.int32)}

    def reference(self, problem: Problem, inputs: Mapping[str, np.ndarray]) -> list[np.ndarray]:
        """From the ends backward, a token of every sequence at a time, for as long as there is one."""
        r, v = inputs["rewards"].astype(np.float64), inputs["values"].astype(np.float64)
        lengths, ends = np.diff(inputs["cu_seqlens"]), inputs["cu_seqlens"][1:].astype(np.int64)
        order = np.argsort(-lengths, kind="stable")
        lengths, ends = lengths[order], ends[order]
        following = inputs["last_values"][order].astype(np.float64)
        advantage = np.zeros(len(ends))
        advantages = np.empty_like(r)
        for k in range(lengths[0]):
            going = int(np.searchsorted(-lengths, -k))  # the sequences longer than k come first
            rows = ends[:going] - 1 - k
            delta = r[rows] + problem.gamma * following[:going] - v[rows]
            advantage = delta + problem.gamma * problem.lambda_ * advantage[:going]
            advantages[rows], following = advantage, v[rows]
        return [advantages, advantages + v]

    def options(self, problem: Problem) -> dict[str, Any]:
        return {name: getattr(problem, name) for name in self.constants}

    def recurrence(self, xp: Any, problem: Problem, inputs: Inputs) -> tuple[Any, Any]:
        r, v = inputs["rewards"], inputs["values"]
        last, last_values = inputs["cu_seqlens"][1:] - 1, inputs["last_values"]  # no sequence is empty here
        following = xp.concatenate((v[1:], v[:1]))
        a = xp.full_like(r, problem.gamma * problem.lambda_)
        if hasattr(r, "at"):
            following, a = following.at[last].set(last_values), a.at[last].set(0.0)
        else:
            following, a = following.scatter(0, last.long(), last_values), a.index_fill(0, last.long(), 0.0)
        return a, r + problem.gamma * following - v

    def finish(self, xp: Any, problem: Problem, y: Any, inputs: Inputs) -> Sequence[Any]:
        return [y, y + inputs["values"]]


OP = GaePacked()

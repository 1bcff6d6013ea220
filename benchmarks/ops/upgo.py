"""UPGO, gamma = 1 as in its paper."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np

from ..problem import Inputs, Op, Problem
from ..transitions import FINAL_VALUES, STATE_VALUES, State, Walk, ends, later, next_values


class Upgo(Op):
    name = "upgo"
    outputs = ("returns",)
    inputs = STATE_VALUES
    inputs_if_truncated = FINAL_VALUES
    constants = ("gamma",)
    fed = ("rewards",)

    def problem(self, *args: Any, **kwargs: Any) -> Problem:
        return dataclasses.replace(super().problem(*args, **kwargs), gamma=1.0)

    def make_inputs(self, problem: Problem) -> dict[str, np.ndarray]:
        # In sixteenths r + V' >= V is decided without rounding, so that every precision takes the same branch.
        inputs = super().make_inputs(problem)
        return {
            name: x if x.dtype == np.uint8 else (np.round(x.astype(np.float32) * 16) / 16).astype(x.dtype)
            for name, x in inputs.items()
        }

    def reference(self, problem: Problem, inputs: Mapping[str, np.ndarray]) -> list[np.ndarray]:
        walk = Walk(problem, inputs)

        def step(t: int, following: np.ndarray, better: np.ndarray) -> State:
            r, v_next = walk["rewards"][t], walk.next_value(t)
            on = better.astype(bool) & ~walk.ends[t]
            return r + problem.gamma * np.where(on, following, v_next), r + problem.gamma * v_next >= walk["values"][t]

        return walk.run(step, states=2)

    def recurrence(self, xp: Any, problem: Problem, inputs: Inputs) -> tuple[Any, Any]:
        r, v_next = inputs["rewards"], next_values(xp, problem, inputs)
        better = r + problem.gamma * v_next >= inputs["values"]
        on = later(xp, problem, better, better[problem.steps(-1, None)]) & ~ends(xp, problem, inputs)
        return xp.where(on, xp.full_like(r, problem.gamma), 0.0), r + xp.where(on, 0.0, problem.gamma * v_next)


OP = Upgo()

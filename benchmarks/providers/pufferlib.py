"""PufferLib 3's advantage, where it can be imported. Measured on request (`--providers pufferlib`).

Its users hold rewards and dones in the row after the step that caused them, importance ratios rather than their logarithms, and
memory for the result: that is made before the clock starts.
"""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Mapping, Sequence

import numpy as np

from ..problem import Inputs, Problem
from ..provider import Function, Provider

MODULE = "pufferlib.pufferl"


def _hold(problem: Problem, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    edge = inputs["last_values"][:, None]
    empty = np.zeros_like(edge)
    return {
        "values": np.concatenate([inputs["values"], edge], 1),
        "rewards": np.concatenate([empty, inputs["rewards"]], 1),
        "dones": np.concatenate([empty, inputs["terminated"].astype(np.float32)], 1),
        "importance": np.concatenate([np.exp(inputs["log_rhos"]), empty + 1], 1),
        "advantages": np.zeros((problem.shape.N, problem.shape.T + 1), np.float32),
    }


def _make(problem: Problem) -> Function:
    compute = importlib.import_module(MODULE).compute_puff_advantage

    def function(x: Inputs) -> Sequence[object]:
        found = compute(
            x["values"],
            x["rewards"],
            x["dones"],
            x["importance"],
            x["advantages"],
            problem.gamma,
            problem.lambda_,
            1.0,
            1.0,
        )
        return [found[:, :-1]]

    return function


def _why_not() -> str | None:
    return None if importlib.util.find_spec(MODULE.partition(".")[0]) else "pufferlib is not installed"


def _why_not_problem(problem: Problem) -> str | None:
    if problem.shape.layout != "batch_major":
        return "PufferLib's is batch-major"
    if problem.dtype != "float32":
        return "PufferLib wants float32"
    return "PufferLib has no truncation" if problem.truncation else None


PROVIDERS = (
    Provider(
        "pufferlib",
        "torch",
        _make,
        priority=2,
        ops=("puffer_advantage",),
        why_not=_why_not,
        why_not_problem=_why_not_problem,
        hold=_hold,
        default=False,
    ),
)

"""rl-triton, where it can be imported. Measured on request (`--providers rl_triton`); batch-major and float32, as it is.

Its users hold their flags as float32 and the values after steps cut off in one array with those after the last step, so that is
made before the clock starts; what its functions do beside their kernels is timed.
"""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ..problem import Inputs, Problem
from ..provider import Function, Provider

OPS = ("gae", "vtrace", "lambda_returns", "discounted_returns", "eligibility_traces", "episodic_cumsum")


def _hold(problem: Problem, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    held = {name: x for name, x in inputs.items() if name not in ("terminated", "truncated", "done", "final_values")}
    flags = {name: inputs[name] != 0 for name in ("terminated", "truncated", "done") if name in inputs}
    if "truncated" in flags:
        flags["truncated"] &= ~flags["terminated"]  # it wants one of them at most
    held |= {name: flag.astype(np.float32) for name, flag in flags.items()}
    name = problem.op.name
    if name == "eligibility_traces":
        done = flags["terminated"] | flags.get("truncated", False)
        return {"inputs": held["inputs"], "done": done.astype(np.float32)}
    if name == "episodic_cumsum":
        return held
    bootstrap = np.zeros(problem.shape.dims, np.float32)
    bootstrap[:, -1] = held.pop("last_values")
    if name == "lambda_returns":
        values = held.pop("values")
        held["next_values"] = np.concatenate([values[:, 1:], bootstrap[:, -1:]], 1)
    if "truncated" in flags:
        bootstrap = np.where(flags["truncated"], inputs["final_values"], bootstrap).astype(np.float32)
    if name == "vtrace":  # it takes the difference of two log-probabilities
        held["behavior"] = np.zeros(problem.shape.dims, np.float32)
    if name in ("gae", "vtrace") and "truncated" not in flags:
        return {**held, "last_values": bootstrap[:, -1].copy()}
    return {**held, "bootstrap": bootstrap}


def _make(problem: Problem) -> Function:
    rl_triton: Any = importlib.import_module("rl_triton")
    name, gamma, lambda_ = problem.op.name, problem.gamma, problem.lambda_

    def function(x: Inputs) -> Sequence[Any]:
        after = {"bootstrap_values": x["bootstrap"]} if "bootstrap" in x else {"last_value": x.get("last_values")}
        cut = x.get("truncated")
        if name == "gae":
            advantages = rl_triton.compute_gae(x["rewards"], x["values"], x["terminated"], cut, gamma, lambda_, **after)
            # It leaves the returns to its users.
            return [advantages] if len(problem.outputs) == 1 else [advantages, advantages + x["values"]]
        if name == "vtrace":
            both = rl_triton.compute_vtrace(
                x["log_rhos"], x["behavior"], x["values"], x["rewards"], x["terminated"], cut, gamma, **after
            )
            return list(both)[: len(problem.outputs)]
        if name == "lambda_returns":
            return [
                rl_triton.compute_lambda_returns(
                    x["rewards"], x["next_values"], x["terminated"], cut, gamma, lambda_, **after
                )
            ]
        if name == "discounted_returns":
            return [rl_triton.compute_discounted_returns(x["rewards"], x["terminated"], cut, gamma, **after)]
        if name == "eligibility_traces":
            return [rl_triton.compute_eligibility_traces(x["inputs"], x["done"], gamma, lambda_)]
        return [rl_triton.compute_episodic_prefix_sum(x["inputs"], x["done"])]

    return function


def _why_not() -> str | None:
    return None if importlib.util.find_spec("rl_triton") else "rl_triton is not installed"


def _why_not_problem(problem: Problem) -> str | None:
    if problem.shape.layout != "batch_major":
        return "rl-triton is batch-major"
    if problem.dtype != "float32":
        return "rl-triton wants float32"
    if problem.op.name == "vtrace" and problem.lambda_ != 1:
        return "rl-triton's V-trace has no lambda"
    return None


PROVIDERS = (
    Provider(
        "rl_triton",
        "torch",
        _make,
        priority=2,
        ops=OPS,
        why_not=_why_not,
        why_not_problem=_why_not_problem,
        hold=_hold,
        default=False,
    ),
)

"""Kernel problems made from NumPy arrays, for the tests that run or compile the kernels without a GPU."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from rl_triton_jax.kernels.plan import Choice, Problem

from rl_triton_jax import problem as canonical_form
from rl_triton_jax.estimator import Estimator, Role
from rl_triton_jax.estimators.discounted_returns import DISCOUNTED_RETURNS
from rl_triton_jax.estimators.eligibility_traces import ELIGIBILITY_TRACES
from rl_triton_jax.estimators.episodic_cumsum import EPISODIC_CUMSUM
from rl_triton_jax.estimators.gae import GAE_ESTIMATOR
from rl_triton_jax.estimators.lambda_returns import LAMBDA_RETURNS
from rl_triton_jax.estimators.n_step_returns import n_step_estimator
from rl_triton_jax.estimators.off_policy import OFF_POLICY
from rl_triton_jax.estimators.upgo import UPGO
from rl_triton_jax.estimators.vtrace import VTRACE
from rl_triton_jax.formula import LINEAR_RECURRENCE

ESTIMATORS: dict[str, Estimator] = {
    e.name: e
    for e in (
        GAE_ESTIMATOR,
        LINEAR_RECURRENCE,
        DISCOUNTED_RETURNS,
        n_step_estimator(3, 256),
        ELIGIBILITY_TRACES,
        EPISODIC_CUMSUM,
        LAMBDA_RETURNS,
        OFF_POLICY,
        UPGO,
        VTRACE,
    )
}
# Public functions that share another's kernel, and the defaults of those that are called by keyword arguments.
KERNELS = {
    "general_off_policy_returns": "off_policy",
    "puffer_advantage": "vtrace",
    "q_lambda": "lambda_returns",
    "retrace": "off_policy",
    "tree_backup": "off_policy",
}
_CLIPS = {"clip_rho_threshold": 1.0, "clip_c_threshold": 1.0}
DEFAULTS: dict[str, dict[str, Any]] = {
    "gae": {"gamma": 0.99, "lambda_": 0.95},
    "discounted_returns": {"gamma": 0.99},
    "eligibility_traces": {"gamma": 0.99, "lambda_": 0.95},
    "general_off_policy_returns": {"gamma": 0.99},
    "lambda_returns": {"gamma": 0.99, "lambda_": 0.95},
    "puffer_advantage": {"gamma": 0.99, "lambda_": 0.95, **_CLIPS},
    "q_lambda": {"gamma": 0.99, "lambda_": 0.95},
    "retrace": {"gamma": 0.99, "lambda_": 1.0, "clip_c_threshold": 1.0},
    "tree_backup": {"gamma": 0.99, "lambda_": 1.0},
    "n_step_returns": {"gamma": 0.99},
    "upgo": {"gamma": 1.0},
    "vtrace": {"gamma": 0.99, "lambda_": 1.0, **_CLIPS, "clip_pg_rho_threshold": 1.0},
}


def columns(warps: int, C: int, L: int, BN: int, stages: int = 1, parts: int = 1) -> Choice:
    return Choice("columns", (("C", C), ("L", L), ("BN", BN), ("STAGES", stages)), warps, parts)


def rows(warps: int, R: int, BT: int, parts: int = 1) -> Choice:
    return Choice("rows", (("R", R), ("BT", BT), ("STAGES", 1)), warps, parts)


def kernel_problem(
    name: str, arguments: Mapping[str, Any], *, by_value: bool = False, dtype: str = "float32"
) -> tuple[Problem, list[Any], tuple[int, ...]]:
    """(problem, inputs, result shape) of a call's keyword arguments; numbers go by value or as arrays of one number."""
    estimator = ESTIMATORS[KERNELS.get(name, name)]
    if name == "n_step_returns":
        estimator = n_step_estimator(arguments["n"], 256)
    arguments = {**DEFAULTS.get(name, {}), **arguments}
    if name == "episodic_cumsum" and arguments.get("resets") == "before":
        arguments["starts"] = arguments.pop("done")
    axis = arguments.get("axis", 0)
    backward = arguments.get("reverse", estimator.backward)
    operands = {o.name: arguments.get(o.name) for o in estimator.operands}
    call = canonical_form.validate(estimator, operands, axis)
    accumulate = canonical_form.accumulation_dtype(dtype)
    inputs: list[Any] = []
    views: list[Any] = []
    for k, operand in enumerate(estimator.operands):
        x = operands[operand.name]
        if x is None:
            views.append(None)
            continue
        if canonical_form.is_number(x) and by_value:
            inputs.append(float(x))
            views.append(canonical_form.View(accumulate, (0,) * len(call.shape), by_value=True))
            continue
        if canonical_form.is_number(x):
            x = np.full((1,) * len(call.shape), x, accumulate)
        elif operand.role is Role.EDGE:
            x = np.expand_dims(x, call.axis) if x.ndim else x.reshape((1,) * len(call.shape))
        inputs.append(x)
        strides = tuple(s // x.itemsize for s in x.strides)
        views.append(canonical_form.view_of(estimator, k, str(x.dtype), x.shape, strides, call.steps, call.axis))
    outputs = [
        (canonical_form.View(dtype, canonical_form.row_major(call.shape)), k) for k in range(len(estimator.outputs))
    ]
    standardize = 0 if arguments.get("normalize") else None
    problem = canonical_form.canonical(
        estimator, call.shape, call.axis, views, outputs, backward, accumulate, standardize
    )
    return problem, inputs, call.shape

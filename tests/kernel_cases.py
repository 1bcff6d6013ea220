"""Kernel problems made from NumPy arrays, for the tests that run or compile the kernels without a GPU."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from rl_triton_jax.kernels.plan import Choice, Problem

from rl_triton_jax import problem as canonical_form
from rl_triton_jax.estimator import Estimator, Role
from rl_triton_jax.estimators.gae import GAE_ESTIMATOR
from rl_triton_jax.estimators.linear_recurrence import LINEAR_RECURRENCE

ESTIMATORS: dict[str, Estimator] = {e.name: e for e in (GAE_ESTIMATOR, LINEAR_RECURRENCE)}
DEFAULTS: dict[str, dict[str, Any]] = {"gae": {"gamma": 0.99, "lambda_": 0.95}, "linear_recurrence": {}}


def columns(warps: int, C: int, L: int, BN: int, stages: int = 1, parts: int = 1) -> Choice:
    return Choice("columns", (("C", C), ("L", L), ("BN", BN), ("STAGES", stages)), warps, parts)


def rows(warps: int, R: int, BT: int, parts: int = 1) -> Choice:
    return Choice("rows", (("R", R), ("BT", BT), ("STAGES", 1)), warps, parts)


def kernel_problem(
    name: str, arguments: Mapping[str, Any], *, by_value: bool = False, dtype: str = "float32"
) -> tuple[Problem, list[Any], tuple[int, ...]]:
    """(problem, inputs, result shape) of a call's keyword arguments; numbers go by value or as arrays of one number."""
    estimator = ESTIMATORS[name]
    arguments = {**DEFAULTS[name], **arguments}
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
    problem = canonical_form.canonical(estimator, call.shape, call.axis, views, outputs, backward, accumulate)
    return problem, inputs, call.shape

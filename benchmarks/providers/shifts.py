"""XLA alone where there is no first-order recurrence to scan: the op's own formula of shifted arrays, in one jit."""

from __future__ import annotations

from typing import Any

from ..problem import Problem
from ..provider import Function, Provider


def _make(problem: Problem) -> Function:
    import jax.numpy as jnp

    def no_scan(a: Any, b: Any) -> Any:
        raise NotImplementedError

    return lambda inputs: problem.op.baseline(jnp, problem, inputs, no_scan)


PROVIDERS = (Provider("shifts", "jax", _make, ops=("n_step_returns",), priority=1, slow_compile=True),)

"""`lax.scan`, what most JAX code does, unrolled by 1 and by 16."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

from ..problem import Inputs, Problem
from ..provider import Function, Provider


def _make(unroll: int, problem: Problem) -> Function:
    import jax.numpy as jnp
    from jax import lax

    axis = problem.shape.axis

    def body(carry: Any, step: tuple[Any, Any]) -> tuple[Any, Any]:
        y = step[0] * carry + step[1]
        return y, y

    def function(inputs: Inputs) -> Sequence[Any]:
        a, b = (jnp.moveaxis(x, axis, 0) for x in problem.op.recurrence(jnp, problem, inputs))
        _, y = lax.scan(
            body, jnp.zeros_like(b[0]), (a, b), reverse=problem.op.backward, unroll=min(unroll, problem.shape.T)
        )
        return problem.op.finish(jnp, problem, jnp.moveaxis(y, 0, axis), inputs)

    return function


PROVIDERS = tuple(
    Provider(f"lax_scan_{unroll}", "jax", functools.partial(_make, unroll), priority=3, slow_compile=True, light=True)
    for unroll in (16, 1)
)

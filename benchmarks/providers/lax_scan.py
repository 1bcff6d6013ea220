"""`lax.scan`, what most JAX code does, unrolled by 1 and by 16."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

from ..problem import Inputs, Problem
from ..provider import Function, Provider, why_no_walk


def _make(unroll: int, problem: Problem) -> Function:
    import jax.numpy as jnp
    from jax import lax

    axis = problem.shape.axis

    def body(carry: Any, step: tuple[Any, Any]) -> tuple[Any, Any]:
        y = step[0] * carry + step[1]
        return y, y

    def scan(a: Any, b: Any) -> Any:
        steps = jnp.moveaxis(a, axis, 0), jnp.moveaxis(b, axis, 0)
        start = jnp.zeros_like(steps[1][0])
        _, y = lax.scan(body, start, steps, reverse=problem.op.backward, unroll=min(unroll, problem.shape.T))
        return jnp.moveaxis(y, 0, axis)

    def function(inputs: Inputs) -> Sequence[Any]:
        return problem.op.baseline(jnp, problem, inputs, scan)

    return function


PROVIDERS = tuple(
    Provider(
        f"lax_scan_{unroll}",
        "jax",
        functools.partial(_make, unroll),
        priority=3,
        slow_compile=True,
        light=True,
        why_not_problem=why_no_walk,
    )
    for unroll in (16, 1)
)

"""`lax.associative_scan` in one jit: the strong baseline on a current XLA.

Operands are the pair (a, b) with a = 0 at flags, and everything before and after the scan is elementwise, so that XLA
fuses it into the scan's own launches. The combine multiplies: a NaN behind a flag still spreads (0 * NaN), where this
package selects. Selecting would cost the scan a comparison per combine or a third operand: this favours the baseline.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..problem import Inputs, Problem
from ..provider import Function, Provider, why_no_recurrence


def _make(problem: Problem) -> Function:
    import jax.numpy as jnp
    from jax import lax

    def combine(near: tuple[Any, Any], far: tuple[Any, Any]) -> tuple[Any, Any]:
        return near[0] * far[0], far[0] * near[1] + far[1]

    def scan(a: Any, b: Any) -> Any:
        return lax.associative_scan(combine, (a, b), reverse=problem.op.backward, axis=problem.shape.axis)[1]

    def function(inputs: Inputs) -> Sequence[Any]:
        return problem.op.baseline(jnp, problem, inputs, scan)

    return function


PROVIDERS = (
    Provider("associative_scan", "jax", _make, priority=1, slow_compile=True, why_not_problem=why_no_recurrence),
)

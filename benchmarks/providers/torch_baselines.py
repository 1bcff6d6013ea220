"""Torch without kernels of its own: the loop over steps of most code, a compiled doubling scan of log2(T) passes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..problem import Inputs, Problem
from ..provider import Function, Provider, why_no_recurrence, why_no_walk_in_place


def _make_loop(problem: Problem) -> Function:
    import torch

    axis = problem.shape.axis

    def scan(a: Any, b: Any) -> Any:
        y, T = torch.empty_like(b), b.shape[axis]
        carry = torch.zeros_like(b.select(axis, 0))
        for t in reversed(range(T)) if problem.op.backward else range(T):
            carry = torch.addcmul(b.select(axis, t), a.select(axis, t), carry, out=y.select(axis, t))
        return y

    return lambda inputs: problem.op.baseline(torch, problem, inputs, scan)


def _make_doubling(problem: Problem) -> Function:
    import torch

    axis = problem.shape.axis

    def combine(a: Any, b: Any, reach: int) -> tuple[Any, Any]:
        """Each step takes in the step `reach` away; steps nearer the end than that are complete."""
        T = b.shape[axis]
        if problem.op.backward:
            own, other, done = problem.steps(0, T - reach), problem.steps(reach, T), problem.steps(T - reach, T)
        else:
            own, other, done = problem.steps(reach, T), problem.steps(0, T - reach), problem.steps(0, reach)

        def join(moved: Any, kept: Any) -> Any:
            return torch.cat([moved, kept] if problem.op.backward else [kept, moved], dim=axis)

        return join(a[own] * a[other], a[done]), join(a[own] * b[other] + b[own], b[done])

    def scan(a: Any, b: Any) -> Any:
        reach = 1
        while reach < b.shape[axis]:
            a, b = combine(a, b, reach)
            reach *= 2
        return b

    def function(inputs: Inputs) -> Sequence[Any]:
        return problem.op.baseline(torch, problem, inputs, scan)

    # Compiling on a CPU needs a C++ compiler; there the same function runs eagerly.
    return torch.compile(function, dynamic=False) if torch.cuda.is_available() else function


PROVIDERS = (
    Provider(
        "torch_loop",
        "torch",
        _make_loop,
        priority=5,
        light=True,
        default=False,
        why_not_problem=why_no_walk_in_place,
    ),
    Provider(
        "torch_doubling",
        "torch",
        _make_doubling,
        priority=5,
        light=True,
        default=False,
        why_not_problem=why_no_recurrence,
    ),
)

"""This package from torch."""

from __future__ import annotations

from ..problem import Problem
from ..provider import Function, Provider


def _make(problem: Problem) -> Function:
    import torch

    import rl_triton_jax.torch

    implementation = "triton" if torch.cuda.is_available() else None
    return lambda inputs: problem.op.call(rl_triton_jax.torch, problem, inputs, implementation=implementation)


def _why_not_problem(problem: Problem) -> str | None:
    import rl_triton_jax.torch

    return problem.op.why_not(rl_triton_jax.torch)


PROVIDERS = (Provider("ours_torch", "torch", _make, route="torch", priority=0, why_not_problem=_why_not_problem),)

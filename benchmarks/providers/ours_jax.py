"""This package from JAX: its kernels by each launch route, and its XLA formula."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any, Literal

from ..problem import Inputs, Problem
from ..provider import Function, Provider

Route = Literal["xla_triton", "jax_triton"]


def _launching_by(route: Route) -> AbstractContextManager[None]:
    """The one place that knows how the library names its routes."""
    import rl_triton_jax

    return rl_triton_jax.launch_route(route.replace("_", "-"))


def _make_triton(route: Route, problem: Problem) -> Function:
    import rl_triton_jax

    def function(inputs: Inputs) -> Sequence[Any]:
        with _launching_by(route):  # read while tracing, so it must be entered here
            return problem.op.call(rl_triton_jax, problem, inputs, implementation="triton")

    return function


def _make_xla(problem: Problem) -> Function:
    import rl_triton_jax

    return lambda inputs: problem.op.call(rl_triton_jax, problem, inputs, implementation="xla")


def _on_gpu() -> bool:
    import jax

    return jax.default_backend() in ("gpu", "cuda", "rocm")


def _why_not(route: Route) -> str | None:
    if not _on_gpu():
        return "needs a GPU"
    import rl_triton_jax

    with _launching_by(route):
        return None if rl_triton_jax.default_implementation() == "triton" else "its kernels cannot be launched here"


def _why_not_problem(problem: Problem) -> str | None:
    import rl_triton_jax

    return problem.op.why_not(rl_triton_jax)


def _triton(route: Route, priority: int) -> Provider:
    return Provider(
        f"ours_{route}",
        "jax",
        functools.partial(_make_triton, route),
        route=route,
        priority=priority,
        why_not=functools.partial(_why_not, route),
        why_not_problem=_why_not_problem,
    )


PROVIDERS = (
    _triton("xla_triton", 0),
    _triton("jax_triton", 0),
    Provider(
        "ours_xla",
        "jax",
        _make_xla,
        priority=4,
        slow_compile=True,
        default=False,
        why_not_problem=_why_not_problem,
    ),
)

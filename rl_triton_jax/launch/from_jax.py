"""From a lowering inside JAX to launches, by one of two routes:

* "jax-triton": `jax_triton.triton_call`, the reference, always selectable;
* "xla-triton": XLA's own Triton custom call, cheaper per call, taken where the (jaxlib, Triton) pair is known good.
"""

from __future__ import annotations

import contextlib
import contextvars
import functools
import warnings
from collections.abc import Iterator, Sequence
from typing import Any

import jax
import numpy as np
from jax import export

from .. import versions
from ..estimator import Estimator
from ..kernels.plan import Device, plan
from ..problem import View, canonical, flags, row_major, view_of
from . import jax_triton, xla_triton

ROUTES = {"jax-triton": jax_triton.call, "xla-triton": xla_triton.call}

# `jax.export.export(..., disabled_checks=EXPORT_CHECKS)` for programs that may run on a GPU: the custom calls of both routes.
EXPORT_CHECKS = tuple(
    export.DisabledSafetyCheck.custom_call(name)
    for name in ("triton_kernel_call", "triton_kernel_call_ffi", xla_triton.TARGET)
)

_route: contextvars.ContextVar[str | None] = contextvars.ContextVar("launch_route", default=None)


@contextlib.contextmanager
def launch_route(route: str | None) -> Iterator[None]:
    """Within this context, JAX computations *traced* anew launch Triton kernels by the named route.

    Args:
      route: "jax-triton", "xla-triton", or None for the default: xla-triton where the installed (jaxlib, Triton) pair is known
        good, else jax-triton. A computation that was compiled before keeps its route.

    Raises:
      ValueError: the route is unknown.
    """
    if route is not None and route not in ROUTES:
        raise ValueError(f"launch_route: unknown route {route!r}; expected one of {', '.join(ROUTES)} or None")
    token = _route.set(route)
    try:
        yield
    finally:
        _route.reset(token)


def current_route() -> str | None:
    return _route.get()


def _why_not(route: str | None) -> str | None:
    """Why the kernels cannot be launched, or None where they can."""
    why = versions.why_no_triton()
    if why is None and (route or _default_route()) == "jax-triton":
        why = versions.why_no_jax_triton()
    return why


def _default_route() -> str:
    return "xla-triton" if versions.xla_triton_is_known_good() else "jax-triton"


@functools.cache
def _warn_once(why: str) -> None:
    warnings.warn(
        f"rl_triton_jax: a GPU is present but its Triton kernels cannot run, so XLA is used instead: {why}. "
        f"pip install 'rl_triton_jax[cuda13]' brings what is needed.",
        RuntimeWarning,
        stacklevel=2,
    )


def can_run(name: str, params: dict[str, Any]) -> bool:
    """Whether to launch kernels in a GPU lowering: raises where asked for by name and impossible, warns once otherwise."""
    why = _why_not(params["route"])
    if why is None:
        return True
    if params["implementation"] == "triton":
        raise ValueError(f"{name}: implementation='triton' cannot run: {why}")
    _warn_once(why)
    return False


def default_implementation() -> str:
    """What `implementation=None` means on JAX's default backend: "triton" or "xla"."""
    return "triton" if jax.default_backend() in ("gpu", "cuda", "rocm") and _why_not(current_route()) is None else "xla"


@functools.cache
def _device(backend: str) -> Device:
    """The GPU to plan for: the first of this process, or a typical one where there is none (ahead-of-time lowering)."""
    try:
        gpus = jax.devices({"cuda": "cuda", "hip": "rocm"}[backend])
    except RuntimeError:
        return Device() if backend == "cuda" else Device("hip", "gfx942", 304, 64)
    capability = str(getattr(gpus[0], "compute_capability", "9.0"))
    count = int(getattr(gpus[0], "core_count", 132))
    if backend == "hip":
        return Device("hip", capability.split(":")[0], count, 64)
    return Device("cuda", int(capability.replace(".", "")), count)


def run(
    estimator: Estimator,
    operands: Sequence[Any],
    shape: tuple[int, ...],
    *,
    backend: str,
    axis: int,
    backward: bool,
    wanted: tuple[bool, ...],
    present: tuple[bool, ...],
    dtype: str,
    accumulate: str,
    standardize: int | None,
    route: str | None,
    implementation: str | None,
    name: str,
) -> list[Any]:
    del implementation, name
    rest = iter(operands)
    steps = shape[axis]
    views: list[View | None] = []
    for k, given in enumerate(present):
        if not given:
            views.append(None)
            continue
        x = next(rest)
        views.append(view_of(estimator, k, str(np.dtype(x.dtype)), x.shape, row_major(x.shape), steps, axis))
    outputs = [(View(dtype, row_major(shape)), k) for k, want in enumerate(wanted) if want]
    problem = canonical(estimator, shape, axis, views, outputs, backward, accumulate, standardize)
    device = _device(backend)
    todo = plan(problem, device, flags(estimator))
    call = ROUTES[route or _default_route()]
    results: dict[int, Any] = {}
    for launch in todo.launches:
        inputs = [results[b] if b < 0 else operands[b] for b in launch.inputs]
        out = [
            jax.ShapeDtypeStruct((todo.scratch[-1 - b],) if b < 0 else shape, accumulate if b < 0 else dtype)
            for b in launch.outputs
        ]
        results.update(zip(launch.outputs, call(launch, problem, device, inputs, out), strict=True))
    return [results[k] for k in range(len(outputs))]

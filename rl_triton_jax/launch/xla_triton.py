"""Route xla-triton: XLA's own Triton custom call, which carries the kernel's Triton IR in the HLO and compiles it itself.

The call takes pointers only, so every number is a constant of the kernel. XLA makes it an ordinary kernel node: it is captured
into command buffers and cached with the program.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

from jax.core import ShapedArray
from jax.extend.core import Primitive
from jax.interpreters import mlir

from .. import versions
from ..kernels.plan import Device, Launch, Problem
from .kernel import make_kernel, target_of

TARGET = "__gpu$xla.gpu.triton"

launch_p = Primitive("rl_triton_jax_launch")
launch_p.multiple_results = True


@launch_p.def_abstract_eval
def _(*avals: Any, out: tuple[Any, ...], **_: Any) -> list[Any]:
    del avals
    return [ShapedArray(shape, dtype) for shape, dtype in out]


@functools.lru_cache(maxsize=1024)
def _ir(
    launch: Launch, input_dtypes: tuple[str, ...], output_dtypes: tuple[str, ...], accumulate: str, device: Device
) -> tuple[str, str]:
    kernel = make_kernel(launch, input_dtypes, output_dtypes, accumulate, True)
    return versions.triton_ir(kernel.source(), target_of(device), launch.num_warps, launch.num_stages)


def _lower(
    ctx: Any,
    *operands: Any,
    launch: Launch,
    input_dtypes: tuple[str, ...],
    output_dtypes: tuple[str, ...],
    accumulate: str,
    device: Device,
    **_: Any,
) -> Any:
    name, text = _ir(launch, input_dtypes, output_dtypes, accumulate, device)
    x, y, z = launch.grid
    return versions.custom_call(
        TARGET,
        operands,
        ctx.avals_in,
        ctx.avals_out,
        {
            "name": name,
            "ir": text,
            "num_stages": launch.num_stages,
            "num_warps": launch.num_warps,
            "grid_x": x,
            "grid_y": y,
            "grid_z": z,
            "debug": False,
        },
    )


mlir.register_lowering(launch_p, _lower, platform="cuda")
mlir.register_lowering(launch_p, _lower, platform="rocm")


def call(launch: Launch, problem: Problem, device: Device, inputs: Sequence[Any], out: Sequence[Any]) -> Sequence[Any]:
    return launch_p.bind(
        *inputs,
        launch=launch,
        input_dtypes=problem.input_dtypes,
        output_dtypes=problem.output_dtypes,
        accumulate=problem.accumulate,
        device=device,
        out=tuple((o.shape, o.dtype) for o in out),
    )

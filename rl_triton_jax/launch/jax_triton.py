"""Route jax-triton: `jax_triton.triton_call`, with every number a constant (Python scalars lose their alignment there)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .. import versions
from ..kernels.plan import Device, Launch, Problem
from .kernel import make_kernel


def call(launch: Launch, problem: Problem, device: Device, inputs: Sequence[Any], out: Sequence[Any]) -> Sequence[Any]:
    kernel = make_kernel(launch, problem.input_dtypes, problem.output_dtypes, problem.accumulate, True)
    return versions.jax_triton_call(
        inputs,
        kernel=kernel.entry,
        out_types=list(out),
        grid=launch.grid,
        num_warps=launch.num_warps,
        num_stages=launch.num_stages,
        arch=device.arch,
        constants=kernel.constants,
    )

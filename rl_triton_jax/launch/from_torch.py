"""Launches plans on torch's CUDA (or ROCm) tensors: the current stream, no synchronisation, no JAX."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import torch

from .. import versions
from ..kernels.plan import Device, Plan, Problem
from .kernel import make_kernel, target_of


@functools.cache
def device_of(index: int) -> Device:
    """What the plan needs to know of a torch GPU."""
    properties = torch.cuda.get_device_properties(index)
    if torch.version.hip:
        return Device(
            "hip", properties.gcnArchName.split(":")[0], properties.multi_processor_count, properties.warp_size
        )
    return Device("cuda", properties.major * 10 + properties.minor, properties.multi_processor_count)


class Prepared:
    """The compiled launches of one plan, bound to everything but the pointers."""

    def __init__(self, plan: Plan, problem: Problem, device: Device, unaligned: frozenset[int]) -> None:
        self._scratch = plan.scratch
        self._dtype = getattr(torch, problem.accumulate)
        self._steps = []
        target = target_of(device)
        for launch in plan.launches:
            kernel = make_kernel(
                launch, problem.input_dtypes, problem.output_dtypes, problem.accumulate, False, unaligned
            )
            compiled = versions.compile_kernel(kernel.source(), target, launch.num_warps, launch.num_stages)
            # Constants keep their places in the argument list; the launcher skips them.
            rest = (*launch.ints, *([None] * len(kernel.constants)))
            self._steps.append((compiled, launch.grid, launch.inputs, launch.outputs, rest))

    def __call__(self, inputs: Sequence[Any], outputs: Sequence[torch.Tensor]) -> None:
        device = outputs[0].device
        scratch = [torch.empty(elements, dtype=self._dtype, device=device) for elements in self._scratch]
        for compiled, grid, ins, outs, rest in self._steps:
            arguments = [scratch[-1 - b] if b < 0 else inputs[b] for b in ins]
            arguments += [scratch[-1 - b] if b < 0 else outputs[b] for b in outs]
            compiled[grid](*arguments, *rest)

"""Launches plans on torch's CUDA (or ROCm) tensors: the current stream, no synchronisation, no JAX."""

from __future__ import annotations

import functools
import operator
from collections.abc import Sequence
from typing import Any

import torch

from .. import problem, versions
from ..estimator import Estimator
from ..kernels.plan import Device, Plan, Problem, plan
from .kernel import make_kernel, target_of

Tensor = torch.Tensor
stream_of = versions.torch_stream()


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
    """The compiled launches of one plan on one GPU, bound to everything but addresses and numbers."""

    def __init__(
        self, plan: Plan, problem: Problem, device: Device, where: torch.device, unaligned: frozenset[int]
    ) -> None:
        self._index = where.index
        self._others = torch.cuda.device_count() > 1
        self._steps = []
        target = target_of(device)
        inputs, outputs = len(problem.input_dtypes), len(problem.output_dtypes)
        with torch.cuda.device(where.index):  # where the kernels are loaded
            kind = getattr(torch, problem.accumulate)
            self._scratch = [_without_memory(torch.empty(n, dtype=kind, device=where)) for n in plan.scratch]
            for launch in plan.launches:
                kernel = make_kernel(
                    launch, problem.input_dtypes, problem.output_dtypes, problem.accumulate, False, unaligned
                )
                compiled = versions.compile_kernel(kernel.source(), target, launch.num_warps, launch.num_stages)
                # Where each buffer's address is among those of inputs, outputs and scratch.
                first = inputs + outputs - 1
                places = [first - b if b < 0 else b for b in launch.inputs]
                places += [first - b if b < 0 else inputs + b for b in launch.outputs]
                # Constants keep their places in the argument list; the launcher skips them.
                rest = (*launch.ints, *([None] * len(kernel.constants)))
                self._steps.append((versions.launcher(compiled, launch.grid), operator.itemgetter(*places), rest))

    def __call__(self, inputs: Sequence[float], outputs: Sequence[int]) -> None:
        """Inputs are addresses, or numbers where the problem says so; whoever calls keeps the memory alive meanwhile."""
        if self._others and torch.cuda.current_device() != self._index:
            with torch.cuda.device(self._index):
                self._launch(inputs, outputs)
        else:
            self._launch(inputs, outputs)

    def _launch(self, inputs: Sequence[float], outputs: Sequence[int]) -> None:
        buffers = (*inputs, *outputs)
        if self._scratch:
            # Given back to the allocator on return: whatever gets it next is behind these launches in the same stream.
            scratch = [torch.empty_like(x) for x in self._scratch]
            buffers += tuple(x.data_ptr() for x in scratch)
        stream = stream_of(self._index)
        for launch, pick, rest in self._steps:
            launch(stream, *pick(buffers), *rest)


def _without_memory(x: Tensor) -> Tensor:
    """Shape, strides, dtype and device of `x` for `torch.empty_like`, the quickest way to an allocation."""
    x.untyped_storage().resize_(0)
    return x


class Ready:
    """A call that needs nothing but memory for its results and the launch."""

    def __init__(self, prepared: Prepared, outputs: Sequence[Tensor], number: type) -> None:
        self._prepared = prepared
        self.number = number  # what numbers have to be
        self._outputs = [_without_memory(torch.empty_like(x)) for x in outputs]

    def __call__(self, inputs: Sequence[float]) -> list[Tensor]:
        outputs = [torch.empty_like(x) for x in self._outputs]
        self._prepared(inputs, [x.data_ptr() for x in outputs])
        return outputs


# Launches that were prepared, by everything that the kernels depend on but addresses and numbers.
_ready: dict[Any, Ready] = {}
MOST_READY = 4096


def remember(known: dict[Any, Any], key: Any, value: Any) -> None:
    if len(known) >= MOST_READY:  # shapes that never come back, say lengths of packed sequences
        known.clear()
    known[key] = value


def prepared(
    estimator: Estimator,
    operands: Sequence[Any],
    axis: int,
    backward: bool,
    wanted: tuple[bool, ...],
    dtype: str,
    accumulate: str,
    standardize: int | None = None,
) -> Ready:
    """How to launch the kernels for operands like these: tensors of the result's rank on one GPU, numbers (passed by value), or
    None."""
    key = (
        estimator.name,
        estimator.window,
        axis,
        backward,
        wanted,
        dtype,
        standardize,
        *(
            (x.shape, x.stride(), x.dtype, x.device, x.data_ptr() & 15) if isinstance(x, Tensor) else x is None
            for x in operands
        ),
    )
    ready = _ready.get(key)
    if ready is None:
        ready = _prepare(estimator, operands, axis, backward, wanted, dtype, accumulate, standardize)
        remember(_ready, key, ready)
    return ready


def _prepare(
    estimator: Estimator,
    operands: Sequence[Any],
    axis: int,
    backward: bool,
    wanted: tuple[bool, ...],
    dtype: str,
    accumulate: str,
    standardize: int | None,
) -> Ready:
    model = operands[0]
    shape = tuple(model.shape)
    outputs = [torch.empty_like(model, dtype=getattr(torch, dtype)) for want in wanted if want]
    views: list[problem.View | None] = []
    for k, (operand, x) in enumerate(zip(estimator.operands, operands, strict=True)):
        if x is None:
            views.append(None)
        elif isinstance(x, Tensor):
            if x.device != model.device:
                raise ValueError(f"{estimator.name}: `{operand.name}` is on {x.device}, expected {model.device}")
            views.append(problem.view_of(estimator, k, problem.dtype_name(x), x.shape, x.stride(), shape[axis], axis))
        else:
            views.append(problem.View(accumulate, (0,) * len(shape), by_value=True))
    results = [(problem.View(dtype, outputs[0].stride()), k) for k, want in enumerate(wanted) if want]
    case = problem.canonical(estimator, shape, axis, views, results, backward, accumulate, standardize)
    given = [x for x in operands if x is not None]
    unaligned = frozenset(k for k, x in enumerate(given) if isinstance(x, Tensor) and x.data_ptr() % 16)
    device = device_of(model.device.index)
    todo = plan(case, device, problem.flags(estimator))
    number = int if accumulate in problem.INTEGERS else float
    return Ready(Prepared(todo, case, device, model.device, unaligned), outputs, number)


def run(
    estimator: Estimator,
    operands: Sequence[Any],
    axis: int,
    backward: bool,
    wanted: tuple[bool, ...],
    dtype: str,
    accumulate: str,
    standardize: int | None = None,
) -> tuple[list[Tensor], Ready]:
    """The wanted outputs, and how to have them again; see `prepared`."""
    operands = [x.resolve_neg() if isinstance(x, Tensor) else x for x in operands]  # the kernels read memory as it is
    ready = prepared(estimator, operands, axis, backward, wanted, dtype, accumulate, standardize)
    inputs = [x.data_ptr() if isinstance(x, Tensor) else ready.number(x) for x in operands if x is not None]
    return ready(inputs), ready

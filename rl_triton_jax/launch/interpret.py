"""Runs a plan on NumPy arrays through Triton's interpreter. TRITON_INTERPRET=1 must be set before Triton is imported."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..kernels.plan import Plan, Problem
from .kernel import make_kernel


class _Tensor:
    """The little that the interpreter asks of a tensor."""

    def __init__(self, array: np.ndarray) -> None:
        self.array = array

    @property
    def dtype(self) -> Any:
        import triton.language as tl

        name = str(self.array.dtype)
        return getattr(tl, {"bool": "int1"}.get(name, name))

    @property
    def shape(self) -> tuple[int, ...]:
        return self.array.shape

    def data_ptr(self) -> int:
        return self.array.ctypes.data

    def element_size(self) -> int:
        return self.array.itemsize

    def numel(self) -> int:
        return self.array.size

    def stride(self) -> tuple[int, ...]:
        return tuple(s // self.array.itemsize for s in self.array.strides)

    # The interpreter copies arguments to the host and back; these arrays are there already, so every copy is the array itself.
    def new_empty(self, size: int, device: str) -> _Tensor:
        return _Tensor(self.array)

    def set_(self, *_: Any) -> None:
        pass

    def untyped_storage(self) -> _Tensor:
        return self

    def storage_offset(self) -> int:
        return 0

    def size(self) -> tuple[int, ...]:
        return self.array.shape

    def cpu(self) -> _Tensor:
        return self

    def copy_(self, other: Any) -> None:
        pass


def run(plan: Plan, problem: Problem, inputs: list[Any], outputs: list[np.ndarray]) -> None:
    """Writes `outputs` in place. An input is an array or, where the problem says so, a number passed by value."""
    accumulate = problem.accumulate
    scratch = [np.full(elements, np.nan, accumulate) for elements in plan.scratch]
    for launch in plan.launches:
        kernel = make_kernel(launch, problem.input_dtypes, problem.output_dtypes, accumulate, False)
        buffers = [scratch[-1 - b] if b < 0 else inputs[b] for b in launch.inputs]
        buffers += [scratch[-1 - b] if b < 0 else outputs[b] for b in launch.outputs]
        arguments = [_Tensor(b) if isinstance(b, np.ndarray) else b for b in buffers]
        kernel.entry[launch.grid](*arguments, *launch.ints, **kernel.constants)

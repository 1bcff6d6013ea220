"""The launch machinery of both front ends with the interpreter in the place of a GPU; `test_interpreter.py` runs this file.

`from_jax.run` (what a lowering does) and the torch front end make their plans, buffers and launches as always; only the
last step, the launch itself, runs the kernel in Triton's interpreter. Prints one line of JSON for each case, as
`interpreter_cases.py` does.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator
from typing import Any

os.environ["TRITON_INTERPRET"] = "1"  # before Triton is imported

import cases as estimator_cases
import fast_oracle
import numpy as np
import torch
from kernel_cases import DEFAULTS, ESTIMATORS, KERNELS
from rl_triton_jax.kernels import plan as planning
from torch.utils._python_dispatch import TorchDispatchMode

import rl_triton_jax.torch as torch_front
from rl_triton_jax import problem as canonical_form
from rl_triton_jax import torch_calls, versions
from rl_triton_jax.estimators.n_step_returns import n_step_estimator
from rl_triton_jax.launch import from_jax, from_torch, interpret
from rl_triton_jax.launch.kernel import TYPES

DEVICE = planning.Device(warp=4)
SHAPES = [((11, 3), 0), ((3, 11), 1)]  # in turn


def split(problem: planning.Problem, device: planning.Device, flags: tuple[bool, ...]) -> planning.Plan:
    """A plan with more than one launch, whatever the size: the one with most to go wrong."""
    if problem.window:
        return planning.plan(problem, device, flags)
    parts = 1 if problem.mask is not None else 4
    if planning.time_is_contiguous(problem):
        sizes = (("R", 2), ("BT", 4), ("STAGES", 1))
        return planning.build(problem, planning.Choice("rows", sizes, 1, parts), device, flags)
    sizes = (("C", 2), ("L", 2), ("BN", 4), ("STAGES", 1))
    return planning.build(problem, planning.Choice("columns", sizes, 1, parts), device, flags)


def run_one(launch: planning.Launch, problem: planning.Problem, inputs: Any, outputs: Any) -> None:
    """One launch by itself; its inputs and outputs lie as they do on a GPU."""
    kernel = interpret.make_kernel(launch, problem.input_dtypes, problem.output_dtypes, problem.accumulate, False)
    arguments = [interpret._Tensor(x) if isinstance(x, np.ndarray) else x for x in (*inputs, *outputs)]
    kernel.entry[launch.grid](*arguments, *launch.ints, **kernel.constants)


def route(launch: Any, problem: Any, device: Any, inputs: Any, out: Any) -> Any:
    del device
    outputs = [np.full(o.shape, np.nan if o.dtype.kind == "f" else -1, o.dtype) for o in out]
    run_one(launch, problem, inputs, outputs)
    return outputs


class Address(interpret._Tensor):
    """A pointer as the torch front end gives it to a launch: no more than where memory begins."""

    def __init__(self, address: int, dtype: str) -> None:
        super().__init__(np.empty(0, dtype))
        self.address = address

    def data_ptr(self) -> int:
        return self.address

    def new_empty(self, size: int, device: str) -> interpret._Tensor:
        return self


class Compiled:
    """In the place of a compiled kernel: the kernel itself."""

    def __init__(self, launch: Any, inputs: Any, outputs: Any, accumulate: str, static: bool, unaligned: Any) -> None:
        del unaligned
        self.kernel = interpret.make_kernel(launch, inputs, outputs, accumulate, static)
        self.constants = self.kernel.constants

    def source(self) -> Compiled:
        return self


def launcher(compiled: Compiled, grid: Any) -> Any:
    """In the place of `versions.launcher`."""
    names = {text: name for name, text in TYPES.items()}
    kinds = list(compiled.kernel.signature.values())

    def launch(stream: int, *arguments: Any) -> None:
        del stream
        assert len(arguments) == len(kinds) + len(compiled.constants)
        given = [
            Address(x, names[kind[1:]]) if kind.startswith("*") else x
            for x, kind in zip(arguments, kinds, strict=False)
        ]
        compiled.kernel.entry[grid](*given, **compiled.constants)

    return launch


def by_jax(case: Any, axis: int) -> list[np.ndarray]:
    """What a lowering for a GPU computes."""
    name: str = case.name
    estimator = ESTIMATORS[KERNELS.get(name, name)]
    if case.name == "n_step_returns":
        estimator = n_step_estimator(case.arguments["n"], longest_window=256)
    arguments = {**DEFAULTS.get(case.name, {}), **case.arguments}
    if arguments.get("resets") == "before":
        arguments["starts"] = arguments.pop("done")
    operands = {o.name: arguments.get(o.name) for o in estimator.operands}
    call = canonical_form.validate(estimator, operands, axis)
    dtype = canonical_form.result_dtype(estimator, operands, lambda a, b: str(np.promote_types(a, b)))
    accumulate = canonical_form.accumulation_dtype(dtype)
    values: list[Any] = []
    for operand in estimator.operands:
        x = operands[operand.name]
        if isinstance(x, (int, float)) or (x is not None and np.ndim(x) == 0):
            x = np.full((1,) * len(call.shape), x, accumulate)
        elif x is not None and operand.role is canonical_form.Role.EDGE:
            x = np.expand_dims(x, axis)
        values.append(x)
    return from_jax.run(
        estimator,
        [x for x in values if x is not None],
        call.shape,
        backend="cuda",
        axis=axis,
        backward=estimator.backward,
        wanted=(True,) * len(estimator.outputs),
        present=tuple(x is not None for x in values),
        dtype=dtype,
        accumulate=accumulate,
        standardize=0 if arguments.get("normalize") else None,
        route="interpreter",
        implementation=None,
        name=name,
    )


def by_torch(case: Any, axis: int) -> list[np.ndarray]:
    """Twice: the second call goes straight to its launch."""
    arguments = {
        n: torch.as_tensor(x) if isinstance(x, (np.ndarray, np.generic)) else x for n, x in case.arguments.items()
    }
    out: Any = None
    for _ in range(2):
        out = getattr(torch_front, case.name)(**arguments, axis=axis)
    return [x.detach().numpy() for x in (out if isinstance(out, tuple) else (out,))]


class Watched(TorchDispatchMode):
    """Follows every operation and changes none: behind it a call is an operator."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: set[str] = set()

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.seen.add(str(function))
        return function(*args, **(kwargs or {}))


def by_operator(case: Any, axis: int) -> list[np.ndarray]:
    with Watched() as watched:
        out = by_torch(case, axis)
    assert watched.seen & {"rl_triton_jax.launch.default", "rl_triton_jax.recurrence.default"}
    return out


def by_formula(case: Any, axis: int) -> list[np.ndarray]:
    """What a call does where a gradient is wanted: functions of torch around the kernels of the recurrence."""
    arguments = {n: torch.as_tensor(x).requires_grad_() if n == "rewards" else x for n, x in case.arguments.items()}
    return by_torch(case._replace(arguments=arguments), axis)


def results() -> Iterator[tuple[str, Any, Any]]:
    for which, (shape, axis) in enumerate(SHAPES):
        for number, case in enumerate(estimator_cases.cases(shape, axis, seed=6)):
            if number % len(SHAPES) != which:
                continue
            expected = getattr(fast_oracle, case.name)(**case.arguments, axis=axis)
            got = by_jax(case, axis)
            yield f"jax: {case.label}, axis {axis}", got[2:] if case.name == "puffer_advantage" else got, expected
            yield f"torch: {case.label}, axis {axis}", by_torch(case, axis), expected
            if case.label in ("gae, last values", "discounted_returns, mask", "n_step_returns, 3 steps"):
                yield f"torch, an operator: {case.label}, axis {axis}", by_operator(case, axis), expected
                yield f"torch, gradients: {case.label}, axis {axis}", by_formula(case, axis), expected


def main() -> None:
    from_jax.plan = from_torch.plan = split  # type: ignore[assignment]
    from_jax.ROUTES["interpreter"] = route
    from_jax._device = lambda backend: DEVICE
    from_torch.make_kernel = Compiled  # type: ignore[assignment]
    from_torch.stream_of = lambda index: 0
    torch.cuda.device = contextlib.nullcontext  # type: ignore[assignment,misc]
    versions.compile_kernel = lambda source, target, num_warps, num_stages: source
    versions.launcher = launcher
    torch.use_deterministic_algorithms(True, warn_only=True)  # new memory is full of NaN
    from_torch.device_of = lambda index: DEVICE  # type: ignore[assignment]
    torch_front._use_kernels = lambda *_: True
    torch_calls._on_gpu = lambda x: True
    for label, got, expected in results():
        pairs = list(zip(got, expected, strict=False))
        error = max(float(np.max(np.abs(np.asarray(o) - e)) / max(1.0, np.max(np.abs(e)))) for o, e in pairs)
        print(json.dumps({"case": label, "error": error}), flush=True)


if __name__ == "__main__":
    main()

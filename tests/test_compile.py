"""Every kernel the plan can ship, compiled for every architecture without a GPU: no spills, wide loads where it matters."""

from __future__ import annotations

import importlib.util
import itertools
import re
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

if importlib.util.find_spec("triton") is None:
    pytest.skip("no triton", allow_module_level=True)

from kernel_cases import ESTIMATORS, kernel_problem
from rl_triton_jax.kernels import plan as planning

from rl_triton_jax import problem as canonical_form
from rl_triton_jax import versions
from rl_triton_jax.launch.kernel import make_kernel, target_of

DEVICES = {
    "sm_80": planning.Device("cuda", 80, 108),
    "sm_90": planning.Device("cuda", 90, 132),
    "sm_100": planning.Device("cuda", 100, 148),
    "gfx942": planning.Device("hip", "gfx942", 304, 64),
}
# (steps, columns, time axis): one of each row of the plan's table.
SHAPES = [
    (20, 256, 0),
    (128, 512, 0),
    (600, 512, 0),
    (16, 16384, 0),
    (96, 14336, 0),
    (256, 14336, 0),
    (256, 16384, 0),
    (4096, 64, 0),
    (100000, 8, 0),
    (128, 512, 1),
    (16, 512, 1),
    (2048, 512, 1),
    (20000, 16, 1),
]
# The other kinds, where registers are short; all the rest is smaller than with truncations.
FEWER = [(128, 512, 0), (256, 14336, 0), (100000, 8, 0), (2048, 512, 1)]
NORMALIZED = [(128, 512, 0), (16, 16384, 0), (100000, 8, 0), (512, 16384, 1)]
KINDS = {
    "normalized": NORMALIZED,
    "truncated": SHAPES,
    "mask": FEWER,
    "bfloat16": FEWER,
    "float64": FEWER,
    "linear_recurrence": FEWER,
}


def memory(shape: tuple[int, ...], dtype: Any) -> np.ndarray:
    """An array of that shape and its row-major strides that takes no memory: only its description is used."""
    strides = [s * np.dtype(dtype).itemsize for s in canonical_form.row_major(shape)]
    return np.lib.stride_tricks.as_strided(np.zeros(1, dtype), shape, strides)


def gae_problem(steps: int, columns: int, axis: int, kind: str) -> planning.Problem:
    shape = (steps, columns) if axis == 0 else (columns, steps)
    dtype = {"float64": np.float64, "bfloat16": np.float16}.get(kind, np.float32)
    arguments: dict[str, Any] = {
        "rewards": memory(shape, dtype),
        "values": memory(shape, dtype),
        "axis": axis,
        "last_values": memory((columns,), dtype),
        "terminated": memory(shape, bool),
    }
    if kind in ("truncated", "mask"):
        arguments |= {"truncated": memory(shape, np.uint8), "final_values": memory(shape, dtype)}
    if kind == "mask":
        arguments["mask"] = memory(shape, bool)
    if kind == "normalized":
        arguments |= {"mask": memory(shape, bool), "normalize": True}
    problem, _, _ = kernel_problem("gae", arguments, dtype=str(np.dtype(dtype)))
    return problem


def recurrence_problem(steps: int, columns: int, axis: int) -> planning.Problem:
    shape = (steps, columns) if axis == 0 else (columns, steps)
    arguments = {
        "a": memory(shape, np.float32),
        "b": memory(shape, np.float32),
        "reset": memory(shape, bool),
        "axis": axis,
        "initial": memory((columns,), np.float32),
    }
    return kernel_problem("linear_recurrence", arguments)[0]


def compile_all(
    problem: planning.Problem, device: planning.Device, bfloat16: bool = False, static: bool = True
) -> list[Any]:
    def dtypes(names: tuple[str, ...]) -> tuple[str, ...]:
        return tuple("bfloat16" if n == "float16" and bfloat16 else n for n in names)

    plan = planning.plan(problem, device, canonical_form.flags(ESTIMATORS[problem.estimator]))
    kernels = []
    for launch in plan.launches:
        kernel = make_kernel(
            launch, dtypes(problem.input_dtypes), dtypes(problem.output_dtypes), problem.accumulate, static
        )
        kernels.append(versions.compile_kernel(kernel.source(), target_of(device), launch.num_warps, launch.num_stages))
    return kernels


def spilled(compiled: Any, device: planning.Device, folder: Path) -> int:
    """Bytes of a thread's stack (spills live there)."""
    if device.backend == "hip":
        found = re.findall(r"\.(?:vgpr|sgpr)_spill_count:\s*(\d+)", compiled.asm["amdgcn"])
        assert found
        return sum(int(n) for n in found)
    binary = folder / "kernel.cubin"
    binary.write_bytes(compiled.asm["cubin"])
    triton = versions.import_triton()
    tool = Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / "cuobjdump"
    text = subprocess.run(
        [str(tool), "--dump-resource-usage", str(binary)], capture_output=True, text=True, check=True
    ).stdout
    return int(re.findall(r"STACK:(\d+)", text)[0])


@pytest.mark.parametrize("kind", list(KINDS))
def test_no_spills_at_shipped_settings(kind: str, tmp_path: Path) -> None:
    device = DEVICES["sm_90"]
    for shape in KINDS[kind]:
        problem = recurrence_problem(*shape) if kind == "linear_recurrence" else gae_problem(*shape, kind)
        for compiled in compile_all(problem, device, kind == "bfloat16"):
            assert spilled(compiled, device, tmp_path) == 0, (shape, kind)


def other_problem(name: str, steps: int, columns: int, axis: int, masked: bool = False) -> planning.Problem:
    """The fullest call of each of the other kernels."""
    shape = (steps, columns) if axis == 0 else (columns, steps)
    data, flag = memory(shape, np.float32), memory(shape, bool)
    actions, edge = memory((*shape, 6), np.float32), memory((columns,), np.float32)
    flags = {"terminated": flag, "truncated": flag}
    with_values = {"rewards": data, "values": data, **flags, "last_values": edge, "final_values": data}
    arguments: dict[str, dict[str, Any]] = {
        "discounted_returns": {"rewards": data, **flags, "last_values": edge, "final_values": data},
        "eligibility_traces": {"inputs": data, **flags, "initial": edge},
        "episodic_cumsum": {"inputs": memory(shape, np.int64), "done": flag},
        "lambda_returns": with_values,
        "q_lambda": {"rewards": data, **flags, "next_q_values": actions},
        "retrace": {
            "rewards": data,
            "q_values": data,
            **flags,
            "log_rhos": data,
            "next_q_values": actions,
            "next_target_probs": actions,
        },
        "n_step_returns": {**with_values, "n": 5},
        "upgo": with_values,
        "vtrace": {**with_values, "log_rhos": data},
    }
    call = {**arguments[name], "axis": axis, **({"mask": flag} if masked else {})}
    return kernel_problem(name, call, dtype="int64" if name == "episodic_cumsum" else "float32")[0]


OTHERS = [
    "discounted_returns",
    "eligibility_traces",
    "episodic_cumsum",
    "lambda_returns",
    "n_step_returns",
    "q_lambda",
    "retrace",
    "upgo",
    "vtrace",
]


@pytest.mark.parametrize("name", OTHERS)
def test_no_spills_in_the_other_kernels(name: str, tmp_path: Path) -> None:
    device = DEVICES["sm_90"]
    problems = [other_problem(name, *shape) for shape in ((128, 512, 0), (100000, 8, 0), (2048, 512, 1))]
    if name in ("lambda_returns", "vtrace"):
        problems += [other_problem(name, *shape, masked=True) for shape in ((128, 512, 0), (2048, 512, 1))]
    for problem in problems:
        for compiled in compile_all(problem, device):
            assert spilled(compiled, device, tmp_path) == 0, (problem.steps, problem.sizes)


def test_no_spills_in_windows_along_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planning, "LONGEST_ROW_WINDOW", 32)
    device = DEVICES["sm_90"]
    for shape in ((16, 512, 1), (2048, 512, 1)):
        problem = other_problem("n_step_returns", *shape)
        assert planning.choose(problem, device).schedule == "windows_rows"
        for compiled in compile_all(problem, device):
            assert spilled(compiled, device, tmp_path) == 0


@pytest.mark.parametrize(("name", "device"), zip(OTHERS, itertools.cycle(("sm_80", "sm_100", "gfx942")), strict=False))
def test_the_other_kernels_on_other_architectures(name: str, device: str, tmp_path: Path) -> None:
    """One each: what differs between architectures is in the schedules, which GAE goes through on all of them."""
    for compiled in compile_all(other_problem(name, 128, 512, 0), DEVICES[device]):
        assert spilled(compiled, DEVICES[device], tmp_path) == 0


@pytest.mark.parametrize("name", ["sm_80", "sm_100", "gfx942"])
@pytest.mark.parametrize("shape", [(128, 512, 0), (4096, 64, 0), (128, 512, 1)], ids=str)
def test_other_architectures(name: str, shape: tuple[int, int, int], tmp_path: Path) -> None:
    device = DEVICES[name]
    for compiled in compile_all(gae_problem(*shape, "truncated"), device):
        assert spilled(compiled, device, tmp_path) == 0


def test_wide_accesses() -> None:
    """The serial walk copies whole 16-byte vectors asynchronously; rows load and store them."""
    (serial,) = compile_all(gae_problem(96, 14336, 0, "terminated"), DEVICES["sm_90"])
    assert "cp.async.cg.shared.global" in serial.asm["ptx"]
    assert len(re.findall(r"st\.global\.v4", serial.asm["ptx"])) == 16
    (by_rows,) = compile_all(gae_problem(128, 512, 1, "terminated"), DEVICES["sm_90"])
    assert re.search(r"ld\.global\.v4", by_rows.asm["ptx"])
    assert re.search(r"st\.global\.v4", by_rows.asm["ptx"])


def test_slabs_need_no_layout_conversion() -> None:
    (slabs,) = compile_all(gae_problem(128, 512, 0, "terminated"), DEVICES["sm_90"])
    assert "convert_layout" not in slabs.asm["ttgir"]


def test_a_new_shape_of_the_same_layout_needs_no_new_kernel() -> None:
    """With sizes passed at run time (torch), two shapes share the kernel: same entry, signature and constants."""

    def kernels(steps: int, columns: int) -> list[Any]:
        problem = gae_problem(steps, columns, 0, "terminated")
        plan = planning.plan(problem, DEVICES["sm_90"], canonical_form.flags(ESTIMATORS["gae"]))
        return [
            make_kernel(launch, problem.input_dtypes, problem.output_dtypes, problem.accumulate, False)
            for launch in plan.launches
        ]

    for one, other in zip(kernels(512, 4096), kernels(1024, 2048), strict=True):
        assert one.entry is other.entry
        assert one.signature == other.signature
        assert one.constants == other.constants
        assert one.aligned == other.aligned

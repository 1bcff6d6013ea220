"""One launch as Triton sees it: the entry function, its signature and its constants."""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

from .. import versions
from ..kernels.plan import VALUE, Device, Launch

TYPES = {
    "float16": "fp16",
    "bfloat16": "bf16",
    "float32": "fp32",
    "float64": "fp64",
    "bool": "i1",
    "int8": "i8",
    "int16": "i16",
    "int32": "i32",
    "int64": "i64",
    "uint8": "u8",
    "uint16": "u16",
    "uint32": "u32",
    "uint64": "u64",
}


@dataclasses.dataclass(frozen=True)
class Kernel:
    """`constants` holds every constexpr; with `static_ints` the sizes and strides are among them."""

    entry: Any
    signature: dict[str, str]
    constants: dict[str, Any]
    aligned: frozenset[str]

    def source(self) -> Any:
        return versions.make_ast_source(self.entry, self.signature, self.constants, set(self.aligned))


def kernel_constants(launch: Launch) -> dict[str, Any]:
    """The launch's constants as Triton objects: dtypes and functions by name become themselves."""
    versions.import_triton()
    import triton.language as tl

    from ..kernels import entry

    step, finish = entry.estimator_functions(launch.estimator, launch.schedule)
    constants: dict[str, Any] = {"STEP": step, "FINISH": finish, **dict(launch.constants)}
    constants["ACC"] = getattr(tl, constants["ACC"])
    return constants


@functools.lru_cache(maxsize=4096)
def make_kernel(
    launch: Launch,
    input_dtypes: tuple[str, ...],
    output_dtypes: tuple[str, ...],
    accumulate: str,
    static_ints: bool,
    unaligned: frozenset[int] = frozenset(),
) -> Kernel:
    """The kernel of a launch. `unaligned` lists input buffers (outputs after them) whose address is no multiple of 16."""
    from ..kernels import entry

    constants = kernel_constants(launch)
    function = entry.make_entry(
        launch.schedule, len(launch.inputs), len(launch.outputs), len(launch.ints), tuple(constants), static_ints
    )
    by_value = {d[0] for d in constants["OPS"] if d[1] == VALUE}
    signature: dict[str, str] = {}
    aligned: set[str] = set()
    for letter, buffers, dtypes, first in (
        ("i", launch.inputs, input_dtypes, 0),
        ("o", launch.outputs, output_dtypes, len(input_dtypes)),
    ):
        for k, buffer in enumerate(buffers):
            dtype = accumulate if buffer < 0 else dtypes[buffer]
            value = letter == "i" and k in by_value
            signature[f"{letter}{k}"] = TYPES[dtype] if value else "*" + TYPES[dtype]
            if not value and (buffer < 0 or buffer + first not in unaligned):
                aligned.add(f"{letter}{k}")
    for k, number in enumerate(launch.ints):
        if static_ints:
            constants[f"n{k}"] = number
        else:
            signature[f"n{k}"] = "i32" if number < 2**31 else "i64"
            if number % 16 == 0:
                aligned.add(f"n{k}")
    return Kernel(function, signature, constants, frozenset(aligned))


def target_of(device: Device) -> Any:
    return versions.make_target(device.backend, device.arch, device.warp)

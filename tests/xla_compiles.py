"""XLA compiles calls for a GPU that is not there: `python xla_compiles.py PLUGIN`, one line of JSON for each.

PLUGIN is `xla_cuda_plugin.so` of the package jax-cuda13-pjrt.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from benchmarks.absent_gpu import sharding

# What an instruction of a compiled module must be to cost nothing.
FREE = ("parameter", "constant", "bitcast", "tuple", "get-tuple-element")


def calls() -> Iterator[tuple[str, Callable[..., Any], dict[str, Any]]]:
    """(label, function of arrays by name, the arrays)."""
    import jax
    import numpy as np
    from cases import cases

    import rl_triton_jax

    def split(case: Any, axis: int) -> tuple[Callable[..., Any], dict[str, Any]]:
        arrays = {name: x for name, x in case.arguments.items() if isinstance(x, np.ndarray)}
        rest = {name: x for name, x in case.arguments.items() if name not in arrays}
        function = getattr(rl_triton_jax, case.name)
        return lambda given: jax.tree.leaves(function(**given, **rest, axis=axis, implementation="triton")), arrays

    for axis, shape in ((0, (128, 96)), (1, (96, 128))):
        for case in cases(shape, axis):
            yield f"{case.label}, axis {axis}", *split(case, axis)
    for axis, shape in ((0, (4096, 8)), (1, (8, 8192))):  # time split over programs
        (case,) = (c for c in cases(shape, axis) if c.label == "gae, last values")
        yield f"{case.label}, long, axis {axis}", *split(case, axis)

    (case,) = (c for c in cases((128, 96), 0) if c.label == "gae, last values")
    function, arrays = split(case, 0)

    def gradient(given: dict[str, Any]) -> Any:
        rest = {name: x for name, x in given.items() if name != "rewards"}
        return jax.grad(lambda r: sum((x**2).sum() for x in function({**rest, "rewards": r})))(given["rewards"])

    yield "gae, gradient", gradient, arrays


def main(plugin: str) -> None:
    where = sharding(Path(plugin), refuse_spills=True)
    import jax

    import rl_triton_jax

    for label, function, arrays in calls():
        shapes = {name: jax.ShapeDtypeStruct(x.shape, x.dtype) for name, x in arrays.items()}
        with rl_triton_jax.launch_route("xla-triton"):
            compiled = jax.jit(function, in_shardings=where, out_shardings=where).lower(shapes).compile()
        entry = (compiled.as_text() or "").partition("\nENTRY ")[2].partition("\n}")[0]
        kinds = re.findall(r"^ +(?:ROOT )?%\S+ = (?:\([^=]*\)|\S+) ([\w-]+)\(", entry, re.M)
        ours = entry.count('custom_call_target="__gpu$xla.gpu.triton"')
        print(json.dumps({"call": label, "ours": ours, "all": sum(kind not in FREE for kind in kinds)}), flush=True)


if __name__ == "__main__":
    main(sys.argv[1])

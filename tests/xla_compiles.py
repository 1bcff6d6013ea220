"""XLA compiles calls for a GPU that is not there: `python xla_compiles.py PLUGIN`, one line of JSON for each.

PLUGIN is `xla_cuda_plugin.so` of the package jax-cuda13-pjrt. A process of its own: JAX would try the plugin as a backend.
"""

from __future__ import annotations

import json
import os
import re
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

# An H200 as XLA's compiler sees one.
TARGET = """
gpu_device_info {
  threads_per_block_limit: 1024  threads_per_warp: 32  threads_per_core_limit: 2048  core_count: 132  fpus_per_core: 128
  shared_memory_per_block: 49152  shared_memory_per_core: 233472  shared_memory_per_block_optin: 232448
  block_dim_limit_x: 2147483647  block_dim_limit_y: 65535  block_dim_limit_z: 65535
  registers_per_core_limit: 65536  registers_per_block_limit: 65536
  memory_bandwidth: 4800000000000  l2_cache_size: 52428800  clock_rate_ghz: 1.98  device_memory_size: 151397597184
  cuda_compute_capability { major: 9 }
}
platform_name: "CUDA"
dnn_version_info { major: 9 minor: 10 }
device_description_str: "NVIDIA H200"
"""
# What an instruction of a compiled module must be to cost nothing.
FREE = ("parameter", "constant", "bitcast", "tuple", "get-tuple-element")


def compiler_options() -> str:
    """Triton brings the assembler and the library of device functions; XLA wants both in one folder."""
    import triton

    nvidia = Path(triton.__file__).parent / "backends" / "nvidia"
    folder = Path(tempfile.mkdtemp())
    for path, source in (
        ("bin/ptxas", nvidia / "bin" / "ptxas"),
        ("nvvm/libdevice/libdevice.10.bc", nvidia / "lib" / "libdevice.10.bc"),
    ):
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).symlink_to(source)
    return (
        f"--xla_gpu_cuda_data_dir={folder} --xla_gpu_enable_libnvptxcompiler=false --xla_gpu_enable_libnvjitlink=false "
        "--xla_gpu_fail_ptx_compilation_on_register_spilling=true"
    )


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
    os.environ["XLA_FLAGS"] = compiler_options()
    os.environ["JAX_PLATFORMS"] = "cpu"
    import jax
    from jax._src import xla_bridge  # the only way to a plugin that is no backend
    from jax.experimental import topologies
    from jax.sharding import SingleDeviceSharding

    import rl_triton_jax

    xla_bridge.register_plugin("cuda", library_path=plugin)
    topology = topologies.get_topology_desc("", "cuda", topology="1x1x1", target_config=TARGET)
    where = SingleDeviceSharding(topology.devices[0])
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

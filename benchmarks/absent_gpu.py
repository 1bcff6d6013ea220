"""XLA's compiler for a GPU that is not there: the plugin of jax-cuda13-pjrt with a description of an H200.

Takes a process of its own, before JAX is imported: JAX would take the plugin for a backend, and reads its options once.
"""

from __future__ import annotations

import atexit
import os
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

# Where `make test` puts the package: beside the environment's own, so that JAX does not find it.
PLUGIN = Path(sys.prefix) / "pjrt" / "jax_plugins" / "xla_cuda13" / "xla_cuda_plugin.so"

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


def _tools() -> Path:
    """Triton brings the assembler and the library of device functions; XLA wants both in one folder."""
    import triton

    nvidia = Path(triton.__file__).parent / "backends" / "nvidia"
    folder = Path(tempfile.mkdtemp())
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    for path, source in (
        ("bin/ptxas", nvidia / "bin" / "ptxas"),
        ("nvvm/libdevice/libdevice.10.bc", nvidia / "lib" / "libdevice.10.bc"),
    ):
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).symlink_to(source)
    return folder


def sharding(plugin: Path = PLUGIN, *, refuse_spills: bool = False) -> Any:
    """What puts a jitted function's arrays on that GPU: `jax.jit(f, in_shardings=s, out_shardings=s).lower(...).compile()`.

    With `refuse_spills` a kernel that spills registers fails to compile.
    """
    os.environ["XLA_FLAGS"] = (
        f"--xla_gpu_cuda_data_dir={_tools()} --xla_gpu_enable_libnvptxcompiler=false --xla_gpu_enable_libnvjitlink=false "
        f"--xla_gpu_fail_ptx_compilation_on_register_spilling={str(refuse_spills).lower()}"
    )
    os.environ["JAX_PLATFORMS"] = "cpu"
    from jax._src import xla_bridge  # the only way to a plugin that is no backend
    from jax.experimental import topologies
    from jax.sharding import SingleDeviceSharding

    xla_bridge.register_plugin("cuda", library_path=str(plugin))
    topology = topologies.get_topology_desc("", "cuda", topology="1x1x1", target_config=TARGET)
    return SingleDeviceSharding(topology.devices[0])

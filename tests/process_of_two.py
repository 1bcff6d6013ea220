"""One of two processes of a `jax.distributed` computation on CPUs; prints its largest error against the loop."""

from __future__ import annotations

import os
import sys

os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=2"
os.environ["JAX_PLATFORMS"] = "cpu"

import jax
import numpy as np
import oracle
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

import rl_triton_jax


def main(process: int, port: int) -> None:
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    jax.distributed.initialize(f"localhost:{port}", num_processes=2, process_id=process)
    mesh = jax.make_mesh((4,), ("x",))
    problem = oracle.gae_problem(0, (16, 8), 0, flags="both")
    expected = oracle.gae(**problem, normalize=True)
    for spec in (P(None, "x"), P("x", None)):  # environments over the processes; steps over them
        arrays = {}
        for name, x in problem.items():
            if isinstance(x, np.ndarray):
                sharding = NamedSharding(mesh, spec if x.ndim == 2 else P(*spec[1:]))
                arrays[name] = jax.make_array_from_callback(x.shape, sharding, lambda where, x=x: x[where])
        rest = {k: x for k, x in problem.items() if k not in arrays}
        got = jax.jit(lambda arrays, rest=rest: rl_triton_jax.gae(**arrays, **rest, normalize=True))(arrays)
        for result, wanted in zip(got, expected, strict=True):
            for piece in result.addressable_shards:
                assert np.max(np.abs(np.asarray(piece.data) - wanted[piece.index])) < 1e-5
    print("right", flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))

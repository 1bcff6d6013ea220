"""How long XLA compiles GAE for an H200, once and many times in one jit: `python -m benchmarks.compile_time --out FILE`.

Needs no GPU (`absent_gpu.py`). Seconds are of this machine's processor: tracing and lowering, Triton's part among it, and
XLA's compilation. Each row has a process of its own, in which a smaller call was compiled first to start everything up: what
another row left behind is not there to be found. Each call takes what the one before made.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from . import absent_gpu, environment
from .ops import all_ops
from .problem import Inputs
from .provider import Provider
from .providers import all_providers
from .shapes import Shape

CALLS = (1, 32)
PROVIDERS = ("ours_xla_triton", "associative_scan", "lax_scan_1")
SHAPE = Shape("time_major", 128, 4096)
WARM_UP = Shape("time_major", 16, 64)


def chain(provider: Provider, calls: int, shape: Shape) -> tuple[Callable[[Inputs], Any], dict[str, Any]]:
    import jax

    op = all_ops()["gae"]
    problem = op.chained(op.problem(shape))
    one = provider.make(problem)

    def many(inputs: Inputs) -> Any:
        outputs: Sequence[Any] = ()
        for _ in range(calls):
            outputs = one(inputs)
            inputs = op.feed(inputs, outputs)
        return list(outputs)

    types = {"flag": "uint8"}
    dims = {"edge": (shape.N,)}
    kinds = op.operands(problem)
    arrays = {
        name: jax.ShapeDtypeStruct(dims.get(kind, shape.dims), types.get(kind, "float32"))
        for name, kind in kinds.items()
    }
    return many, arrays


def measure(plugin: Path, name: str, calls: int) -> dict[str, Any]:
    where = absent_gpu.sharding(plugin)
    import jax

    def once(calls: int, shape: Shape) -> tuple[float, float]:
        function, arrays = chain(all_providers()[name], calls, shape)
        start = time.perf_counter()
        lowered = jax.jit(function, in_shardings=where, out_shardings=where).lower(arrays)
        middle = time.perf_counter()
        lowered.compile()
        return round(middle - start, 3), round(time.perf_counter() - middle, 3)

    once(1, WARM_UP)
    lower, compilation = once(calls, SHAPE)
    sizes = {"T": SHAPE.T, "N": SHAPE.N}
    return {**sizes, "provider": name, "calls": calls, "lower_s": lower, "compile_s": compilation}


def main(argv: Sequence[str] | None = None, log: Callable[[str], None] = print) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.compile_time", description=(__doc__ or "").partition("\n")[0]
    )
    parser.add_argument("--plugin", type=Path, default=absent_gpu.PLUGIN, help="xla_cuda_plugin.so of jax-cuda13-pjrt")
    parser.add_argument("--calls", type=lambda s: [int(n) for n in s.split(",")], default=list(CALLS))
    parser.add_argument("--providers", type=lambda s: s.split(","), default=list(PROVIDERS))
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args(argv)
    wanted = [(args.plugin, name, calls) for name in args.providers for calls in args.calls]
    rows = []
    with multiprocessing.get_context("spawn").Pool(1, maxtasksperchild=1) as pool:
        for job in wanted:
            rows.append(row := pool.apply(measure, job))
            log(
                f"{row['provider']:18} {row['calls']:3} calls: lowered in {row['lower_s']} s, compiled in {row['compile_s']} s"
            )
    args.out.write_text(json.dumps({"header": environment.describe(), "rows": rows}, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())

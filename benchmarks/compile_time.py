"""How long XLA compiles GAE for an H200, once and many times in one jit: `python -m benchmarks.compile_time --out FILE`.

Needs no GPU (`absent_gpu.py`). Seconds are of this machine's processor: tracing and lowering, Triton's part among it, and
XLA's compilation, after one call was compiled to start everything up. Each call takes what the one before made.
"""

from __future__ import annotations

import argparse
import json
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


def measure(where: Any, name: str, calls: int, shape: Shape) -> dict[str, Any]:
    import jax

    function, arrays = chain(all_providers()[name], calls, shape)
    start = time.perf_counter()
    lowered = jax.jit(function, in_shardings=where, out_shardings=where).lower(arrays)
    middle = time.perf_counter()
    lowered.compile()
    end = time.perf_counter()
    return {"provider": name, "calls": calls, "lower_s": round(middle - start, 3), "compile_s": round(end - middle, 3)}


def main(argv: Sequence[str] | None = None, log: Callable[[str], None] = print) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.compile_time", description=(__doc__ or "").partition("\n")[0]
    )
    parser.add_argument("--plugin", type=Path, default=absent_gpu.PLUGIN, help="xla_cuda_plugin.so of jax-cuda13-pjrt")
    parser.add_argument("--calls", type=lambda s: [int(n) for n in s.split(",")], default=list(CALLS))
    parser.add_argument("--providers", type=lambda s: s.split(","), default=list(PROVIDERS))
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args(argv)
    where = absent_gpu.sharding(args.plugin)
    rows = []
    for name in args.providers:
        measure(where, name, 1, Shape("time_major", 16, 64))
        for calls in args.calls:
            rows.append({"T": SHAPE.T, "N": SHAPE.N, **measure(where, name, calls, SHAPE)})
            log(f"{name:18} {calls:3} calls: lowered in {rows[-1]['lower_s']} s, compiled in {rows[-1]['compile_s']} s")
    args.out.write_text(json.dumps({"header": environment.describe(), "rows": rows}, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())

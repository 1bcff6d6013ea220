"""More than one GPU of a host: right numbers, and how time scales. Writes one JSON file.

    python -m benchmarks.multi_gpu --out results.json                       # 1, 2, 4 ... of the GPUs that are there
    python -m benchmarks.multi_gpu --virtual 4 --quick --out results.json   # virtual CPU devices: right or not

Measured for each number of devices, each after its numbers were compared with those of one device:

* weak: GAE of 128 steps and 32768 columns for each device, columns spread over the devices. Nothing is exchanged (the compiled
  program is searched for collectives), so a call should take as long as on one device.
* strong: one long trajectory, 10^7 steps of 64 columns, time spread over the devices. One map per column goes around; a call
  should take 1/n of the time.
* torch: the same call on every GPU by itself, and by one process for each GPU under `torch.distributed` (NCCL, gloo on virtual
  devices), whose gradients are averaged as in data-parallel training and compared with those of one process.

A time is that of a chain of calls in one jit, each waiting for the one before, over their number: what a call adds to a training
step. The median of several runs.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import socket
import statistics
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

# Steps and columns (for each device where weak): measured, and under --quick.
SIZES = {"weak": ((128, 32768), (16, 64)), "strong": ((10_000_000, 64), (1_000, 8))}
COLLECTIVES = ("all-gather", "all-reduce", "all-to-all", "collective-permute", "reduce-scatter")


def parse(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.multi_gpu", description=(__doc__ or "").partition("\n")[0]
    )
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--virtual", type=int, help="so many virtual CPU devices in place of GPUs")
    parser.add_argument("--quick", action="store_true", help="small sizes, to see that everything runs")
    parser.add_argument("--only", default="weak,strong,torch", help="comma list of weak, strong, torch")
    return parser.parse_args(argv)


def counts(devices: int) -> list[int]:
    """1, 2, 4 ... and all of them."""
    out = [1 << k for k in range(devices.bit_length()) if 1 << k <= devices]
    return out if out[-1] == devices else [*out, devices]


def seconds_per_call(step: Any, rewards: Any, others: Any, quick: bool) -> float:
    """`step(rewards, others)` gives something shaped as the rewards; each call gets what the one before made."""
    import jax

    calls = 4 if quick else 32

    def chain(rewards: Any, others: Any) -> Any:
        for _ in range(calls):
            rewards = step(rewards, others)
        return rewards

    compiled = jax.jit(chain).lower(rewards, others).compile()
    times = []
    for _ in range(3 if quick else 12):
        start = time.perf_counter()
        jax.block_until_ready(compiled(rewards, others))
        times.append(time.perf_counter() - start)
    return statistics.median(times[1:]) / calls


def jax_rows(kind: str, quick: bool) -> list[dict[str, Any]]:
    import jax
    import numpy as np
    from jax.sharding import Mesh, NamedSharding
    from jax.sharding import PartitionSpec as P

    import rl_triton_jax

    steps, columns = SIZES[kind][quick]

    def step(rewards: Any, others: Any) -> Any:
        values, terminated, last_values = others
        # Small decays: the advantages are the next call's rewards, and are not to grow out of range.
        return rl_triton_jax.gae(
            rewards, values, terminated, last_values=last_values, gamma=0.5, lambda_=0.5, with_returns=False
        ).advantages

    rows: list[dict[str, Any]] = []
    for n in counts(len(jax.devices())):
        mesh = Mesh(np.asarray(jax.devices()[:n]), ("i",))
        wide = columns * n if kind == "weak" else columns
        long = steps if kind == "weak" else steps // n * n
        spec, edge = (P(None, "i"), P("i")) if kind == "weak" else (P("i", None), P(None))

        def make(key: Any, shape: tuple[int, int] = (long, wide)) -> Any:
            a, b, c, d = jax.random.split(key, 4)
            terminated = jax.random.uniform(c, shape) < 0.01
            return jax.random.normal(a, shape), jax.random.normal(b, shape), terminated, jax.random.normal(d, shape[1:])

        key = jax.random.key(0)
        shardings = tuple(NamedSharding(mesh, s) for s in (spec, spec, spec, edge))
        rewards, *others = jax.jit(make, out_shardings=shardings)(key)
        compiled = jax.jit(step).lower(rewards, others).compile()
        text = compiled.as_text() or ""
        found = sorted({c for c in COLLECTIVES if re.search(rf" {c}(-start)?\(", text)})
        if kind == "weak" and found:
            raise AssertionError(f"columns on {n} devices exchange something: {found}")

        # Some columns, by one device.
        some = slice(0, min(wide, 64))
        alone = jax.device_put([np.asarray(x[..., some]) for x in (rewards, *others)], jax.devices()[0])
        expected = np.asarray(jax.jit(step)(alone[0], alone[1:]))
        got = np.asarray(compiled(rewards, others)[:, some])
        error = float(np.max(np.abs(got - expected)) / np.max(np.abs(expected)))
        if not error <= 1e-5:
            raise AssertionError(f"{kind} on {n} devices: relative error {error:.2e}")

        seconds = seconds_per_call(step, rewards, others, quick)
        one = rows[0]["seconds"] if rows else seconds
        efficiency = one / seconds if kind == "weak" else one / (n * seconds)
        rows.append(
            {
                "kind": kind,
                "devices": n,
                "shape": [long, wide],
                "seconds": seconds,
                "efficiency": efficiency,
                "error": error,
                "collectives": found,
            }
        )
        del rewards, others, alone, compiled
    return rows


def _problem(columns: int) -> list[Any]:
    import torch

    generator = torch.Generator().manual_seed(0)
    rewards, values = (torch.randn(64, columns, generator=generator, dtype=torch.float64) for _ in range(2))
    return [rewards, values, torch.rand(64, columns, generator=generator) < 0.05]


def _gradient(rewards: Any, values: Any, terminated: Any) -> tuple[Any, Any]:
    """(advantages, gradient by two weights that scale rewards and values): a learner in miniature."""
    import torch

    from rl_triton_jax import torch as front

    weights = torch.ones(2, dtype=rewards.dtype, device=rewards.device, requires_grad=True)
    advantages, returns = front.gae(rewards * weights[0], values * weights[1], terminated, last_values=0.0)
    loss = (advantages.square() + returns).mean()
    return advantages.detach(), torch.autograd.grad(loss, weights)[0]


def _worker(rank: int, world: int, port: int, cuda: bool, results: Any) -> None:
    import torch
    import torch.distributed as dist

    os.environ.update(MASTER_ADDR="localhost", MASTER_PORT=str(port))
    dist.init_process_group("nccl" if cuda else "gloo", rank=rank, world_size=world)
    device = torch.device("cuda", rank) if cuda else torch.device("cpu")
    mine = [x.chunk(world, 1)[rank].to(device) for x in _problem(16 * world)]
    _, gradient = _gradient(*mine)
    dist.all_reduce(gradient)
    if rank == 0:
        results.put((gradient / world).tolist())
    dist.destroy_process_group()


def torch_rows(devices: int, cuda: bool) -> list[dict[str, Any]]:
    import torch
    from torch.multiprocessing import get_context
    from torch.multiprocessing.spawn import start_processes

    rows = []
    problem = _problem(32)
    expected, _ = _gradient(*problem)
    for i in range(devices if cuda else 1):
        device = torch.device("cuda", i) if cuda else torch.device("cpu")
        got, _ = _gradient(*(x.to(device) for x in problem))
        if got.device != device:
            raise AssertionError(f"asked on {device}, answered on {got.device}")
        rows.append(
            {
                "kind": "torch, each device",
                "devices": 1,
                "device": i,
                "error": (got.cpu() - expected).abs().max().item(),
            }
        )
    with socket.socket() as probe:
        probe.bind(("localhost", 0))
        port = probe.getsockname()[1]
    results = get_context("spawn").SimpleQueue()
    start_processes(_worker, (devices, port, cuda, results), nprocs=devices, start_method="spawn")
    averaged = torch.tensor(results.get(), dtype=torch.float64)
    _, expected = _gradient(*_problem(16 * devices))
    error = ((averaged - expected).abs().max() / expected.abs().max()).item()
    rows.append({"kind": "torch, a process for each device", "devices": devices, "error": error})
    for row in rows:
        if not row["error"] <= 1e-9:
            raise AssertionError(f"{row['kind']}: error {row['error']:.2e}")
    return rows


def main(argv: Sequence[str] | None = None) -> None:
    options = parse(argv)
    if options.virtual:
        os.environ["XLA_FLAGS"] = (
            f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count={options.virtual}"
        )
        os.environ["JAX_PLATFORMS"] = "cpu"
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    import jax

    from . import environment

    kinds = options.only.split(",")
    devices = jax.devices()
    rows = [row for kind in ("weak", "strong") if kind in kinds for row in jax_rows(kind, options.quick)]
    if "torch" in kinds:
        rows += torch_rows(len(devices), devices[0].platform != "cpu")
    for row in rows:
        timing = f"{1e6 * row['seconds']:10.1f} us, efficiency {row['efficiency']:.3f}" if "seconds" in row else ""
        print(f"{row['kind']:34} on {row['devices']}: error {row['error']:.1e} {timing}")
    result = {"environment": environment.describe(), "virtual": options.virtual, "quick": options.quick, "rows": rows}
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()

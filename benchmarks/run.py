"""Measures and writes one JSON file: `python -m benchmarks.run --help`."""

from __future__ import annotations

import argparse
import importlib.util
import os
import re
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from . import environment, shapes
from .bench import Settings, measure_row
from .floors import Floors, l2_bytes, sets_to_rotate
from .measure import QUICK, Effort, why_no_cupti
from .ops import all_ops
from .problem import VARIANTS, Problem
from .provider import Provider
from .providers import all_providers
from .rows import Results, Row, save

RESULTS = Path(__file__).parent / "results"
BANDWIDTH_BYTES = 1 << 31  # far beyond any L2


class Job(NamedTuple):
    problem: Problem
    provider: Provider
    sets: int = 1  # of buffers, used in turn

    @property
    def rank(self) -> int:
        """Lower is measured earlier; rotated buffers of one provider come after the baselines that matter most."""
        return self.provider.priority + (2 if self.sets > 1 else 0)

    @property
    def label(self) -> str:
        return f"{self.problem.label} {self.provider.name} {'rotated' if self.sets > 1 else 'warm'}"


def _comma_list(text: str) -> list[str]:
    return [part for part in text.split(",") if part]


def parse(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.run", description=__doc__)
    parser.add_argument("--suite", choices=("jax", "torch", "all"), default="all", help="whose providers to measure")
    parser.add_argument("--ops", type=_comma_list, default=["gae"], help=f"comma list of {', '.join(all_ops())}")
    parser.add_argument(
        "--shapes",
        type=shapes.parse,
        default=shapes.TARGETS,
        help=f"comma list of {', '.join(shapes.SETS)}, TxN (time-major), b:NxT (batch-major)",
    )
    parser.add_argument("--dtypes", type=_comma_list, default=["float32"])
    parser.add_argument("--variants", type=_comma_list, default=["plain"], help=f"comma list of {', '.join(VARIANTS)}")
    parser.add_argument("--providers", type=_comma_list, help=f"comma list of {', '.join(all_providers())}")
    parser.add_argument("--cache", type=_comma_list, default=["warm", "rotated"], help="comma list of warm, rotated")
    parser.add_argument(
        "--chains",
        type=lambda text: tuple(int(n) for n in text.split(",")),
        help="calls in the two jits behind marginal_us (4,64)",
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--quick", action="store_true", help="few repetitions: to see that everything runs")
    parser.add_argument("--max-seconds", type=float, default=270, help="rows not begun by then are dropped, and listed")
    parser.add_argument("--out", type=Path, help="folder (benchmarks/results/<device>)")
    parser.add_argument("--name", help="of the file, without .json (ops, shapes and date)")
    args = parser.parse_args(argv)
    chains = args.chains or ((1, 3) if args.quick else (4, 64))
    if len(chains) != 2 or not 0 < chains[0] < chains[1]:
        parser.error("--chains expects two increasing numbers")
    args.chains = chains
    for given, known, option in (
        (args.ops, all_ops(), "ops"),
        (args.providers or [], all_providers(), "providers"),
        (args.variants, VARIANTS, "variants"),
        (args.cache, ("warm", "rotated"), "cache"),
    ):
        unknown = [name for name in given if name not in known]
        if unknown:
            parser.error(f"--{option}: unknown {', '.join(unknown)}; expected some of {', '.join(known)}")
    return args


def choose_providers(args: argparse.Namespace) -> tuple[list[Provider], dict[str, str]]:
    """The providers to measure, and why the others that were meant cannot run here."""
    wanted = [
        p
        for p in all_providers().values()
        if (p.name in args.providers if args.providers else p.default) and args.suite in ("all", p.framework)
    ]
    unavailable: dict[str, str] = {}
    for provider in wanted:
        missing = importlib.util.find_spec(provider.framework) is None
        why = f"{provider.framework} is not installed" if missing else provider.why_not()
        if why:
            unavailable[provider.name] = why
    chosen = [p for p in wanted if p.name not in unavailable]
    ours_in_jax = [p for p in chosen if p.framework == "jax" and p.name.startswith("ours")]
    if args.suite != "torch" and not args.providers and not ours_in_jax:
        chosen.insert(0, all_providers()["ours_xla"])  # no kernels here: what users get instead
    return chosen, unavailable


def _too_large(problem: Problem) -> bool:
    """Inputs, outputs, a second set of both, and where the CPU is measured the float64 reference too."""
    free = environment.memory_bytes()
    return free is not None and problem.elements * (64 if why_no_cupti() is None else 128) > free


def plan(args: argparse.Namespace, providers: Sequence[Provider]) -> tuple[list[Job], list[str]]:
    """What to measure, in order of importance, and what does not fit into memory."""
    jobs: list[Job] = []
    dropped: list[str] = []
    for op in (all_ops()[name] for name in args.ops):
        problems = [
            op.problem(shape, dtype, variant, args.seed)
            for variant in args.variants
            if variant in op.variants
            for dtype in args.dtypes
            for shape in args.shapes
        ]
        for problem in problems:
            if _too_large(problem):
                dropped.append(f"{problem.label}: not enough memory")
                continue
            sets = sets_to_rotate(problem.output_bytes + (2 * problem.itemsize + 1) * problem.elements)
            for provider in providers:
                if provider.ops is not None and op.name not in provider.ops:
                    continue
                if "warm" in args.cache:
                    jobs.append(Job(problem, provider))
                if "rotated" in args.cache and sets > 1 and not provider.light:
                    jobs.append(Job(problem, provider, sets))
    # Stable: within a priority, problem by problem, so that data are made once.
    return sorted(jobs, key=lambda job: job.rank), dropped


def warm_up(providers: Sequence[Provider], settings: Settings) -> None:
    """Starts compilers, plugins and the profiler on a shape of its own, so that compile_s is not their start-up."""
    op = all_ops()["gae"]
    for provider in providers:
        if provider.ops is None or op.name in provider.ops:
            measure_row(op.problem(shapes.Shape("time_major", 4, 32)), provider, settings)


def round_row(row: Row) -> Row:
    """Four significant digits: more is noise, and makes for noisy differences between committed files."""
    rounded: dict[str, Any] = {k: float(f"{x:.4g}") if isinstance(x, float) else x for k, x in row.items()}
    return Row(**rounded)


def _line(row: Row) -> str:
    def show(name: str, unit: str) -> str:
        value = row.get(name)
        return f"{name.removesuffix('_us').removesuffix('_s')} {value:g} {unit}".rstrip() if value is not None else ""

    figures = [
        show("device_us", "us"),
        show("graph_us", "us"),
        show("marginal_us", "us"),
        show("call_us", "us"),
        show("compile_s", "s"),
        show("launches", ""),
        show("fraction_of_copy", ""),
        show("max_rel_err", ""),
    ]
    return row["error"] or "  ".join(x for x in figures if x)


def main(argv: Sequence[str] | None = None, log: Callable[[str], None] = print) -> Path:
    # torch allocates on the same GPU; read when JAX first touches it.
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    began = time.monotonic()
    args = parse(argv)
    if "float64" in args.dtypes:
        import jax

        jax.config.update("jax_enable_x64", True)
    effort = QUICK if args.quick else Effort()
    settings = Settings(effort, args.chains, Floors(effort))
    providers, unavailable = choose_providers(args)
    jobs, dropped = plan(args, providers)
    header = environment.describe()
    device = re.sub(r"[^a-z0-9]+", "-", header["device"].lower()).strip("-")
    folder = args.out or RESULTS / device
    folder.mkdir(parents=True, exist_ok=True)
    stamp = re.sub(r"[^0-9]", "", header["date"])[:14]
    path = folder / f"{args.name or '-'.join([args.suite, *args.ops, stamp])}.json"
    header |= {
        "copy_gb_s": float(f"{settings.floors.bandwidth(BANDWIDTH_BYTES if why_no_cupti() is None else 1 << 24):.4g}"),
        "empty_kernel_us": settings.floors.empty_kernel_us(),
        "l2_bytes": l2_bytes(),
        "quick": args.quick,
        "seed": args.seed,
        "unavailable": unavailable,
        "dropped": dropped,
    }
    results = Results(header=header, rows=[])
    save(path, results)
    for name, why in unavailable.items():
        log(f"not measured: {name}: {why}")
    if not args.quick:
        warm_up(providers, Settings(QUICK, (1, 2), settings.floors))
    for job in jobs:
        if time.monotonic() - began > args.max_seconds:
            dropped.append(f"{job.label}: the budget of {args.max_seconds:g} s was spent")
            continue
        row = round_row(measure_row(job.problem, job.provider, settings, job.sets))
        results["rows"].append(row)
        save(path, results)
        log(f"{job.label}: {_line(row)}")
    header["seconds"] = round(time.monotonic() - began, 1)
    save(path, results)
    for text in dropped:
        log(f"dropped: {text}")
    log(f"{len(results['rows'])} rows in {header['seconds']} s: {path}")
    return path


if __name__ == "__main__":
    main()

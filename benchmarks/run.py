"""Measures and writes one JSON file: `python -m benchmarks.run --help`."""

from __future__ import annotations

import argparse
import dataclasses
import importlib.util
import os
import re
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from . import environment, shapes
from .bench import Job, Settings, measure_jobs, measure_row
from .check import TARGETS, Target, load_targets
from .floors import Floors, l2_bytes, sets_to_rotate
from .measure import LIGHT, QUICK, Effort, why_no_cupti
from .ops import all_ops
from .problem import ACTIONS, VARIANTS, Problem
from .provider import Provider
from .providers import all_providers
from .rows import KEY, Results, Row, save

RESULTS = Path(__file__).parent / "results"
BANDWIDTH_BYTES = 1 << 31  # far beyond any L2
MOST_WORKERS = 16


def _comma_list(text: str) -> list[str]:
    return [part for part in text.split(",") if part]


def _ops(text: str) -> list[str]:
    return list(all_ops()) if text == "all" else _comma_list(text)


def parse(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.run", description=__doc__)
    parser.add_argument("--suite", choices=("jax", "torch", "all"), default="all", help="whose providers to measure")
    parser.add_argument("--ops", type=_ops, default=["gae"], help=f"all, or a comma list of {', '.join(all_ops())}")
    parser.add_argument(
        "--shapes",
        type=shapes.parse,
        default=shapes.TARGETS,
        help=f"comma list of {', '.join(shapes.SETS)}, TxN (time-major), b:NxT (batch-major)",
    )
    parser.add_argument(
        "--targets",
        nargs="?",
        type=Path,
        const=TARGETS,
        help="exactly what targets.json (or another file) looks at, beside associative_scan; not ops, shapes and so on",
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
    parser.add_argument("--actions", type=int, default=ACTIONS, help=f"where action values are folded in ({ACTIONS})")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--light",
        action="store_true",
        help="device and call times only: no chains, no rotated buffers, fewer repetitions",
    )
    parser.add_argument(
        "--workers",
        type=int,
        help="rows compiled and checked at once, before they are timed one by one; compile_s is left out when more than one "
        f"(1, or with --light or --targets up to {MOST_WORKERS})",
    )
    parser.add_argument("--quick", action="store_true", help="few repetitions: to see that everything runs")
    parser.add_argument("--max-seconds", type=float, default=270, help="rows not begun by then are dropped, and listed")
    parser.add_argument("--out", type=Path, help="folder (benchmarks/results/<device>)")
    parser.add_argument("--name", help="of the file, without .json (ops, shapes and date)")
    args = parser.parse_args(argv)
    chains = args.chains or ((1, 3) if args.quick else (4, 64))
    if len(chains) != 2 or not 0 < chains[0] < chains[1]:
        parser.error("--chains expects two increasing numbers")
    args.chains = chains
    many = min(os.cpu_count() or 1, MOST_WORKERS)
    args.workers = args.workers or (many if args.light or args.targets else 1)
    if args.workers < 1 or args.actions < 1:
        parser.error("--workers and --actions expect a positive number")
    if args.light:
        args.cache = ["warm"]
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


def _why_not(provider: Provider) -> str | None:
    if importlib.util.find_spec(provider.framework) is None:
        return f"{provider.framework} is not installed"
    return provider.why_not()


def choose_providers(args: argparse.Namespace) -> tuple[list[Provider], dict[str, str]]:
    """The providers to measure, and why the others that were meant cannot run here."""
    wanted = [
        p
        for p in all_providers().values()
        if (p.name in args.providers if args.providers else p.default) and args.suite in ("all", p.framework)
    ]
    unavailable: dict[str, str] = {}
    for provider in wanted:
        why = _why_not(provider)
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
    return free is not None and _bytes(problem) * (4 if why_no_cupti() is None else 8) > free


def _bytes(problem: Problem) -> int:
    return problem.input_bytes + problem.output_bytes


def plan(args: argparse.Namespace, providers: Sequence[Provider]) -> tuple[list[Job], list[str], dict[str, str]]:
    """What to measure, in order of importance; what does not fit into memory; and what a provider cannot compute.

    The order of shapes counts for more than that of ops: a budget that is spent early leaves out shapes, not ops.
    """
    jobs: list[Job] = []
    dropped: list[str] = []
    unavailable: dict[str, str] = {}
    problems = [
        op.problem(shape, dtype, variant, args.seed, args.actions)
        for variant in args.variants
        for dtype in args.dtypes
        for shape in args.shapes
        for op in (all_ops()[name] for name in args.ops)
        if variant in op.variants
    ]
    for problem in dict.fromkeys(problems):  # packed problems have no layouts
        if _too_large(problem):
            dropped.append(f"{problem.label}: not enough memory")
            continue
        hardly_read = problem.elements * problem.itemsize if "final_values" in problem.op.operands(problem) else 0
        sets = sets_to_rotate(_bytes(problem) - hardly_read)
        for provider in providers:
            if provider.ops is not None and problem.op.name not in provider.ops:
                continue
            why = provider.why_not_problem(problem)
            if why:
                unavailable[f"{problem.op.name} {provider.name}"] = why
                continue
            if "warm" in args.cache:
                jobs.append(Job(problem, provider))
            if "rotated" in args.cache and sets > 1 and not provider.light:
                jobs.append(Job(problem, provider, sets))
    # Stable: within a priority, problem by problem, so that data are made once.
    return sorted(jobs, key=lambda job: job.rank), dropped, unavailable


def plan_targets(targets: Iterable[Target], seed: int) -> tuple[list[Job], list[str], dict[str, str]]:
    """As `plan`: the rows that targets look at, and `associative_scan` on the same problems."""
    wanted: dict[tuple[Problem, str], bool] = {}
    for target in targets:
        rows: list[dict[str, Any]] = [dict(zip(KEY, key, strict=True)) for key in target.rows()]
        rows.append(rows[0] | {"provider": "associative_scan"})
        for row in rows:
            shape = shapes.Shape(row["layout"], row["T"], row["N"])
            outputs = tuple(row["outputs"].split(","))
            op = all_ops()[row["op"]]
            problem = Problem(op, shape, row["dtype"], outputs, row["truncation"], row["actions"], seed=seed)
            problem = dataclasses.replace(problem, lambda_=op.lambda_)
            chained = target.metric == "marginal_us"
            wanted[problem, row["provider"]] = wanted.get((problem, row["provider"]), False) or chained
    jobs: list[Job] = []
    dropped: list[str] = []
    unavailable: dict[str, str] = {}
    for (problem, name), chained in wanted.items():
        provider = all_providers()[name]
        missing = _why_not(provider)
        why = missing or provider.why_not_problem(problem)
        if why:
            unavailable[name if missing else f"{problem.op.name} {name}"] = why
        elif _too_large(problem):
            dropped.append(f"{problem.label} {name}: not enough memory")
        else:
            jobs.append(Job(problem, provider, chained=chained))
    # Data are made once for a problem; baselines are what a spent budget leaves out.
    return sorted(jobs, key=lambda job: job.rank), dropped, unavailable


def batches(jobs: Sequence[Job], workers: int) -> Iterator[list[Job]]:
    """Runs of at most `workers` jobs that fit into an eighth of the memory together."""
    most = (environment.memory_bytes() or 0) / 8
    batch: list[Job] = []
    for job in jobs:
        if len(batch) == workers or (batch and sum(_bytes(j.problem) for j in (*batch, job)) > most):
            yield batch
            batch = []
        batch.append(job)
    if batch:
        yield batch


def warm_up(providers: Sequence[Provider], settings: Settings) -> None:
    """Starts compilers, plugins and the profiler on a shape of its own, so that compile_s is not their start-up."""
    problem = all_ops()["gae"].problem(shapes.Shape("time_major", 4, 32))
    for provider in providers:
        if provider.ops is None and provider.why_not_problem(problem) is None:
            measure_row(problem, provider, settings)


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
    if "float64" in args.dtypes and not args.targets:
        import jax

        jax.config.update("jax_enable_x64", True)
    effort = QUICK if args.quick else LIGHT if args.light else Effort()
    settings = Settings(effort, args.chains, Floors(effort, args.light), args.light)
    if args.targets:
        jobs, dropped, unavailable = plan_targets(load_targets(args.targets), args.seed)
        providers = list(dict.fromkeys(job.provider for job in jobs))
    else:
        providers, unavailable = choose_providers(args)
        jobs, dropped, impossible = plan(args, providers)
        unavailable |= impossible
    header = environment.describe()
    device = re.sub(r"[^a-z0-9]+", "-", header["device"].lower()).strip("-")
    folder = args.out or RESULTS / device
    folder.mkdir(parents=True, exist_ok=True)
    stamp = re.sub(r"[^0-9]", "", header["date"])[:14]
    ops = ["targets"] if args.targets else ["ops"] if len(args.ops) > 3 else args.ops
    path = folder / f"{args.name or '-'.join([args.suite, *ops, stamp])}.json"
    header |= {
        "copy_gb_s": float(f"{settings.floors.bandwidth(BANDWIDTH_BYTES if why_no_cupti() is None else 1 << 24):.4g}"),
        "empty_kernel_us": settings.floors.empty_kernel_us(),
        "l2_bytes": l2_bytes(),
        "quick": args.quick,
        "light": args.light,
        "targets": bool(args.targets),
        "workers": args.workers,
        "seed": args.seed,
        "unavailable": unavailable,
        "dropped": dropped,
    }
    results = Results(header=header, rows=[])
    save(path, results)
    for name, why in unavailable.items():
        log(f"not measured: {name}: {why}")
    if not args.quick or args.workers > 1:  # threads must find everything imported
        warm_up(providers, Settings(QUICK, (1, 2), settings.floors, args.light))
    for batch in batches(jobs, args.workers):
        if time.monotonic() - began > args.max_seconds:
            dropped += [f"{job.label}: the budget of {args.max_seconds:g} s was spent" for job in batch]
            continue
        for job, row in zip(batch, map(round_row, measure_jobs(batch, settings)), strict=True):
            results["rows"].append(row)
            log(f"{job.label}: {_line(row)}")
        save(path, results)
    header["seconds"] = round(time.monotonic() - began, 1)
    save(path, results)
    for text in dropped:
        log(f"dropped: {text}")
    log(f"{len(results['rows'])} rows in {header['seconds']} s: {path}")
    return path


if __name__ == "__main__":
    main()

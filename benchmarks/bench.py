"""One row: the correctness gate, then the clocks. Rows can pass the gate together; the clocks need the machine alone."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from .floors import Floors
from .frameworks import FRAMEWORKS
from .measure import Effort, call_times, device_time, graph_time, marginal_time, rotating, why_no_cupti
from .problem import TOLERANCE, Inputs, Problem
from .provider import Provider
from .rows import Row, empty_row

LONGEST_CHAIN_S = 1.0
LARGEST_CHAIN_BYTES = 8 << 30
# Providers that compile slowly are chained only where launches matter, and less.
SLOW_CHAIN_ELEMENTS = 1 << 20
SLOW_CHAIN = 16


@dataclass(frozen=True)
class Settings:
    effort: Effort
    chains: tuple[int, int]
    floors: Floors
    light: bool = False  # device and call times only


@dataclass(frozen=True)
class Case:
    """A problem with its data and the right answer, both on the host."""

    problem: Problem
    inputs: dict[str, np.ndarray]
    expected: list[np.ndarray]


@functools.lru_cache(maxsize=32)
def make_case(problem: Problem) -> Case:
    inputs = problem.op.make_inputs(problem)
    return Case(problem, inputs, problem.op.reference(problem, inputs))


def relative_error(got: Sequence[np.ndarray], expected: Sequence[np.ndarray]) -> float:
    """max |difference| / max |reference|, the worst output; infinite where a number is missing or not finite."""
    if len(got) != len(expected):
        return float("inf")
    worst = 0.0
    for x, y in zip(got, expected, strict=True):
        if x.shape != y.shape or not np.isfinite(x).all():
            return float("inf")
        worst = max(worst, float(np.abs(x - y).max() / np.abs(y).max()))
    return worst


def why_no_chain(problem: Problem, provider: Provider, chain: int, device_us: float) -> str | None:
    if provider.framework != "jax" or provider.light:
        return "not chained for this provider"
    if provider.slow_compile and problem.elements > SLOW_CHAIN_ELEMENTS:
        return "chains compile slowly"
    if chain * device_us > LONGEST_CHAIN_S * 1e6:
        return "a chain would take too long"
    if chain * problem.output_bytes > LARGEST_CHAIN_BYTES:
        return "a chain would need too much memory"
    return None


def _chain(problem: Problem, provider: Provider, length: int) -> Callable[[Inputs], Sequence[Any]]:
    one = provider.make(problem.op.chained(problem))

    def many(inputs: Inputs) -> Sequence[Any]:
        outputs: Sequence[Any] = ()
        for _ in range(length):
            outputs = one(inputs)
            inputs = problem.op.feed(inputs, outputs)
        return outputs

    return many


def _describe(problem: Problem, provider: Provider, rotated: bool) -> Row:
    row = empty_row()
    row.update(
        {
            "op": problem.op.name,
            "layout": problem.shape.layout,
            "T": problem.shape.T,
            "N": problem.shape.N,
            "dtype": problem.dtype,
            "provider": provider.name,
            "route": provider.route,
            "outputs": ",".join(problem.outputs),
            "truncation": problem.truncation,
            "actions": problem.actions,
            "warm": "rotated" if rotated else "warm",
        }
    )
    return row


def _short(error: BaseException) -> str:
    text = str(error).strip().splitlines()
    return f"{type(error).__name__}: {text[0] if text else ''}"[:400]


@dataclass(frozen=True)
class Ready:
    """A row whose answer is right: compiled, its data on the device."""

    case: Case
    provider: Provider
    names: list[str]
    host: list[np.ndarray]
    arrays: list[Any]
    call: Callable[..., Any]


def prepare(problem: Problem, provider: Provider, sets: int = 1, alone: bool = True) -> tuple[Row, Ready | None]:
    """Compiles, and compares with the reference. What goes wrong is the row's `error`, and then nothing is ready."""
    row = _describe(problem, provider, sets > 1)
    try:
        return row, _prepare(row, make_case(problem), provider, alone)
    except Exception as error:
        row["error"] = _short(error)
        return row, None


def _prepare(row: Row, case: Case, provider: Provider, alone: bool) -> Ready | None:
    problem, framework = case.problem, FRAMEWORKS[provider.framework]
    held = provider.hold(problem, case.inputs) if provider.hold else case.inputs
    names, host = list(held), list(held.values())
    arrays = framework.put(host)
    call, seconds = framework.compile(names, provider.make(problem), arrays)
    row["compile_s"] = seconds if alone else None

    error = relative_error([framework.to_host(x) for x in call(*arrays)], case.expected)
    row["max_rel_err"] = error if np.isfinite(error) else None  # JSON has no infinity
    if not error <= TOLERANCE[problem.dtype]:
        row["error"] = f"refused: relative error {error:.2g} > {TOLERANCE[problem.dtype]:.0e}"
        return None
    return Ready(case, provider, names, host, arrays, call)


def clock(row: Row, ready: Ready | None, settings: Settings, sets: int = 1, chained: bool = True) -> Row:
    """Fills in the times of what is ready."""
    try:
        if ready is not None:
            _clock(row, ready, settings, sets, chained)
    except Exception as error:
        row["error"] = _short(error)
    return row


def _clock(row: Row, ready: Ready, settings: Settings, sets: int, chained: bool) -> None:
    case, provider, call, arrays = ready.case, ready.provider, ready.call, ready.arrays
    problem, effort, framework = case.problem, settings.effort, FRAMEWORKS[provider.framework]
    row["bytes"] = problem.op.count_bytes(problem, case.inputs)
    one = rotating(call, [arrays, *(framework.put(ready.host) for _ in range(sets - 1))])
    timed = device_time(one, framework.block, effort)
    row.update(
        {
            "device_us": timed.us,
            "device_spread": timed.spread,
            "device_method": timed.method,
            "launches": timed.launches,
        }
    )
    if timed.method == "wall":
        row["note"] = f"device_us is the wall time of a blocking call: {why_no_cupti() or 'CUPTI saw no kernel'}"
    row["copy_us"] = settings.floors.copy_us(row["bytes"], sets)
    row["fraction_of_copy"] = row["copy_us"] / timed.us
    if sets > 1:
        return

    row["call_us"], row["enqueue_us"] = call_times(one, framework.block, effort)
    if settings.light or provider.light:
        return
    if provider.framework == "torch" and why_no_cupti() is None:
        row["graph_us"] = graph_time(lambda: call(*arrays))
    if not chained:
        return
    short, long = settings.chains
    if provider.slow_compile:
        long = max(min(long, SLOW_CHAIN), short + 1)
    if why_no_chain(problem, provider, long, timed.us) is None:
        calls = [framework.compile(ready.names, _chain(problem, provider, n), arrays)[0] for n in (short, long)]
        row["marginal_us"], row["marginal_spread_us"] = marginal_time(
            lambda: calls[0](*arrays), lambda: calls[1](*arrays), long - short, framework.block, effort.chain_reps
        )
        row["chains"] = [short, long]


def measure_row(problem: Problem, provider: Provider, settings: Settings, sets: int = 1) -> Row:
    """Measures one provider, on `sets` sets of buffers in turn."""
    return clock(*prepare(problem, provider, sets), settings, sets)


class Job(NamedTuple):
    problem: Problem
    provider: Provider
    sets: int = 1  # of buffers, used in turn
    chained: bool = True  # whether marginal_us is wanted, which takes long

    @property
    def rank(self) -> int:
        """Lower is measured earlier; rotated buffers of one provider come after the baselines that matter most."""
        return self.provider.priority + (2 if self.sets > 1 else 0)

    @property
    def label(self) -> str:
        return f"{self.problem.label} {self.provider.name} {'rotated' if self.sets > 1 else 'warm'}"


def measure_jobs(jobs: Sequence[Job], settings: Settings) -> Iterator[Row]:
    """A row of each job. All are prepared at once, each by a thread of its own, before the first is timed."""
    if len(jobs) == 1:
        job = jobs[0]
        yield clock(*prepare(job.problem, job.provider, job.sets), settings, job.sets, job.chained)
        return
    with ThreadPoolExecutor(len(jobs)) as pool:
        # The cases first, once each; what goes wrong there goes wrong again in `prepare`, which says so.
        wait([pool.submit(make_case, problem) for problem in dict.fromkeys(job.problem for job in jobs)])
        prepared = list(pool.map(lambda job: prepare(job.problem, job.provider, job.sets, alone=False), jobs))
    for job in jobs:
        yield clock(*prepared.pop(0), settings, job.sets, job.chained)

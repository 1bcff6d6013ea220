"""One row: the correctness gate, then the clocks."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

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


@dataclass(frozen=True)
class Case:
    """A problem with its data and the right answer, both on the host."""

    problem: Problem
    inputs: dict[str, np.ndarray]
    expected: list[np.ndarray]


@functools.lru_cache(maxsize=32)
def make_case(problem: Problem) -> Case:
    inputs = problem.op.make_inputs(problem, np.random.default_rng([problem.seed, problem.shape.T, problem.shape.N]))
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
            "warm": "rotated" if rotated else "warm",
        }
    )
    return row


def _short(error: BaseException) -> str:
    text = str(error).strip().splitlines()
    return f"{type(error).__name__}: {text[0] if text else ''}"[:400]


def measure_row(problem: Problem, provider: Provider, settings: Settings, sets: int = 1) -> Row:
    """Measures one provider, on `sets` sets of buffers in turn. What goes wrong is the row's `error`: a run goes on."""
    row = _describe(problem, provider, sets > 1)
    try:
        _fill(row, make_case(problem), provider, settings, sets)
    except Exception as error:
        row["error"] = _short(error)
    return row


def _fill(row: Row, case: Case, provider: Provider, settings: Settings, sets: int) -> None:
    problem, effort, framework = case.problem, settings.effort, FRAMEWORKS[provider.framework]
    names, host = list(case.inputs), list(case.inputs.values())
    arrays = framework.put(host)
    call, row["compile_s"] = framework.compile(names, provider.make(problem), arrays)

    error = relative_error([framework.to_host(x) for x in call(*arrays)], case.expected)
    row["max_rel_err"] = error if np.isfinite(error) else None  # JSON has no infinity
    if not error <= TOLERANCE[problem.dtype]:
        row["error"] = f"refused: relative error {error:.2g} > {TOLERANCE[problem.dtype]:.0e}"
        return

    row["bytes"] = problem.op.count_bytes(problem, case.inputs)
    one = rotating(call, [arrays, *(framework.put(host) for _ in range(sets - 1))])
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
    if provider.framework == "torch" and not provider.light and why_no_cupti() is None:
        row["graph_us"] = graph_time(lambda: call(*arrays))
    short, long = settings.chains
    if provider.slow_compile:
        long = max(min(long, SLOW_CHAIN), short + 1)
    if why_no_chain(problem, provider, long, timed.us) is None:
        chained = [framework.compile(names, _chain(problem, provider, n), arrays)[0] for n in (short, long)]
        row["marginal_us"], row["marginal_spread_us"] = marginal_time(
            lambda: chained[0](*arrays), lambda: chained[1](*arrays), long - short, framework.block, effort.chain_reps
        )
        row["chains"] = [short, long]

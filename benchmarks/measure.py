"""Clocks: device time, host time, graph replay, and what one more call costs inside a jit. README.md says why each."""

from __future__ import annotations

import itertools
import statistics
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

Call = Callable[[], Any]

# Beyond this a wall clock is exact enough, and a profile of millions of launches is not worth its cost.
LONG_CALL_S = 0.25


@dataclass(frozen=True)
class Effort:
    """How much time to give one figure. Counts adapt between the bounds so that a slow call costs about `seconds`."""

    seconds: float = 0.15
    fewest: int = 6
    most: int = 40
    chain_reps: int = 200  # a chain differs from a shorter one by little more than the noise of one blocking call
    warm_up: int = 5

    def count(self, one_call_s: float) -> int:
        """An even number, so that it splits into two halves."""
        if one_call_s > LONG_CALL_S:
            return 2
        wanted = self.seconds / max(one_call_s, 1e-7)
        return 2 * int(min(max(wanted, self.fewest), self.most) / 2)


QUICK = Effort(seconds=0.01, fewest=4, most=6, chain_reps=5, warm_up=1)
LIGHT = Effort(seconds=0.03, fewest=6, most=16, warm_up=2)


@dataclass(frozen=True)
class DeviceTime:
    """Median microseconds of one call; `spread` is the relative difference of the medians of two halves."""

    us: float
    spread: float
    launches: float | None
    method: str


def relative_spread(halves: Sequence[float]) -> float:
    return (max(halves) - min(halves)) / min(halves) if min(halves) > 0 else 0.0


def _summary(times: Sequence[float], launches: float | None, method: str) -> DeviceTime:
    half = len(times) // 2
    spread = relative_spread([statistics.median(times[:half]), statistics.median(times[half:])]) if half else 0.0
    return DeviceTime(statistics.median(times), spread, launches, method)


def seconds_of(call: Call, block: Callable[[Any], None]) -> float:
    start = time.perf_counter()
    block(call())
    return time.perf_counter() - start


def why_no_cupti() -> str | None:
    """Why kernels cannot be timed on the device here, or None where they can."""
    try:
        import torch
    except ImportError:
        return "torch is not installed"
    return None if torch.cuda.is_available() else "torch sees no GPU"


def device_time(call: Call, block: Callable[[Any], None], effort: Effort) -> DeviceTime:
    """Kernel time from CUPTI where there is one, else the wall time of a blocking call."""
    one = seconds_of(call, block)
    if one < LONG_CALL_S:
        one = min(seconds_of(call, block) for _ in range(effort.warm_up))
    calls = effort.count(one)
    if why_no_cupti() is None and one < LONG_CALL_S:
        kernels = kernel_times(call, block, calls)
        if kernels:
            return by_call(kernels, calls)
    return _summary([seconds_of(call, block) * 1e6 for _ in range(calls)], None, "wall")


def kernel_times(call: Call, block: Callable[[Any], None], calls: int) -> list[float]:
    """Microseconds of each kernel, copy and fill of some calls in order; torch's profiler sees JAX's kernels too."""
    import torch
    from torch.profiler import ProfilerActivity, profile

    result = None
    torch.cuda.synchronize()
    with profile(activities=[ProfilerActivity.CUDA, ProfilerActivity.CPU]) as profiler:
        for _ in range(calls):
            result = call()
        block(result)
        torch.cuda.synchronize()
    # An annotation spans kernels that are there themselves.
    events = [
        e
        for e in profiler.events() or []
        if str(e.device_type).endswith("CUDA") and not getattr(e, "is_user_annotation", False)
    ]
    events.sort(key=lambda e: e.time_range.start)
    return [e.time_range.elapsed_us() for e in events]


def by_call(kernels: Sequence[float], calls: int) -> DeviceTime:
    """Sums kernels, given in order, into the calls that launched them."""
    each, rest = divmod(len(kernels), calls)
    if rest or not each:  # some calls launched more than others: only the mean means something
        return DeviceTime(sum(kernels) / calls, 0.0, len(kernels) / calls, "cupti, mean")
    times = [sum(kernels[k : k + each]) for k in range(0, len(kernels), each)]
    return _summary(times, float(each), "cupti")


def rotating(call: Callable[..., Any], sets: Sequence[Sequence[Any]]) -> Call:
    """Calls on each set of arrays in turn. Results are held for a turn, so that they lie in other memory too."""
    turn = itertools.cycle(sets)
    held: deque[Any] = deque(maxlen=len(sets))

    def one() -> Any:
        held.append(call(*next(turn)))
        return held[-1]

    return one


def call_times(call: Call, block: Callable[[Any], None], effort: Effort) -> tuple[float, float]:
    """Microseconds of one blocking call (median), and of enqueueing one of many without waiting."""
    count = effort.count(seconds_of(call, block))
    blocking = statistics.median(seconds_of(call, block) for _ in range(count))
    result = None
    start = time.perf_counter()
    for _ in range(count):
        result = call()
    enqueued = time.perf_counter() - start
    block(result)
    return blocking * 1e6, enqueued / count * 1e6


def graph_time(call: Call, launches: int = 20, replays: int = 15) -> float:
    """Microseconds per call of a CUDA graph of torch calls: device time with launch gaps as small as they get."""
    import torch

    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            call()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(launches):
            call()
    times = []
    for _ in range(replays + 2):
        before, after = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        before.record()
        graph.replay()
        after.record()
        after.synchronize()
        times.append(before.elapsed_time(after) * 1e3 / launches)
    return statistics.median(times[2:])


def marginal_time(short: Call, long: Call, more: int, block: Callable[[Any], None], reps: int) -> tuple[float, float]:
    """Microseconds that each of `more` further calls adds to one jitted computation.

    Taken twice: their mean, and half their distance. Each chain runs by itself, so that its results lie where they lay
    before, as in a training loop: XLA writes a captured graph anew when they do not.
    """

    def median(call: Call) -> float:
        for _ in range(5):
            block(call())
        return statistics.median(seconds_of(call, block) for _ in range(reps)) * 1e6

    first, second = ((median(long) - median(short)) / more for _ in range(2))
    return (first + second) / 2, abs(first - second) / 2

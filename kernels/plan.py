"""From a problem to launches: which schedule, which sizes. Pure Python; no framework, no Triton, no clock.

`Problem` is the canonical form of one call: numbers only. `plan(problem, device)` is deterministic and never measures.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable

ABSENT, STEPS, COLUMNS, ONE, VALUE, EXPECT, MAXIMUM = range(
    7
)  # kinds of operand; `operands.py` gives them their meaning
WHOLE, TOTALS, APPLY = range(3)

# A launch's inputs and outputs are buffers by number: 0, 1, ... are the caller's, -1, -2, ... the plan's own, scratch memory
# of `Plan.scratch[0]`, `[1]`, ... elements of the accumulation type.


@dataclasses.dataclass(frozen=True)
class Array:
    """An operand or result as memory: strides in elements; `levels` are the batch axes, innermost first."""

    buffer: int
    time: int
    levels: tuple[int, ...]
    offset: int = 0
    flag: bool = False
    only_where: int = -1
    by_value: bool = False

    @property
    def kind(self) -> int:
        if self.by_value:
            return VALUE
        if self.time:
            return STEPS
        return COLUMNS if any(self.levels) or self.offset else ONE


@dataclasses.dataclass(frozen=True)
class Fold:
    """An operand made on chip from arrays with an action axis: the sum of a product of two, or the maximum of one."""

    arrays: tuple[Array, ...]
    by: tuple[int, ...]  # stride of each along the action axis
    count: int

    @property
    def kind(self) -> int:
        return EXPECT if len(self.arrays) == 2 else MAXIMUM


@dataclasses.dataclass(frozen=True)
class Problem:
    """One call in canonical form. `estimator` names the on-chip functions; nothing here depends on which it is."""

    estimator: str
    steps: int
    sizes: tuple[int, ...]  # batch axes, innermost first
    operands: tuple[Array | Fold | None, ...]
    near: tuple[tuple[int, Array | None], ...]  # (operand, its value beside the first step of the walk)
    initial: Array | None
    mask: Array | None
    results: tuple[tuple[Array, int], ...]  # (where to write, which result of `finish`)
    standardize: int | None  # which of `results` to give mean 0 and deviation 1
    backward: bool
    first: bool  # whether the estimator wants to know which step comes first
    lookback: bool  # whether `finish` wants the carry
    window: int  # how many maps to compose for each step; 0: all
    accumulate: str  # "float32" or "float64"; an integer type where sums are to be exact
    input_dtypes: tuple[str, ...]  # by buffer
    output_dtypes: tuple[str, ...]

    @property
    def columns(self) -> int:
        return math.prod(self.sizes)


@dataclasses.dataclass(frozen=True)
class Device:
    """What the rules need to know of a device; the defaults are an H100's or H200's."""

    backend: str = "cuda"
    arch: int | str = 90
    multiprocessors: int = 132
    warp: int = 32


@dataclasses.dataclass(frozen=True)
class Launch:
    """One kernel launch. `inputs` and `outputs` are buffer numbers."""

    schedule: str
    estimator: str
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    ints: tuple[int, ...]
    constants: tuple[tuple[str, object], ...]
    grid: tuple[int, int, int]
    num_warps: int
    num_stages: int


@dataclasses.dataclass(frozen=True)
class Plan:
    launches: tuple[Launch, ...]
    scratch: tuple[int, ...] = ()


@dataclasses.dataclass(frozen=True)
class Choice:
    """A schedule with its sizes; `parts` > 1 splits time over that many programs (two launches).

    `eager` reads what a flag guards without waiting for the flag: more bytes, one latency less.
    """

    schedule: str
    sizes: tuple[tuple[str, int], ...]
    num_warps: int
    parts: int = 1
    eager: bool = False

    def __getitem__(self, name: str) -> int:
        return dict(self.sizes)[name]


def _power_of_two(n: int) -> int:
    """The smallest power of two that is at least n."""
    return 1 << max(0, n - 1).bit_length()


def _columns(warps: int, C: int, L: int, BN: int, stages: int = 1, parts: int = 1) -> Choice:
    return Choice("columns", (("C", C), ("L", L), ("BN", BN), ("STAGES", stages)), warps, parts)


def _rows(warps: int, R: int, BT: int, stages: int = 1, parts: int = 1) -> Choice:
    return Choice("rows", (("R", R), ("BT", BT), ("STAGES", stages)), warps, parts)


def time_is_contiguous(problem: Problem) -> bool:
    """Whether the first result lies row after row: time with stride 1, columns further apart."""
    result = problem.results[0][0]
    return result.time == 1 and problem.steps > 1 and (problem.columns == 1 or result.levels[0] != 1)


def _parts(programs: int, tiles: int, wanted: int, narrow: int) -> int:
    """Over how many programs to split time: enough to make `wanted` programs, a tile for each at least."""
    return max(1, min(512 // narrow, _power_of_two(tiles + 1) // 2, _power_of_two(-(-wanted // programs))))


# Up to this *windows_rows* is taken where time is contiguous; beyond, to read arrays once for every place in a window costs more
# than to read them without neighbours. 0: right in the interpreter and compiled, but not yet run on a GPU; 32 is meant.
LONGEST_ROW_WINDOW = 0


def _windows(problem: Problem, narrow: int) -> Choice:
    T, n = problem.steps, problem.window
    if time_is_contiguous(problem) and n <= LONGEST_ROW_WINDOW:
        U = max(u for u in range(1, 8 // narrow + 1) if n % u == 0)
        BT = min(_power_of_two(T), 256 // narrow)
        R = max(1, 128 // narrow // BT)
        return Choice("windows_rows", (("U", U), ("R", R), ("BT", BT)), max(1, R * BT // 64))
    return Choice("windows", (("U", max(1, min(8, _power_of_two(n)) // narrow)), ("BN", 32)), 1)


def choose(problem: Problem, device: Device) -> Choice:
    """The table. Sizes were swept on an H200 (`benchmarks/results`); on other devices they follow the multiprocessor count.

    What limits each: one tile, the launch and one round trip to memory; slabs, bytes in flight per multiprocessor; the serial
    walk, bandwidth; rows, instructions of the scan; a split walk, reading its operands twice.
    """
    folds = any(isinstance(operand, Fold) for operand in problem.operands)
    narrow = 2 if folds or problem.accumulate.endswith("64") else 1  # half the elements, for twice the registers
    if problem.window:
        return _windows(problem, narrow)
    if time_is_contiguous(problem):
        return _choose_rows(problem, device, narrow)
    return _choose_columns(problem, device, narrow)


def _choose_rows(problem: Problem, device: Device, narrow: int) -> Choice:
    T, N, sms = problem.steps, problem.columns, device.multiprocessors
    if problem.mask is None and T > 4096 and 4 * sms > N:
        BT = 512 // narrow
        parts = _parts(N, -(-T // BT), 8 * sms, narrow)
        if parts > 1:
            return _rows(4, 1, BT, parts=parts)
    # Four elements a thread: vector loads, and a scan that is mostly shuffles.
    BT = min(_power_of_two(T), (4096 if 2 * sms > N else 1024) // narrow)
    R = max(1, 256 // narrow // BT)
    if problem.standardize is not None:  # fewer programs, for fewer summaries
        R = max(R, min(2048 // narrow // BT, _power_of_two(max(1, N // 4096))))
    return _rows(max(1, min(8, R * BT // 128)), R, BT)


def _choose_columns(problem: Problem, device: Device, narrow: int) -> Choice:
    T, N, sms = problem.steps, problem.columns, device.multiprocessors
    if 96 * sms <= N:  # enough columns to fill the machine with one walk for each
        if T <= 32 and problem.standardize is not None:  # fewer programs, for fewer summaries
            return _columns(1, 1, min(T, 8 // narrow), 128)
        if T <= 32:
            return _columns(1, 1, min(T, 16 // narrow), 32)
        guarded = any(isinstance(o, Array) and o.only_where >= 0 for o in problem.operands)
        if T <= 192 or (124 * sms <= N and guarded and narrow == 1):
            # A pipelined loop; to wait for flags before other loads would empty it.
            return dataclasses.replace(_columns(1, 1, 8 // narrow, 128 // narrow, stages=4), eager=True)
        return _columns(4, 4, 8, 32)
    if T <= 32:
        return _columns(4, 4, -(-T // 4), 32)
    programs = -(-N // 16)
    if problem.mask is None and T > 1024 and programs < sms:
        C, L = (8, 8) if T <= 65536 else (16, 8)
        parts = _parts(programs, T // (C * L), 2 * sms if T <= 65536 else 8 * sms, narrow)
        if parts > 1:
            return _columns(4, C, L // narrow, 16, parts=parts)
    if T <= 128 and narrow == 1:
        return _columns(8, 16, 8, 16)
    if T <= 256:
        return _columns(4, 8, 16 // narrow, 16)
    return _columns(8, 32, 8 // narrow, 16)


class _Strides:
    """The stride table: 0 and 1 stand for themselves, larger strides get codes from 2 on."""

    def __init__(self) -> None:
        self.table: list[int] = []

    def code(self, stride: int) -> int:
        if stride in (0, 1):
            return stride
        if stride not in self.table:
            self.table.append(stride)
        return self.table.index(stride) + 2


def _describe(
    array: Array | None,
    slots: dict[int, int],
    strides: _Strides,
    last: int,
    flag: int = 0,
    kind: int | None = None,
) -> tuple[int, ...]:
    """An operand's descriptor (see `kernels/__init__`). Flat: Triton 3.6 cannot index a nested constexpr tuple."""
    if array is None:
        return (-1, ABSENT, flag, 0, 0, -1)
    return (
        slots[array.buffer],
        array.kind if kind is None else kind,
        max(flag, int(array.flag)),
        strides.code(array.time),
        strides.code(array.offset),
        last,
        *(strides.code(s) for s in array.levels),
    )


def _used(arrays: Iterable[Array | Fold | None]) -> dict[int, int]:
    slots: dict[int, int] = {}
    for one in arrays:
        for array in one.arrays if isinstance(one, Fold) else (one,):
            if array is not None:
                slots.setdefault(array.buffer, len(slots))
    return slots


def build(problem: Problem, choice: Choice, device: Device, flags: tuple[bool, ...]) -> Plan:
    """The launches of a choice. `flags` says which operands are truth values, given or not."""
    T, N, parts = problem.steps, problem.columns, choice.parts
    edges = [edge for _, edge in problem.near]
    ins = _used([*problem.operands, *edges, problem.initial, problem.mask])
    scratch: list[int] = []

    def take(elements: int) -> int:
        scratch.append(elements)
        return -len(scratch)

    written = list(problem.results)
    raw = summaries = None
    if problem.standardize is not None:
        result, which = written[problem.standardize]
        raw = dataclasses.replace(result, buffer=take(T * N))
        written[problem.standardize] = raw, which
    outs = _used([array for array, _ in written])
    strides = _Strides()
    table: list[tuple[int, ...]] = []
    members: list[tuple[int, ...]] = []  # of folds: rows at the end of the table
    first_member = len(problem.operands) + len(edges) + 2
    guarded = set() if choice.eager else {o.only_where for o in problem.operands if isinstance(o, Array)}
    for k, (operand, flag) in enumerate(zip(problem.operands, flags, strict=True)):
        if isinstance(operand, Fold):
            table.append((first_member + len(members), operand.kind, 0, operand.count, 0, -1))
            for array, by in zip(operand.arrays, operand.by, strict=True):
                members.append(_describe(array, ins, strides, strides.code(by), kind=STEPS))
        else:
            only = -1 if operand is None or choice.eager else operand.only_where
            table.append(_describe(operand, ins, strides, only, flag and (2 if k in guarded else 1)))
    first_edge = len(table)
    table += [_describe(a, ins, strides, -1) for a in (*edges, problem.initial)]
    table.append(_describe(problem.mask, ins, strides, -1, 1))
    init, mask = len(table) - 2, len(table) - 1
    table += members
    results = tuple(_describe(array, outs, strides, which) for array, which in written)
    if problem.window:
        constants = (
            ("OPS", tuple(table)),
            ("NEAR", tuple(k for k, _ in problem.near)),
            ("EDGES", tuple(range(first_edge, first_edge + len(edges)))),
            ("OUTS", results),
            ("HAS", tuple(a is not None for a in problem.operands)),
            ("LEVELS", len(problem.sizes)),
            ("ACC", problem.accumulate),
            ("WINDOW", problem.window),
            *choice.sizes,
        )
        by_row = choice.schedule == "windows_rows"
        down, wide = (choice["BT"], choice["R"]) if by_row else (problem.window, choice["BN"])
        if not by_row:
            take(T * N)
        launch_all = Launch(
            choice.schedule,
            problem.estimator,
            tuple(ins),
            (*outs, *range(-1, -1 - len(scratch), -1)),
            (T, N, *problem.sizes[:-1], *strides.table),
            constants,
            (-(-N // wide) * -(-T // down), 1, 1),
            choice.num_warps,
            1,
        )
        return Plan((launch_all,), tuple(scratch))
    tile = choice["C"] * choice["L"] if choice.schedule == "columns" else choice["BT"]
    wide = choice["BN"] if choice.schedule == "columns" else choice["R"]
    common = (
        ("OPS", tuple(table)),
        ("NEAR", tuple(k for k, _ in problem.near)),
        ("EDGES", tuple(range(first_edge, first_edge + len(edges)))),
        ("INIT", init),
        ("MASK", mask),
        ("HAS", tuple(a is not None for a in problem.operands)),
        ("LEVELS", len(problem.sizes)),
        ("BACKWARD", problem.backward),
        ("FIRST", problem.first),
        ("LOOKBACK", problem.lookback),
        ("ACC", problem.accumulate),
        ("PARTS", parts),
        ("FOLD", max(parts, -(-device.warp * choice.num_warps // wide))),
        *choice.sizes,
        ("FULL", T % tile == 0 and N % wide == 0),
        ("GUARDED", any(k >= 0 for k in guarded)),
        ("SINGLE", parts == 1 and tile >= T),
    )

    across = -(-N // wide)
    if raw is not None:
        summaries = take(4 * across * parts)
    totals = take(2 * parts * N) if parts > 1 else None

    def launch(mode: int) -> Launch:
        inputs, outputs = list(ins), list(outs)
        if mode == APPLY:
            assert totals is not None
            inputs.append(totals)
        if mode != TOTALS and summaries is not None:
            outputs.append(summaries)
        if mode == TOTALS:
            assert totals is not None
            outputs = [totals]
        which = -1 if problem.standardize is None else written[problem.standardize][1]
        return Launch(
            choice.schedule,
            problem.estimator,
            tuple(inputs),
            tuple(outputs),
            (T, N, *problem.sizes[:-1], *strides.table),
            (*common, ("MODE", mode), ("OUTS", () if mode == TOTALS else results), ("SUMMARY", which)),
            (across, parts, 1),
            choice.num_warps,
            choice["STAGES"],
        )

    launches = [launch(WHOLE)] if parts == 1 else [launch(TOTALS), launch(APPLY)]
    if raw is not None:
        assert problem.standardize is not None
        assert summaries is not None
        launches.append(
            _standardizing(problem, device, raw, problem.results[problem.standardize][0], summaries, across * parts)
        )
    return Plan(tuple(launches), tuple(scratch))


def _standardizing(
    problem: Problem, device: Device, raw: Array, result: Array, summaries: int, programs: int
) -> Launch:
    """The second pass of a standardised result: one `raw` element in, one out, after `programs` summaries."""
    T, N, strides = problem.steps, problem.columns, _Strides()
    ins = {raw.buffer: 0, summaries: 1}
    if problem.mask is not None:
        ins[problem.mask.buffer] = 2
    table = (_describe(raw, ins, strides, -1), _describe(problem.mask, ins, strides, -1, 1))
    # Every program merges all summaries first: fewer and larger programs where these are many.
    many = programs > 1024
    block, warps, most = (4096, 16, device.multiprocessors) if many else (1024, 4, 8 * device.multiprocessors)
    if time_is_contiguous(problem):
        down = _power_of_two(min(T, block))
        wide = _power_of_two(min(N, block // down))
    else:
        wide = _power_of_two(min(N, block))
        down = _power_of_two(min(T, block // wide))
    tiles = -(-T // down) * -(-N // wide)
    constants = (
        ("OPS", table),
        ("MASK", 1),
        ("LEVELS", len(problem.sizes)),
        ("ACC", problem.accumulate),
        ("BT", down),
        ("BN", wide),
        ("LANES", min(block, max(device.warp * warps, _power_of_two(programs)))),
    )
    ints = (T, N, *problem.sizes[:-1], *strides.table, programs)
    grid = (min(tiles, most), 1, 1)
    return Launch("standardize", problem.estimator, tuple(ins), (result.buffer,), ints, constants, grid, warps, 1)


def plan(problem: Problem, device: Device, flags: tuple[bool, ...]) -> Plan:
    """The launches that carry out `problem` on `device`. Not for empty problems."""
    return build(problem, choose(problem, device), device, flags)

"""The one list of named shapes; tests and benchmarks both read it."""

from __future__ import annotations

from typing import Literal, NamedTuple

Layout = Literal["time_major", "batch_major", "packed"]


class Shape(NamedTuple):
    """T steps of N environments; arrays are `[T, N]` when time-major and `[N, T]` when batch-major.

    Packed are N sequences of T steps on average, one behind the other: `[N * T]`.
    """

    layout: Layout
    T: int
    N: int

    @property
    def axis(self) -> int:
        return 1 if self.layout == "batch_major" else 0

    @property
    def outer_first(self) -> tuple[int, int]:
        return (self.T, self.N) if self.layout == "time_major" else (self.N, self.T)

    @property
    def dims(self) -> tuple[int, ...]:
        return (self.N * self.T,) if self.layout == "packed" else self.outer_first

    @property
    def name(self) -> str:
        """As people write it, outer axis first: "128x4096"."""
        return "x".join(map(str, self.outer_first))


def _time_major(*sizes: tuple[int, int]) -> tuple[Shape, ...]:
    return tuple(Shape("time_major", T, N) for T, N in sizes)


def _batch_major(*sizes: tuple[int, int]) -> tuple[Shape, ...]:
    return tuple(Shape("batch_major", T, N) for N, T in sizes)


# Those with a target in targets.json come first; 16x32768 is there because XLA's own loop is strong on few steps.
TARGETS = _time_major((20, 256), (128, 4096), (128, 32768), (512, 16384), (1024, 4096), (4096, 64), (16, 32768))

# What public training code calls with: Brax, Playground, PureJaxRL, Stoix, Isaac in time order; PufferLib and RLHF by
# rows.
USERS = (
    *_time_major((20, 256), (30, 1024), (128, 4), (128, 64), (10, 2048), (128, 1024), (24, 32768)),
    *_batch_major((4096, 128), (64, 4096)),
)

SWEEP = (
    *_time_major(
        (20, 256),
        (30, 1024),
        (128, 4),
        (128, 64),
        (10, 2048),
        (128, 1024),
        (128, 4096),
        (16, 32768),
        (24, 32768),
        (128, 32768),
        (512, 16384),
        (1024, 4096),
        (4096, 64),
        (1048576, 32),
    ),
    *_batch_major((4096, 128), (32768, 16), (16384, 512), (4096, 1024), (64, 4096), (16, 524288)),
)

# Every estimator in both layouts: in the L2, of few steps, and beyond the L2.
ESTIMATORS = (
    *_time_major((128, 4096), (16, 32768), (512, 16384)),
    *_batch_major((4096, 128), (32768, 16), (16384, 512)),
)

# For curves: time against T at one N, and against N at one T.
LENGTHS = _time_major(*((T, 4096) for T in (16, 32, 64, 128, 256, 512, 1024, 2048, 4096)))
WIDTHS = _time_major(*((128, N) for N in (4, 64, 256, 1024, 4096, 16384, 32768, 65536)))

# Odd sizes, small enough for a CPU.
SMOKE = (*_time_major((7, 5)), *_batch_major((3, 17)))

SETS: dict[str, tuple[Shape, ...]] = {
    "targets": TARGETS,
    "users": USERS,
    "sweep": SWEEP,
    "estimators": ESTIMATORS,
    "lengths": LENGTHS,
    "widths": WIDTHS,
    "smoke": SMOKE,
}


def parse(text: str) -> tuple[Shape, ...]:
    """Shapes from a comma list of set names, TxN ("128x4096", time-major) and b:NxT ("b:4096x128", batch-major)."""
    found: dict[Shape, None] = {}
    for part in text.split(","):
        if part in SETS:
            found.update(dict.fromkeys(SETS[part]))
            continue
        outer, times, inner = part.removeprefix("b:").partition("x")
        if not (times and outer.isdigit() and inner.isdigit()):
            raise ValueError(f"unknown shape {part!r}: expected one of {', '.join(SETS)}, TxN or b:NxT")
        make = _batch_major if part.startswith("b:") else _time_major
        found.update(dict.fromkeys(make((int(outer), int(inner)))))
    return tuple(found)

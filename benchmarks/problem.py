"""What is measured: a problem (one op at one size) and what an op must say about itself."""

from __future__ import annotations

import abc
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from .shapes import Shape

Inputs = Mapping[str, Any]
Variant = Literal["plain", "truncation", "first_output"]
VARIANTS: tuple[Variant, ...] = ("plain", "truncation", "first_output")

# A row is refused above these: max |difference| / max |reference|.
TOLERANCE = {"float64": 1e-10, "float32": 1e-5, "float16": 1e-2, "bfloat16": 1e-2}
FLAG_RATE = 0.02
SECTOR = 32  # bytes: the least that a GPU's memory system moves


@dataclass(frozen=True)
class Problem:
    """One op at one size, type and choice of operands."""

    op: Op
    shape: Shape
    dtype: str = "float32"
    outputs: tuple[str, ...] = ()
    truncation: bool = False
    gamma: float = 0.99
    lambda_: float = 0.95
    seed: int = 0

    @property
    def label(self) -> str:
        extra = " truncation" if self.truncation else ""
        return f"{self.op.name} {self.shape.layout} {self.shape.name} {self.dtype} {','.join(self.outputs)}{extra}"

    @property
    def itemsize(self) -> int:
        return 8 if self.dtype == "float64" else 4 if self.dtype == "float32" else 2

    @property
    def elements(self) -> int:
        return self.shape.T * self.shape.N

    @property
    def output_bytes(self) -> int:
        return self.elements * self.itemsize * len(self.outputs)

    def steps(self, start: int | None, stop: int | None) -> tuple[slice, ...]:
        """Indexes a range of steps in this problem's layout."""
        return (slice(None),) * self.shape.axis + (slice(start, stop),)

    def edge(self, x: Any) -> Any:
        """A per-environment array as one step."""
        return x[None] if self.shape.axis == 0 else x[:, None]

    def host_type(self) -> np.dtype[Any]:
        if self.dtype == "bfloat16":
            import ml_dtypes  # comes with JAX

            return np.dtype(ml_dtypes.bfloat16)
        return np.dtype(self.dtype)

    def normal(self, rng: np.random.Generator, dims: tuple[int, ...] | None = None) -> np.ndarray:
        return rng.standard_normal(dims or self.shape.dims, dtype=np.float32).astype(self.host_type())

    def flag(self, rng: np.random.Generator) -> np.ndarray:
        return (rng.random(self.shape.dims, dtype=np.float32) < FLAG_RATE).astype(np.uint8)

    def time_major(self, x: np.ndarray, dtype: Any = np.float64) -> np.ndarray:
        """For references: `[T, N]`, in memory too, so that a loop over steps reads rows."""
        return np.ascontiguousarray(x if self.shape.axis == 0 else x.T, dtype=dtype)

    def back(self, x: np.ndarray) -> np.ndarray:
        """The inverse of `time_major`."""
        return x if self.shape.axis == 0 else x.T


class Op(abc.ABC):
    """An estimator as the benchmarks see it. One file in `ops/`, holding `OP`, adds one."""

    name: str
    outputs: tuple[str, ...]
    variants: tuple[Variant, ...] = ("plain",)
    backward: bool = True

    def problem(self, shape: Shape, dtype: str = "float32", variant: Variant = "plain", seed: int = 0) -> Problem:
        return Problem(
            self,
            shape,
            dtype,
            self.outputs[:1] if variant == "first_output" else self.outputs,
            variant == "truncation",
            seed=seed,
        )

    @abc.abstractmethod
    def make_inputs(self, problem: Problem, rng: np.random.Generator) -> dict[str, np.ndarray]:
        """Random host arrays by name, in the problem's layout."""

    @abc.abstractmethod
    def reference(self, problem: Problem, inputs: Mapping[str, np.ndarray]) -> list[np.ndarray]:
        """The wanted outputs from a float64 loop over steps that shares nothing with the library."""

    @abc.abstractmethod
    def count_bytes(self, problem: Problem, inputs: Mapping[str, np.ndarray]) -> int:
        """The least bytes: each input that matters read once, each output written once."""

    @abc.abstractmethod
    def call(self, library: Any, problem: Problem, inputs: Inputs, **options: Any) -> Sequence[Any]:
        """The wanted outputs from this package's function (`library` is its JAX or its torch front end)."""

    @abc.abstractmethod
    def recurrence(self, xp: Any, problem: Problem, inputs: Inputs) -> tuple[Any, Any]:
        """For baselines: arrays (a, b) of y_t = a_t y_next + b_t. `xp` is `jax.numpy` or `torch`; at least float32."""

    @abc.abstractmethod
    def finish(self, xp: Any, problem: Problem, y: Any, inputs: Inputs) -> Sequence[Any]:
        """For baselines: the wanted outputs from y."""

    @abc.abstractmethod
    def feed(self, inputs: Inputs, outputs: Sequence[Any]) -> dict[str, Any]:
        """The inputs of the next call of a chain: every output must be used, or a compiler may drop its computation."""

    def chained(self, problem: Problem) -> Problem:
        """The problem to chain: the same work, with constants that keep a long chain finite."""
        return problem


def accumulate(xp: Any, x: Any) -> Any:
    """16-bit data are computed in float32, as the library does."""
    return xp.asarray(x, dtype=xp.float32) if x.dtype in (xp.float16, xp.bfloat16) else x


def touched_bytes(used: np.ndarray, itemsize: int) -> int:
    """Bytes of the memory sectors of a dense array in which at least one entry is used."""
    per_sector = SECTOR // itemsize
    flat = used.ravel()
    flat = np.pad(flat, (0, -flat.size % per_sector))
    return int(flat.reshape(-1, per_sector).any(axis=1).sum()) * SECTOR

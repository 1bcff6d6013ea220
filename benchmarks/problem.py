"""What is measured: a problem (one op at one size) and what an op must say about itself."""

from __future__ import annotations

import abc
import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Literal

import numpy as np

from .shapes import Shape

Inputs = Mapping[str, Any]
Scan = Callable[[Any, Any], Any]  # (a, b) -> y of y_t = a_t y_next + b_t
Variant = Literal["plain", "truncation", "first_output", "truncation_first_output"]
VARIANTS: tuple[Variant, ...] = ("plain", "truncation", "first_output", "truncation_first_output")
# What an input holds, and so its shape: steps of all environments ("unit" is in [0, 1), "flag" one byte), "edge" one number
# per environment, "actions" and "probs" one for each action of a step, which sum to 1 in the latter.
Kind = Literal["normal", "unit", "flag", "edge", "actions", "probs"]


def arrays(**kinds: Kind) -> Mapping[str, Kind]:
    """The inputs of an op, by the names of its function's parameters."""
    return MappingProxyType(kinds)


# A row is refused above these: max |difference| / max |reference|.
TOLERANCE = {"float64": 1e-10, "float32": 1e-5, "float16": 1e-2, "bfloat16": 1e-2}
FLAG_RATE = 0.02
ACTIONS = 6
SECTOR = 32  # bytes: the least that a GPU's memory system moves


@dataclass(frozen=True)
class Problem:
    """One op at one size, type and choice of operands."""

    op: Op
    shape: Shape
    dtype: str = "float32"
    outputs: tuple[str, ...] = ()
    truncation: bool = False
    actions: int | None = None  # None: no action values
    gamma: float = 0.99
    lambda_: float = 0.95
    seed: int = 0

    @property
    def label(self) -> str:
        extra = f" {self.actions} actions" if self.actions else ""
        extra += " truncation" if self.truncation else ""
        return f"{self.op.name} {self.shape.layout} {self.shape.name} {self.dtype} {','.join(self.outputs)}{extra}"

    @property
    def itemsize(self) -> int:
        return 8 if self.dtype == "float64" else 4 if self.dtype == "float32" else 2

    @property
    def elements(self) -> int:
        return self.shape.T * self.shape.N

    @property
    def input_bytes(self) -> int:
        """Of all inputs, whether they are needed or not."""
        each = {"flag": self.elements, "edge": self.shape.N * self.itemsize}
        actions = self.elements * self.itemsize * (self.actions or 1)
        each |= {"actions": actions, "probs": actions}
        return sum(each.get(kind, self.elements * self.itemsize) for kind in self.op.operands(self).values())

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

    def draw(self, name: str, kind: Kind) -> np.ndarray:
        """Random data, the same for an input of this name whatever the op."""
        return _draw(name, kind, self.shape, self.host_type(), self.actions, self.seed)

    def time_major(self, x: np.ndarray, dtype: Any = np.float64) -> np.ndarray:
        """For references: `[T, N]`, in memory too, so that a loop over steps reads rows."""
        return np.ascontiguousarray(x if self.shape.axis == 0 else x.T, dtype=dtype)

    def back(self, x: np.ndarray) -> np.ndarray:
        """The inverse of `time_major`."""
        return x if self.shape.axis == 0 else x.T


@functools.lru_cache(maxsize=32)
def _draw(name: str, kind: Kind, shape: Shape, dtype: np.dtype[Any], actions: int | None, seed: int) -> np.ndarray:
    rng = np.random.default_rng([seed, shape.T, shape.N, *name.encode()])
    dims = (shape.N,) if kind == "edge" else shape.dims
    dims += (actions,) if actions and kind in ("actions", "probs") else ()
    if kind == "flag":
        x = (rng.random(dims, dtype=np.float32) < FLAG_RATE).astype(np.uint8)
    elif kind in ("unit", "probs"):
        x = rng.random(dims, dtype=np.float32)
        x = (x / x.sum(-1, keepdims=True) if kind == "probs" else x).astype(dtype)
    else:
        x = rng.standard_normal(dims, dtype=np.float32).astype(dtype)
    x.flags.writeable = False  # shared
    return x


class Op(abc.ABC):
    """An estimator as the benchmarks see it. One file in `ops/`, holding `OP`, adds one."""

    name: str
    function: str  # of this package, where it is called otherwise
    outputs: tuple[str, ...]
    inputs: Mapping[str, Kind]  # by the function's names
    inputs_if_truncated: Mapping[str, Kind] = arrays()
    constants: tuple[str, ...] = ("gamma", "lambda_")  # of the problem, handed to the function
    lambda_: float = 0.95
    fed: tuple[str, ...]  # the inputs that a chain replaces by the outputs of the call before
    variants: tuple[Variant, ...] = ("plain", "truncation")
    backward: bool = True
    differentiates: bool = False  # what computes it must have a derivative

    def __init_subclass__(cls) -> None:
        if "name" in vars(cls) and "function" not in vars(cls):
            cls.function = cls.name

    def problem(
        self,
        shape: Shape,
        dtype: str = "float32",
        variant: Variant = "plain",
        seed: int = 0,
        actions: int = ACTIONS,
    ) -> Problem:
        return Problem(
            self,
            shape,
            dtype,
            self.outputs[:1] if variant.endswith("first_output") else self.outputs,
            variant.startswith("truncation"),
            actions if {"actions", "probs"} & set(self.inputs.values()) else None,
            lambda_=self.lambda_,
            seed=seed,
        )

    def operands(self, problem: Problem) -> dict[str, Kind]:
        return {**self.inputs, **(self.inputs_if_truncated if problem.truncation else {})}

    def why_not(self, library: Any) -> str | None:
        """Why `library`, this package's JAX or torch front end, cannot compute this, or None."""
        return None if hasattr(library, self.function) else f"{library.__name__} has no {self.function}"

    def make_inputs(self, problem: Problem) -> dict[str, np.ndarray]:
        """Random host arrays by name, in the problem's layout."""
        return {name: problem.draw(name, kind) for name, kind in self.operands(problem).items()}

    @abc.abstractmethod
    def reference(self, problem: Problem, inputs: Mapping[str, np.ndarray]) -> list[np.ndarray]:
        """The wanted outputs from a float64 loop over steps that shares nothing with the library."""

    def count_bytes(self, problem: Problem, inputs: Mapping[str, np.ndarray]) -> int:
        """The least bytes: each input that matters read once, each output written once."""
        read = sum(x.nbytes for name, x in inputs.items() if name != "final_values")
        if "final_values" in inputs:
            used = (inputs["truncated"] != 0) & (inputs["terminated"] == 0)
            read += touched_bytes(used, problem.itemsize)
        return read + problem.output_bytes

    def options(self, problem: Problem) -> dict[str, Any]:
        """What the function is called with beside its arrays."""
        constants = {name: getattr(problem, name) for name in self.constants}
        return {**constants, "axis": problem.shape.axis}

    def call(self, library: Any, problem: Problem, inputs: Inputs, **options: Any) -> Sequence[Any]:
        """The wanted outputs from this package's function (`library` is its JAX or its torch front end)."""
        result = getattr(library, self.function)(**inputs, **self.options(problem), **options)
        return list(result if isinstance(result, tuple) else (result,))[: len(problem.outputs)]

    @property
    def first_order(self) -> bool:
        """Whether there is a `recurrence`."""
        return type(self).recurrence is not Op.recurrence

    def recurrence(self, xp: Any, problem: Problem, inputs: Inputs) -> tuple[Any, Any]:
        """For baselines: arrays (a, b) of y_t = a_t y_next + b_t. `xp` is `jax.numpy` or `torch`; at least float32."""
        raise NotImplementedError(f"{self.name} is no first-order recurrence")

    def finish(self, xp: Any, problem: Problem, y: Any, inputs: Inputs) -> Sequence[Any]:
        """For baselines: the outputs from y."""
        return [y]

    def formula(self, xp: Any, problem: Problem, inputs: Inputs, scan: Scan) -> Sequence[Any]:
        """For baselines: the outputs, given how to compute a recurrence."""
        return self.finish(xp, problem, scan(*self.recurrence(xp, problem, inputs)), inputs)

    def baseline(self, xp: Any, problem: Problem, inputs: Inputs, scan: Scan) -> Sequence[Any]:
        """The wanted outputs by `formula`; 16-bit data are computed in float32, as the library does."""
        short = (xp.float16, xp.bfloat16)
        inputs = {name: xp.asarray(x, dtype=xp.float32) if x.dtype in short else x for name, x in inputs.items()}
        outputs = self.formula(xp, problem, inputs, scan)[: len(problem.outputs)]
        return [xp.asarray(x, dtype=getattr(xp, problem.dtype)) for x in outputs]

    def feed(self, inputs: Inputs, outputs: Sequence[Any]) -> dict[str, Any]:
        """The inputs of the next call of a chain: every output must be used, or a compiler may drop its computation."""
        return dict(inputs) | dict(zip(self.fed, outputs, strict=False))

    def chained(self, problem: Problem) -> Problem:
        """The problem to chain: the same work, with constants that keep a long chain finite."""
        # GAE's (r, v) -> (A, A + v) has eigenvalues of about one here; with 0.99 and 0.95 sixty-four calls overflow float32.
        return dataclasses.replace(problem, gamma=0.1, lambda_=0.1)


def touched_bytes(used: np.ndarray, itemsize: int) -> int:
    """Bytes of the memory sectors of a dense array in which at least one entry is used."""
    per_sector = SECTOR // itemsize
    flat = used.ravel()
    flat = np.pad(flat, (0, -flat.size % per_sector))
    return int(flat.reshape(-1, per_sector).any(axis=1).sum()) * SECTOR

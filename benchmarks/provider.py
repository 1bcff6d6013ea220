"""What a provider is: one way to compute an op."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from .problem import Inputs, Problem

Function = Callable[[Inputs], Sequence[Any]]


def always(*_: Any) -> str | None:
    return None


def why_no_recurrence(problem: Problem) -> str | None:
    """For providers that only know first-order recurrences."""
    return None if problem.op.first_order else "no first-order recurrence"


# Packed sequences are one row: a serial walk over a large one takes seconds.
LONGEST_WALK = 1 << 16


def why_no_walk(problem: Problem) -> str | None:
    """For providers that walk a step at a time."""
    if problem.shape.layout == "packed" and problem.elements > LONGEST_WALK:
        return "a serial walk over all sequences would take too long"
    return why_no_recurrence(problem)


def why_no_walk_in_place(problem: Problem) -> str | None:
    """For providers that write each step into memory of its own."""
    return "in-place writes have no derivative" if problem.op.differentiates else why_no_walk(problem)


@dataclass(frozen=True)
class Provider:
    """One way to compute an op. One file in `providers/`, holding `PROVIDERS`, adds some.

    `make` takes a problem to a function of its arrays; a JAX function is jitted by the runner. Providers of a lower
    `priority` number are measured first. `why_not` says why the provider cannot run here, or None; `why_not_problem` why
    it cannot compute one problem. `hold` makes what its users hold from the problem's arrays, by name, before anything is timed.
    """

    name: str
    framework: Literal["jax", "torch"]
    make: Callable[[Problem], Function]
    route: Literal["xla_triton", "jax_triton", "torch"] | None = None
    priority: int = 1
    ops: tuple[str, ...] | None = None  # those it is meant for; None: every op
    why_not: Callable[[], str | None] = always
    why_not_problem: Callable[[Problem], str | None] = always
    hold: Callable[[Problem, Mapping[str, np.ndarray]], dict[str, np.ndarray]] | None = None
    default: bool = True  # measured when --providers is not given
    slow_compile: bool = False  # shorter chains
    light: bool = False  # device and call times only: no chains, no rotated buffers

"""What a provider is: one way to compute an op."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from .problem import Inputs, Problem

Function = Callable[[Inputs], Sequence[Any]]


def always() -> str | None:
    return None


@dataclass(frozen=True)
class Provider:
    """One way to compute an op. One file in `providers/`, holding `PROVIDERS`, adds some.

    `make` takes a problem to a function of its arrays; a JAX function is jitted by the runner. Providers of a lower
    `priority` number are measured first. `why_not` says why the provider cannot run here, or None.
    """

    name: str
    framework: Literal["jax", "torch"]
    make: Callable[[Problem], Function]
    route: Literal["xla_triton", "jax_triton", "torch"] | None = None
    ops: tuple[str, ...] | None = None  # None: every op
    priority: int = 1
    why_not: Callable[[], str | None] = always
    default: bool = True  # measured when --providers is not given
    slow_compile: bool = False  # shorter chains
    light: bool = False  # device and call times only: no chains, no rotated buffers

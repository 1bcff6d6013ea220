"""What an estimator asks of a front end, and how one written estimator becomes a function of each front end."""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar

from .estimator import Estimator

P = ParamSpec("P")
R = TypeVar("R")


IMPLEMENTATIONS = (None, "triton", "xla")


def check_implementation(name: str, implementation: Any) -> None:
    if implementation not in IMPLEMENTATIONS:
        raise ValueError(f"{name}: unknown `implementation` {implementation!r}; expected None, 'triton' or 'xla'")


class FrontEnd(Protocol):
    """JAX (`jax_front`) or torch (`torch`)."""

    def call(
        self,
        estimator: Estimator,
        operands: Mapping[str, Any],
        *,
        axis: int,
        backward: bool | None = None,
        wanted: Sequence[bool] | None = None,
        implementation: str | None = None,
        standardize: int | None = None,
        name: str = "",
    ) -> list[Any]:
        """Validates the operands and returns the wanted outputs.

        `standardize`: the wanted output to make (x - mean) / (std + 1e-8) of, over all entries where the mask is set (population
        std; 0 elsewhere), before it is rounded. `name`: what the user called, if not the estimator.
        """
        ...

    def sequence_ends(self, cu_seqlens: Any, last_values: Any, mask: Any, like: Any) -> tuple[Any, Any]:
        """Of packed sequences: a flag at each one's last (real) token, and `last_values` there, both shaped as `like`."""
        ...


def offered_by(front: FrontEnd, function: Callable[Concatenate[FrontEnd, P], R]) -> Callable[P, R]:
    """`function` with its first parameter bound to a front end, under its own name, signature and documentation."""

    @functools.wraps(function)
    def bound(*args: P.args, **kwargs: P.kwargs) -> R:
        return function(front, *args, **kwargs)

    signature = inspect.signature(function)
    vars(bound)["__signature__"] = signature.replace(parameters=list(signature.parameters.values())[1:])
    del vars(bound)["__wrapped__"]
    # Where it can be found again, by pickle or by who reads documentation: the module that offers it, as of a namedtuple.
    bound.__module__ = sys._getframe(1).f_globals["__name__"]
    return bound

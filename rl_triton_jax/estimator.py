"""What an estimator is: its operands, its outputs, and its maths as two small array functions.

The same two functions exist once more on chip, in `kernels/coefficients/<name>.py`. Everything else (validation, the JAX
primitive with its rules, schedules, launchers, the torch front end) is made from this description.
"""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Callable, Mapping
from typing import Any


class Role(enum.Enum):
    """How an operand is shaped and typed. `[T, *batch]` is the shape of the estimator's first operand."""

    DATA = "data"  # [T, *batch]; floating dtypes promote
    FLAG = "flag"  # [T, *batch], size-1 axes broadcast; any dtype, non-zero is true
    DECAY = "decay"  # a number, or [T, *batch] where size-1 axes broadcast; never promotes
    FACTOR = "factor"  # as DECAY, but an array promotes as data does
    EDGE = "edge"  # [*batch] or a number: a value just beyond the first step of the walk
    MASK = "mask"  # as FLAG; False makes a step invisible
    ACTIONS = "actions"  # [T, *batch, A]: one number for each action; floating dtypes promote


class Over(enum.Enum):
    """How an operand is made from arrays with an action axis."""

    EXPECTATION = "expectation"  # sum of the product of two
    MAXIMUM = "maximum"


@dataclasses.dataclass(frozen=True)
class Operand:
    """One operand.

    `near`: the step function also sees this operand at the step walked just before; beyond the walk's start it is the operand
    `edge`, or one more row of this operand, or 0. `only_where`: read only where that flag is set; `unless`: of no
    meaning where that one is. `carry`: an EDGE that is the
    recurrence's own value there. `folds`: where this operand is not given it is made over the actions of these, which are.
    `required`: of a DECAY or FACTOR.
    """

    name: str
    role: Role = Role.DATA
    near: bool = False
    edge: str = ""
    only_where: str = ""
    unless: str = ""
    carry: bool = False
    folds: tuple[str, ...] = ()
    over: Over = Over.EXPECTATION
    required: bool = True


_BY_NAME: dict[str, Estimator] = {}


@dataclasses.dataclass(frozen=True)
class Estimator:
    """`coefficients(xp, x, near, first) -> (a, b, reset)` and `finish(xp, x, near, first, y, before) -> outputs`.

    `x` maps the names of the operands that are neither edges nor the mask to arrays, None where not given; `near` does for each
    operand whose neighbour is wanted. `first` is true at the first (real) step of the walk, `before` is y at the step
    walked just before (the carry's edge, or 0, at the first). `uses_first`, `uses_before`: whether the functions look at
    these. `whole(xp, x, edges, mask, shape, axis, accumulate) -> outputs` stands in their place for what is more than
    one recurrence; the recurrences in it run as kernels. `window`: with this many steps, one kernel does all of it, but for
    a mask: `coefficients` on chip, and there a `follows` for the value after each step. `backward`: the walk goes from
    T-1 to 0, unless the call says `reverse`. `integers`: integer data stay integer. `features`: flags may lack trailing
    axes of the data.
    """

    name: str
    operands: tuple[Operand, ...]
    outputs: tuple[str, ...]
    coefficients: Callable[..., Any] | None = None
    finish: Callable[..., Any] | None = None
    whole: Callable[..., Any] | None = None
    window: int = 0
    backward: bool = True
    uses_first: bool = False
    uses_before: bool = False
    integers: bool = False
    features: bool = False

    def __post_init__(self) -> None:
        if self.whole is None and self.name not in _BY_NAME:
            _BY_NAME[self.name] = self

    def index(self, name: str) -> int:
        return [o.name for o in self.operands].index(name)

    @property
    def walked(self) -> tuple[int, ...]:
        """Positions of the operands that the step function sees."""
        return tuple(k for k, o in enumerate(self.operands) if o.role not in (Role.EDGE, Role.MASK, Role.ACTIONS))

    @property
    def neighbours(self) -> tuple[int, ...]:
        """Positions of the operands whose neighbour the step function sees."""
        return tuple(k for k, o in enumerate(self.operands) if o.near)

    def position(self, role: Role, carry: bool = False) -> int | None:
        """Where the mask is, or the carry's edge; None where the estimator has none."""
        for k, o in enumerate(self.operands):
            if o.role is role and o.carry == carry:
                return k
        return None


def by_name(name: str, window: int) -> Estimator:
    """As far as a kernel goes, the estimator of that name and window: for machinery that can pass on text and numbers only."""
    estimator = _BY_NAME[name]
    return estimator if estimator.window == window else dataclasses.replace(estimator, window=window)


def has_kernel(estimator: Estimator, operands: Mapping[str, Any]) -> bool:
    """Whether one kernel does the whole of a call with these operands; else the recurrences in its formula have theirs."""
    if estimator.whole is None:
        return True
    masked = any(o.role is Role.MASK and operands[o.name] is not None for o in estimator.operands)
    return estimator.window > 0 and not masked

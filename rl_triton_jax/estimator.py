"""What an estimator is: its operands, its outputs, and its maths as two small array functions.

The same two functions exist once more on chip, in `kernels/coefficients/<name>.py`. Everything else (validation, the JAX
primitive with its rules, schedules, launchers, the torch front end) is made from this description.
"""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Callable
from typing import Any


class Role(enum.Enum):
    """How an operand is shaped and typed. `[T, *batch]` is the shape of the estimator's first operand."""

    DATA = "data"  # [T, *batch]; floating dtypes promote
    FLAG = "flag"  # [T, *batch], size-1 axes broadcast; any dtype, non-zero is true
    DECAY = "decay"  # a number, or [T, *batch] where size-1 axes broadcast; never promotes
    FACTOR = "factor"  # as DECAY, but an array promotes as data does
    EDGE = "edge"  # [*batch] or a number: a value just beyond the first step of the walk
    MASK = "mask"  # as FLAG; False makes a step invisible


@dataclasses.dataclass(frozen=True)
class Operand:
    """One operand.

    `edge`: the step function also sees this operand at the step walked just before; beyond the walk's start it is the
    operand of that name, or one more row of this operand. `only_where`: read only where that flag is set.
    `carry`: an EDGE that is the recurrence's own value there.
    """

    name: str
    role: Role = Role.DATA
    edge: str = ""
    only_where: str = ""
    carry: bool = False


@dataclasses.dataclass(frozen=True)
class Estimator:
    """`coefficients(xp, x, near) -> (a, b, reset)` and `finish(xp, x, near, y) -> outputs`.

    `x` has one entry for each operand that is neither an edge nor the mask, None where it was not given; `near` has one for
    each operand with an edge. `backward`: the walk goes from T-1 to 0, unless the call says `reverse`.
    """

    name: str
    operands: tuple[Operand, ...]
    outputs: tuple[str, ...]
    coefficients: Callable[..., Any]
    finish: Callable[..., Any]
    backward: bool = True

    def index(self, name: str) -> int:
        return [o.name for o in self.operands].index(name)

    @property
    def walked(self) -> tuple[int, ...]:
        """Positions of the operands that the step function sees."""
        return tuple(k for k, o in enumerate(self.operands) if o.role not in (Role.EDGE, Role.MASK))

    @property
    def neighbours(self) -> tuple[int, ...]:
        """Positions of the operands whose neighbour the step function sees."""
        return tuple(k for k, o in enumerate(self.operands) if o.edge)

    def position(self, role: Role, carry: bool = False) -> int | None:
        """Where the mask is, or the carry's edge; None where the estimator has none."""
        for k, o in enumerate(self.operands):
            if o.role is role and o.carry == carry:
                return k
        return None

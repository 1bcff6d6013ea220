"""An estimator evaluated with array functions: the specification, the XLA lowering, the derivative rule, torch on a CPU.

`xp` is a small set of array functions (`arrays_jax`, `arrays_torch`): where, cast, to_bool, concat, slice, zeros_like and the
recurrence itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from .estimator import Estimator, Role
from .problem import has_extra_row


class Arrays(Protocol):
    """What a formula may use."""

    def where(self, condition: Any, x: Any, y: Any) -> Any: ...
    def cast(self, x: Any, dtype: str) -> Any: ...
    def to_bool(self, x: Any) -> Any: ...
    def any_of(self, *flags: Any) -> Any: ...
    def concat(self, parts: Sequence[Any], axis: int) -> Any: ...
    def slice(self, x: Any, start: int, stop: int, axis: int) -> Any: ...
    def broadcast(self, x: Any, shape: tuple[int, ...]) -> Any: ...
    def recurrence(self, a: Any, b: Any, reset: Any, initial: Any, axis: int, backward: bool) -> Any: ...


def _beside(xp: Arrays, x: Any, edge: Any, shape: tuple[int, ...], axis: int, backward: bool) -> Any:
    """`x` at the step walked just before; `edge` beyond the walk's start."""
    T = shape[axis]
    x = xp.broadcast(x, shape)
    edge = xp.broadcast(edge, tuple(1 if k == axis else s for k, s in enumerate(shape)))
    if backward:
        return xp.concat([xp.slice(x, 1, T, axis), edge], axis)
    return xp.concat([edge, xp.slice(x, 0, T - 1, axis)], axis)


def evaluate(
    estimator: Estimator,
    xp: Arrays,
    operands: Sequence[Any],
    *,
    shape: tuple[int, ...],
    axis: int,
    backward: bool,
    dtype: str,
    accumulate: str,
    wanted: Sequence[bool],
) -> list[Any]:
    """The wanted outputs. Operands are in the estimator's order, None where absent, all of the same rank (edges have size 1
    along time); `shape` is the full output shape."""
    T = shape[axis]
    position = estimator.position(Role.MASK)
    mask = None if position is None or operands[position] is None else xp.to_bool(operands[position])
    x: list[Any] = []
    edges: dict[int, Any] = {}
    for k, operand in enumerate(estimator.operands):
        value = operands[k]
        if value is None or operand.role is Role.MASK:
            x.append(None)
            continue
        if has_extra_row(estimator, k, value, T, axis):
            edges[k] = xp.cast(xp.slice(value, T, T + 1, axis), accumulate)
            value = xp.slice(value, 0, T, axis)
        value = xp.to_bool(value) if operand.role is Role.FLAG else xp.cast(value, accumulate)
        if mask is not None and operand.role not in (Role.FLAG, Role.EDGE):
            value = xp.where(mask, value, 0)  # whatever masked rows hold stays out of derivatives as well
        x.append(value)
    near = []
    for k in estimator.neighbours:
        edge = edges.get(k, x[estimator.index(estimator.operands[k].edge)])
        if x[k] is None or edge is None:
            near.append(None)
            continue
        value = x[k]
        if mask is not None:  # the last real row before, by the recurrence that keeps or takes
            edge_full = edge
            value = xp.recurrence(1.0, xp.broadcast(value, shape), mask, edge_full, axis, backward)
        near.append(_beside(xp, value, edge, shape, axis, backward))
    walked = [x[k] for k in estimator.walked]
    a, b, reset = estimator.coefficients(xp, walked, near)
    if mask is not None:
        a, b = xp.where(mask, a, 1), xp.where(mask, b, 0)
        reset = None if reset is None else reset & mask
    position = estimator.position(Role.EDGE, carry=True)
    initial = None if position is None else x[position]
    y = xp.recurrence(a, xp.broadcast(b, shape), reset, initial, axis, backward)
    results = estimator.finish(xp, walked, near, y)
    results = [r for r, want in zip(results, wanted, strict=True) if want]
    if mask is not None:
        results = [xp.where(mask, r, 0) for r in results]
    return [xp.cast(xp.broadcast(r, shape), dtype) for r in results]

"""An estimator evaluated with array functions: the specification, the XLA lowering, the derivative rule, torch on a CPU.

`xp` is a small set of array functions (`arrays_jax`, `arrays_torch`): where, cast, to_bool, concat, slice, zeros_like and the
recurrence itself.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Protocol

from .estimator import Estimator, Operand, Over, Role
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
    def invert(self, flags: Any) -> Any: ...
    def exp(self, x: Any) -> Any: ...
    def minimum(self, x: Any, y: Any) -> Any: ...
    def last_axis(self, x: Any) -> Any: ...  # one more axis, last
    def expectation(self, x: Any, weights: Any) -> Any: ...  # over the last axis
    def maximum(self, x: Any) -> Any: ...  # over the last axis
    def arange(self, shape: tuple[int, ...], axis: int, like: Any) -> Any: ...  # 0, 1, ...; size 1 but along `axis`
    def compressing(self, mask: Any, axis: int) -> Any: ...  # indices that bring the real rows to the front, in order
    def take(self, x: Any, indices: Any, axis: int) -> Any: ...
    def untake(self, x: Any, indices: Any, axis: int) -> Any: ...  # the inverse, for a permutation
    def along(self, x: Any, axis: int) -> Any: ...  # the largest along one axis, which is kept with size 1
    def zero_edge(self, x: Any, axis: int) -> Any: ...  # zeros, of size 1 along `axis`
    def incoming(self, x: Any, edge: Any, axis: int, backward: bool) -> Any: ...  # the row beyond the walk's start
    def size(self, x: Any) -> int: ...  # number of entries
    def total(self, x: Any) -> Any: ...  # over all axes
    def largest(self, x: Any) -> Any: ...  # over all axes; not differentiated
    def sqrt(self, x: Any) -> Any: ...
    def recurrence(self, a: Any, b: Any, reset: Any, initial: Any, axis: int, backward: bool) -> Any: ...


def beside(xp: Arrays, x: Any, edge: Any, shape: tuple[int, ...], axis: int, backward: bool) -> Any:
    """`x` at the step walked just before; `edge` beyond the walk's start."""
    T = shape[axis]
    x = xp.broadcast(x, shape)
    edge = xp.broadcast(edge, tuple(1 if k == axis else s for k, s in enumerate(shape)))
    edge = xp.incoming(x, edge, axis, backward)
    if backward:
        return xp.concat([xp.slice(x, 1, T, axis), edge], axis)
    return xp.concat([edge, xp.slice(x, 0, T - 1, axis)], axis)


def standardized(xp: Arrays, x: Any, mask: Any, accumulate: str) -> Any:
    """(x - mean) / (std + 1e-8) over all entries where the mask is set, population std; 0 elsewhere."""

    def real(x: Any, other: float) -> Any:
        return x if mask is None else xp.where(mask, x, other)

    count = xp.size(x)
    if mask is not None:
        count = xp.total(xp.cast(xp.broadcast(mask, x.shape), accumulate))
        count = xp.where(count > 0, count, 1.0)
    # Shifted by one of the entries: exact for a constant, and no cancellation when the mean is large.
    x = real(x - xp.largest(real(x, -math.inf)), 0.0)
    x = real(x - xp.total(x) / count, 0.0)
    variance = xp.total(x * x) / count
    deviation = xp.where(variance > 0, xp.sqrt(xp.where(variance > 0, variance, 1.0)), variance)  # NaN stays NaN
    return x / (deviation + 1e-8)


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
    standardize: int | None = None,
) -> list[Any]:
    """The wanted outputs, the one numbered `standardize` of them standardised.

    Operands are in the estimator's order, None where absent, all of the same rank (edges have size 1 along time); `shape` is the
    full output shape.
    """
    T = shape[axis]
    position = estimator.position(Role.MASK)
    mask = None if position is None or operands[position] is None else xp.to_bool(operands[position])
    x: dict[str, Any] = {}
    edges: dict[str, Any] = {}
    for k, operand in enumerate(estimator.operands):
        value, name = operands[k], operand.name
        if value is None or operand.role in (Role.MASK, Role.ACTIONS):
            x[name] = None
            continue
        if has_extra_row(estimator, k, value, T, axis):
            edges[name] = xp.cast(xp.slice(value, T, T + 1, axis), accumulate)
            value = xp.slice(value, 0, T, axis)
        x[name] = xp.to_bool(value) if operand.role is Role.FLAG else xp.cast(value, accumulate)
    for operand in estimator.operands:
        if operand.folds and x[operand.name] is None:
            arrays = [operands[estimator.index(name)] for name in operand.folds]
            if all(a is not None for a in arrays):
                arrays = [xp.cast(a, accumulate) for a in arrays]
                dead = x.get(operand.unless)
                if dead is not None:  # for derivatives: those of a maximum of NaN would be NaN
                    arrays = [xp.where(xp.last_axis(dead), 0, a) for a in arrays]
                x[operand.name] = xp.expectation(*arrays) if operand.over is Over.EXPECTATION else xp.maximum(*arrays)
    if mask is not None:  # whatever masked rows hold stays out of derivatives as well
        for operand in estimator.operands:
            if operand.role not in (Role.FLAG, Role.EDGE) and x[operand.name] is not None:
                x[operand.name] = xp.where(mask, x[operand.name], 0)

    def finished(results: Sequence[Any]) -> list[Any]:
        results = [r for r, want in zip(results, wanted, strict=True) if want]
        if mask is not None:
            results = [xp.where(mask, r, 0) for r in results]
        if standardize is not None:
            raw = xp.broadcast(results[standardize], shape)
            results[standardize] = standardized(xp, raw, mask, accumulate)
        return [xp.cast(xp.broadcast(r, shape), dtype) for r in results]

    if estimator.whole is not None:
        return finished(estimator.whole(xp, x, edges, mask, shape, axis, accumulate))
    assert estimator.coefficients is not None
    assert estimator.finish is not None

    def last_real(value: Any, edge: Any) -> Any:
        """`value` at the real step walked just before: under a mask, by the recurrence that keeps or takes."""
        if mask is not None:
            value = xp.recurrence(1.0, xp.broadcast(value, shape), mask, edge, axis, backward)
        return beside(xp, value, edge, shape, axis, backward)

    near: dict[str, Any] = {}
    for k in estimator.neighbours:
        operand = estimator.operands[k]
        value, edge = x[operand.name], edges.get(operand.name, x.get(operand.edge))
        if value is None:
            near[operand.name] = None
            continue
        flag = operand.role is Role.FLAG
        value = xp.cast(value, accumulate) if flag else value
        value = last_real(value, xp.zero_edge(value, axis) if edge is None else edge)
        near[operand.name] = value != 0 if flag else value
    position = estimator.position(Role.EDGE, carry=True)
    initial = None if position is None else x[estimator.operands[position].name]
    first = None
    if estimator.uses_first or (mask is not None and initial is not None):
        step = xp.arange(shape, axis, operands[0])
        step = step if backward else T - 1 - step  # the walk comes by the largest first
        # The first real step, and the masked ones before it, where nothing is looked at.
        first = step == T - 1 if mask is None else step >= xp.along(xp.where(mask, step, -1), axis)
    a, b, reset = estimator.coefficients(xp, x, near, first)
    if mask is not None:
        a, b = xp.where(mask, a, 1), xp.where(mask, b, 0)
        reset = None if reset is None else reset & mask
        if initial is not None:
            # It enters at the first real step rather than through the masked ones: carried along by these it would be a factor in
            # their derivatives even where the first real step resets.
            enters = first & mask if reset is None else first & mask & xp.invert(reset)
            b = b + xp.where(enters, a, 0) * xp.where(enters, initial, 0)
    carried = None if mask is not None else initial
    y = xp.recurrence(a, xp.broadcast(b, shape), reset, carried, axis, backward)
    before = None
    if estimator.uses_before:
        before = beside(xp, y, xp.zero_edge(y, axis) if carried is None else carried, shape, axis, backward)
        if mask is not None and initial is not None:
            before = xp.where(first, initial, before)
    return finished(estimator.finish(xp, x, near, first, y, before))


# ---- the recurrence itself: what every formula above is made of, hence here and not among the estimators


def _coefficients(xp: Any, x: Any, near: Any, first: Any) -> Any:
    return x["a"], x["b"], x["reset"]


def _finish(xp: Any, x: Any, near: Any, first: Any, y: Any, before: Any) -> Any:
    return (y,)


LINEAR_RECURRENCE = Estimator(
    name="linear_recurrence",
    operands=(
        Operand("b"),
        Operand("a", Role.FACTOR),
        Operand("reset", Role.FLAG),
        Operand("initial", Role.EDGE, carry=True),
    ),
    outputs=("y",),
    coefficients=_coefficients,
    finish=_finish,
    backward=False,
)

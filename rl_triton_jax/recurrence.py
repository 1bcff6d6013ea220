"""The recurrence with array functions: the scan operator, the serial and the tree form in JAX, and its derivative rules.

The primitive `linear_recurrence` is closed under differentiation: its tangent and its transpose are the recurrence again,
so every derivative of every estimator runs the same kernels.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.interpreters import ad


def combine(earlier: Any, later: Any, select: Callable[[Any, Any, Any], Any]) -> tuple[Any, Any, Any]:
    """Composition of (a, b, reset), the map y -> b where reset else a*y + b, in the order of the walk.

    Associative; its identity is (1, 0, False); whatever comes before a reset is absorbed.
    """
    a1, b1, r1 = earlier
    a2, b2, r2 = later
    return a1 * a2, select(r2, b2, a2 * b1 + b2), r1 | r2


def _walk(a: Any, b: Any, reset: Any, carry: Any, *, backward: bool) -> Any:
    """`lax.scan` over axis 0. What does not vary along time is closed over, not copied for each step."""
    fixed: dict[str, Any] = {}
    steps: dict[str, Any] = {"b": b}
    for name, x in (("a", a), ("reset", reset)):
        if x is not None:
            (fixed if x.shape[0] == 1 != b.shape[0] else steps)[name] = x[0] if x.shape[0] == 1 != b.shape[0] else x

    def step(y: Any, row: Any) -> Any:
        row = {**fixed, **row}
        walked = row["a"] * y + row["b"]
        y = walked if "reset" not in row else jnp.where(row["reset"], row["b"], walked)
        return y, y

    return lax.scan(step, carry, steps, reverse=backward)[1]


# Beyond this many steps a serial walk in float32 would lose more digits than promised (sums without decay).
BLOCKED_FROM = 1024


def serial(a: Any, b: Any, reset: Any, initial: Any, *, axis: int, backward: bool) -> Any:
    """A serial walk along `axis`: the fastest form on a CPU. Long walks go in blocks side by side, then block after block."""
    T = b.shape[axis]
    a, b, reset, initial = (None if x is None else jnp.moveaxis(x, axis, 0) for x in (a, b, reset, initial))
    carry = jnp.zeros(b.shape[1:], b.dtype) if initial is None else jnp.broadcast_to(initial[0], b.shape[1:])
    carry = carry + jnp.zeros_like(b[0])  # the same varying axes as b inside shard_map
    if T < BLOCKED_FROM:
        return jnp.moveaxis(_walk(a, b, reset, carry, backward=backward), 0, axis)
    if backward:
        a, b, reset = (None if x is None else jnp.flip(x, 0) for x in (a, b, reset))
    steps = 1 << (T.bit_length() // 2)
    blocks = -(-T // steps)

    def split(x: Any, filling: Any) -> Any:  # [T, ...] -> [steps, blocks, ...], filled with the identity
        x = jnp.concatenate([x, jnp.full((blocks * steps - T, *x.shape[1:]), filling, x.dtype)])
        return jnp.swapaxes(x.reshape(blocks, steps, *x.shape[1:]), 0, 1)

    full = jnp.broadcast_to(a, b.shape)
    resets = jnp.broadcast_to(jnp.zeros((1,) * b.ndim, bool) if reset is None else reset, b.shape)
    rows = (split(full, 1), split(b, 0), split(resets, False))

    def step(done: Any, row: Any) -> Any:
        done = combine(done, row, jnp.where)
        return done, done

    identity = (jnp.ones_like(rows[0][0]), jnp.zeros_like(rows[1][0]), jnp.zeros_like(rows[2][0]))
    totals, prefixes = lax.scan(step, identity, rows)

    def block(y: Any, total: Any) -> Any:
        return jnp.where(total[2], total[1], total[0] * y + total[1]), y

    _, carries = lax.scan(block, carry, totals)
    y = jnp.where(prefixes[2], prefixes[1], prefixes[0] * carries[None] + prefixes[1])
    y = jnp.swapaxes(y, 0, 1).reshape(blocks * steps, *b.shape[1:])[:T]
    return jnp.moveaxis(jnp.flip(y, 0) if backward else y, 0, axis)


def tree(a: Any, b: Any, reset: Any, initial: Any, *, axis: int, backward: bool) -> Any:
    """`lax.associative_scan` along `axis`: for accelerators where no Triton kernel runs."""
    a = jnp.broadcast_to(a, b.shape)
    reset = jnp.zeros((1,) * b.ndim, bool) if reset is None else reset
    reset = jnp.broadcast_to(reset, b.shape)
    a, b, reset = lax.associative_scan(
        lambda x, y: combine(x, y, jnp.where), (a, b, reset), axis=axis, reverse=backward
    )
    if initial is None:
        return b
    return jnp.where(reset, b, a * initial + b)


def shift(x: Any, axis: int, by: int, edge: Any = None) -> Any:
    """Row t of the result is row t - by of `x` (by = 1 or -1); `edge` (size 1 along time) or zeros come in."""
    T = x.shape[axis]
    edge = jnp.zeros_like(lax.slice_in_dim(x, 0, 1, axis=axis)) if edge is None else edge
    if by == 1:
        return jnp.concatenate([edge, lax.slice_in_dim(x, 0, T - 1, axis=axis)], axis)
    return jnp.concatenate([lax.slice_in_dim(x, 1, T, axis=axis), edge], axis)


def _unbroadcast(x: Any, aval: Any) -> Any:
    """Sums over the axes along which an operand of shape and dtype `aval` was broadcast to `x`."""
    axes = tuple(k for k, (got, own) in enumerate(zip(x.shape, aval.shape, strict=True)) if own == 1 and got != 1)
    if axes:
        x = jnp.sum(x, axis=axes, keepdims=True)
    return x.astype(aval.dtype)


def _split(operands: Any, present: tuple[bool, ...]) -> list[Any]:
    rest = iter(operands)
    return [next(rest) if given else None for given in present]


def jvp(
    bind: Callable[..., Any],
    primals: Any,
    tangents: Any,
    *,
    axis: int,
    backward: bool,
    present: tuple[bool, ...],
    dtype: str,
    accumulate: str,
    **params: Any,
) -> Any:
    """dy_t = a_t dy_prev + (db_t + da_t y_prev), the second product cut where the walk resets."""
    (y,) = bind(*primals, axis=axis, backward=backward, present=present, dtype=dtype, accumulate=accumulate, **params)
    _, a, reset, initial = _split(primals, present)
    db, da, _, dinitial = _split(tangents, present)
    if y.size == 0:
        return [y], [jnp.zeros_like(y)]
    source = jnp.zeros(y.shape, accumulate) if _is_zero(db) else jnp.broadcast_to(db, y.shape).astype(accumulate)
    if not _is_zero(da):
        edge = None if initial is None else jnp.broadcast_to(initial, _edge_shape(y.shape, axis)).astype(accumulate)
        before = shift(y.astype(accumulate), axis, -1 if backward else 1, edge)
        if reset is not None:
            before = jnp.where(reset != 0, 0, before)
        source = source + da.astype(accumulate) * before
    operands = [source, a, reset, None if _is_zero(dinitial) else dinitial]
    (dy,) = bind(
        *[x for x in operands if x is not None],
        axis=axis,
        backward=backward,
        present=tuple(x is not None for x in operands),
        dtype=dtype,
        accumulate=accumulate,
        **params,
    )
    return [y], [dy]


def _is_zero(tangent: Any) -> bool:
    return tangent is None or type(tangent) is ad.Zero


def _edge_shape(shape: tuple[int, ...], axis: int) -> tuple[int, ...]:
    return tuple(1 if k == axis else s for k, s in enumerate(shape))


def transpose(
    bind: Callable[..., Any],
    cotangents: Any,
    *operands: Any,
    axis: int,
    backward: bool,
    present: tuple[bool, ...],
    dtype: str,
    accumulate: str,
    **params: Any,
) -> Any:
    """Linear in b and the initial value: the recurrence in the other direction, with `a` and `reset` moved by one step."""
    (ct,) = cotangents
    b, a, reset, initial = _split(operands, present)
    out: list[Any] = [None] * len(operands)
    if type(ct) is ad.Zero:
        return out

    def moved(x: Any) -> Any:
        return x if x is None or x.shape[axis] == 1 != ct.shape[axis] else shift(x, axis, 1 if backward else -1)

    rows = [ct, moved(a), moved(reset)]
    (bar,) = bind(
        *[x for x in rows if x is not None],
        axis=axis,
        backward=not backward,
        present=(*(x is not None for x in rows), False),
        dtype=accumulate,
        accumulate=accumulate,
        **params,
    )
    if ad.is_undefined_primal(b):
        out[0] = _unbroadcast(bar, b.aval)
    if initial is not None and ad.is_undefined_primal(initial):
        first = bar.shape[axis] - 1 if backward else 0

        def row(x: Any) -> Any:
            return (
                lax.slice_in_dim(x, 0, 1, axis=axis)
                if x.shape[axis] == 1
                else lax.slice_in_dim(x, first, first + 1, axis=axis)
            )

        factor = row(a).astype(accumulate)
        if reset is not None:  # before the product, so that second derivatives are as clean
            factor = jnp.where(row(reset) != 0, 0, factor)
        through = factor * row(bar)
        out[-1] = _unbroadcast(through, initial.aval)
    return out


class JaxArrays:
    """The array functions of `formula.evaluate` in JAX; `recurrence` binds the primitive."""

    def __init__(self, bind: Callable[..., Any], accumulate: str, **params: Any) -> None:
        self._bind = bind
        self._accumulate = accumulate
        self._params = params

    def where(self, condition: Any, x: Any, y: Any) -> Any:
        return jnp.where(condition, x, y)

    def cast(self, x: Any, dtype: str) -> Any:
        return jnp.asarray(x).astype(dtype)

    def to_bool(self, x: Any) -> Any:
        return x if x.dtype == bool else x != 0

    def any_of(self, *flags: Any) -> Any:
        given = [f for f in flags if f is not None]
        return functools.reduce(operator.or_, given) if given else None

    def concat(self, parts: Any, axis: int) -> Any:
        return jnp.concatenate(parts, axis)

    def slice(self, x: Any, start: int, stop: int, axis: int) -> Any:
        return lax.slice_in_dim(x, start, max(start, stop), axis=axis)

    def broadcast(self, x: Any, shape: tuple[int, ...]) -> Any:
        return jnp.broadcast_to(x, shape)

    def invert(self, flags: Any) -> Any:
        return jnp.logical_not(flags)

    def exp(self, x: Any) -> Any:
        return jnp.exp(x)

    def minimum(self, x: Any, y: Any) -> Any:
        return jnp.minimum(x, y)

    def last_axis(self, x: Any) -> Any:
        return x[..., None]

    def expectation(self, x: Any, weights: Any) -> Any:
        return jnp.sum(x * weights, -1)

    def maximum(self, x: Any) -> Any:
        return jnp.max(x, -1)

    def arange(self, shape: tuple[int, ...], axis: int, like: Any) -> Any:
        return lax.broadcasted_iota(jnp.int32, tuple(s if k == axis else 1 for k, s in enumerate(shape)), axis)

    def compressing(self, mask: Any, axis: int) -> Any:
        return jnp.argsort(jnp.logical_not(mask), axis=axis, stable=True)

    def take(self, x: Any, indices: Any, axis: int) -> Any:
        return jnp.take_along_axis(x, indices, axis)

    def untake(self, x: Any, indices: Any, axis: int) -> Any:
        return jnp.put_along_axis(jnp.zeros_like(x), indices, x, axis, inplace=False)

    def along(self, x: Any, axis: int) -> Any:
        return jnp.max(x, axis, keepdims=True)

    def zero_edge(self, x: Any, axis: int) -> Any:
        return jnp.zeros_like(lax.slice_in_dim(x, 0, 1, axis=axis))

    def incoming(self, x: Any, edge: Any, axis: int, backward: bool) -> Any:
        return edge

    def size(self, x: Any) -> int:
        return x.size

    def total(self, x: Any) -> Any:
        return jnp.sum(x)

    def largest(self, x: Any) -> Any:
        return lax.stop_gradient(jnp.max(x))

    def sqrt(self, x: Any) -> Any:
        return jnp.sqrt(x)

    def recurrence(self, a: Any, b: Any, reset: Any, initial: Any, axis: int, backward: bool) -> Any:
        if isinstance(a, (int, float)):
            a = np.full((1,) * b.ndim, a, self._accumulate)
        operands = [b, a, reset, initial]
        (y,) = self._bind(
            *[x for x in operands if x is not None],
            axis=axis,
            backward=backward,
            wanted=(True,),
            present=tuple(x is not None for x in operands),
            dtype=self._accumulate,
            accumulate=self._accumulate,
            standardize=None,
            **self._params,
        )
        return y


def evaluate_recurrence(
    operands: Any,
    *,
    shape: tuple[int, ...],
    axis: int,
    backward: bool,
    present: tuple[bool, ...],
    dtype: str,
    accumulate: str,
    parallel: bool,
) -> Any:
    """The recurrence primitive's own formula."""
    b, a, reset, initial = _split(operands, present)
    b = jnp.broadcast_to(b, shape).astype(accumulate)
    form = tree if parallel else serial
    y = form(
        a.astype(accumulate),
        b,
        None if reset is None else reset != 0,
        None if initial is None else initial.astype(accumulate),
        axis=axis,
        backward=backward,
    )
    return [y.astype(dtype)]

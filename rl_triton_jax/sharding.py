"""How one call is spread over devices inside `jax.jit`: each works on the columns and steps it holds.

Batch axes are independent: every device runs the local computation, and nothing is exchanged. Where the time axis is sharded,
each device walks its own steps, and one map y -> a*y + b per column and device goes around (all_gather): from it everybody
knows the carry that its steps begin with. What a step wants to know of its neighbour (V(s_{t+1}), say) comes from the next
device, one row. So the formula of any estimator is evaluated as on one device, with three functions exchanged: the
recurrence, the row that comes in from beyond, and which step is the first.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import jax.numpy as jnp
from jax import lax
from jax.experimental.custom_partitioning import custom_partitioning
from jax.sharding import NamedSharding, PartitionSpec

from . import versions
from .estimator import Estimator, Role
from .formula import LINEAR_RECURRENCE, evaluate, standardized
from .recurrence import JaxArrays

Names = tuple[str, ...]


def _names(entry: Any) -> Names:
    """The mesh axes of one entry of a PartitionSpec."""
    return () if entry is None else (entry,) if isinstance(entry, str) else tuple(entry)


class ShardArrays(JaxArrays):
    """The array functions of `formula.evaluate` for one shard; `time` and `others` are the mesh axes that split each kind."""

    def __init__(
        self, bind: Callable[..., Any], accumulate: str, *, time: Names, others: Names, mesh: Any, **params: Any
    ) -> None:
        super().__init__(bind, accumulate, **params)
        self._time, self._all = time, (*time, *others)
        self._shards = math.prod(mesh.shape[name] for name in time)
        self._pieces = math.prod(mesh.shape[name] for name in self._all)

    def _begins(self, backward: bool) -> Any:
        """Whether the walk begins in this shard."""
        return self.index() == (self._shards - 1 if backward else 0)

    def index(self) -> Any:
        """Which shard of the time axis this is."""
        return lax.axis_index(self._time)

    def size(self, x: Any) -> int:
        return math.prod(x.shape) * self._pieces

    def total(self, x: Any) -> Any:
        return lax.psum(jnp.sum(x), self._all) if self._all else jnp.sum(x)

    def largest(self, x: Any) -> Any:
        largest = lax.stop_gradient(jnp.max(x))
        return lax.pmax(largest, self._all) if self._all else largest

    def incoming(self, x: Any, edge: Any, axis: int, backward: bool) -> Any:
        if not self._time:
            return edge
        S, T = self._shards, x.shape[axis]
        row = lax.slice_in_dim(x, 0, 1, axis=axis) if backward else lax.slice_in_dim(x, T - 1, T, axis=axis)
        if len(self._time) == 1:
            pairs = [(s + 1, s) if backward else (s, s + 1) for s in range(S - 1)]
            beyond = lax.ppermute(row, self._time, pairs)
        else:  # `ppermute` numbers several axes in the order of the mesh, not of the sharding
            neighbour = jnp.clip(self.index() + (1 if backward else -1), 0, S - 1)
            beyond = lax.dynamic_index_in_dim(lax.all_gather(row, self._time), neighbour, 0, keepdims=False)
        return jnp.where(self._begins(backward), edge, beyond)

    def first(self, shape: tuple[int, ...], axis: int, backward: bool, like: Any) -> Any:
        first = super().first(shape, axis, backward, like)
        return first & self._begins(backward) if self._time else first

    def steps_left(self, shape: tuple[int, ...], axis: int, backward: bool, like: Any) -> Any:
        left = super().steps_left(shape, axis, backward, like)
        if not self._time:
            return left
        return left + shape[axis] * (self.index() if backward else self._shards - 1 - self.index())

    def most(self, x: Any, axis: int) -> Any:
        most = super().most(x, axis)
        return lax.pmax(most, self._time) if self._time else most

    def recurrence(self, a: Any, b: Any, reset: Any, initial: Any, axis: int, backward: bool) -> Any:
        if not self._time:
            return super().recurrence(a, b, reset, initial, axis, backward)
        zeros = jnp.zeros_like(b)
        one = jnp.ones((1,) * b.ndim, b.dtype)
        inside = super().recurrence(a, b, reset, None, axis, backward)
        factor = super().recurrence(a, zeros, reset, one, axis, backward)  # of the carry that comes in
        # Whether that carry arrives at all: a product cannot tell, when the carry is NaN or infinite.
        arrives = None if reset is None else super().recurrence(1.0, zeros, reset, one, axis, backward) != 0
        end = 0 if backward else b.shape[axis] - 1

        def gathered(x: Any) -> Any:
            return lax.all_gather(lax.slice_in_dim(x, end, end + 1, axis=axis), self._time)

        factors, insides = gathered(factor), gathered(inside)
        arrive = None if arrives is None else gathered(arrives)
        carry = jnp.zeros_like(insides[0]) if initial is None else jnp.broadcast_to(initial, insides[0].shape)
        me = self.index()
        for s in reversed(range(self._shards)) if backward else range(self._shards):
            through = factors[s] * carry + insides[s]
            if arrive is not None:
                through = jnp.where(arrive[s], through, insides[s])
            carry = jnp.where(s > me if backward else s < me, through, carry)
        y = factor * carry + inside
        return y if arrives is None else jnp.where(arrives, y, inside)


def _expand(operands: Sequence[Any], present: Sequence[bool]) -> list[Any]:
    rest = iter(operands)
    return [next(rest) if given else None for given in present]


def _splits_time(estimator: Estimator) -> bool:
    """Whether the formula is one recurrence, so that steps may lie on several devices."""
    return estimator.whole is None


class _Layout:
    """Which axis of which operand goes with which axis of the result; axes of size 1 go with none."""

    def __init__(self, estimator: Estimator, shapes: Sequence[Any], result: Any, axis: int, present: Sequence[bool]):
        self.axes: list[list[int | None]] = []
        which = [k for k, given in enumerate(present) if given]
        for k, shape in zip(which, shapes, strict=True):
            rank = len(shape) - (estimator.operands[k].role is Role.ACTIONS)
            row = [i if shape[i] == result[i] != 1 else None for i in range(rank)]
            self.axes.append(row + [None] * (len(shape) - rank))

    def rule(self, rank: int, results: int, keep_time: bool, axis: int) -> tuple[str, dict[str, Any]]:
        """For Shardy: an axis that goes with one of the result is a factor d<axis>, all others are whole everywhere."""
        whole: list[str] = [] if keep_time else [f"d{axis}"]

        def alone() -> str:
            whole.append(f"w{len(whole)}")
            return whole[-1]

        operands = [" ".join(alone() if i is None else f"d{i}" for i in row) for row in self.axes]
        result = " ".join(f"d{i}" for i in range(rank))
        # A factor that no operand has (a result axis of size 1) needs no replication; one must not be listed twice.
        return f"{', '.join(operands)} -> {', '.join([result] * results)}", {"need_replication_factors": tuple(whole)}

    def specs(self, result: Sequence[Any]) -> list[PartitionSpec]:
        return [PartitionSpec(*(None if i is None else result[i] for i in row)) for row in self.axes]


@functools.lru_cache(maxsize=256)
def partitioned(estimator: Estimator, primitive: Any, recurrence: Any, parameters: tuple[tuple[str, Any], ...]) -> Any:
    """The primitive with these parameters as a function that XLA's partitioner knows how to split."""
    params = dict(parameters)
    axis, present, standardize = params["axis"], params["present"], params["standardize"]
    count = sum(params.get("wanted", (True,)))

    def whole(*operands: Any) -> Any:
        return tuple(primitive.bind(*operands, **params))

    def layout(operands: Any, result: Any) -> _Layout:
        return _Layout(estimator, [x.shape for x in operands], result.shape, axis, present)

    def partition(mesh: Any, operands: Any, results: Any) -> Any:
        result = results[0]
        rank = len(result.shape)
        given = tuple(result.sharding.spec) if isinstance(result.sharding, NamedSharding) else ()
        spec = [_names(entry) for entry in (*given, *(None,) * (rank - len(given)))]
        for i, size in enumerate(result.shape):
            shards = math.prod(mesh.shape[name] for name in spec[i])
            # XLA would fill the last shard up: harmless in batch axes, unless entries are to be averaged.
            uneven = size % shards and (i == axis or standardize is not None)
            if size <= 1 or uneven or (i == axis and not _splits_time(estimator)):
                spec[i] = ()
        entries = [names or None for names in spec]
        time = spec[axis]
        others = tuple(name for i, names in enumerate(spec) if i != axis for name in names)
        arguments = [NamedSharding(mesh, s) for s in layout(operands, result).specs(entries)]

        def local(*operands: Any) -> Any:
            with versions.without_mesh():
                return on_this_device(operands)

        def on_this_device(operands: Any) -> Any:
            xp = ShardArrays(
                recurrence.bind,
                params["accumulate"],
                time=time,
                others=others,
                mesh=mesh,
                implementation=params["implementation"],
                route=params["route"],
                name=params["name"],
            )
            shape = tuple(
                -(-size // math.prod(mesh.shape[name] for name in names))
                for size, names in zip(result.shape, spec, strict=True)
            )
            if time:
                return _by_formula(estimator, xp, operands, shape, params)
            if standardize is None:
                return tuple(primitive.bind(*operands, **params))
            raw = {**params, "standardize": None, "dtype": params["accumulate"]}
            outs = primitive.bind(*operands, **raw)
            mask = estimator.position(Role.MASK)
            mask = None if mask is None else _expand(operands, present)[mask]
            mask = None if mask is None else xp.to_bool(mask)
            outs[standardize] = standardized(xp, outs[standardize], mask, params["accumulate"])
            return tuple(x.astype(params["dtype"]) for x in outs)

        return mesh, local, tuple(NamedSharding(mesh, PartitionSpec(*entries)) for _ in range(count)), tuple(arguments)

    def rule(mesh: Any, operand_types: Any, result_types: Any) -> Any:
        shapes = [tuple(t.shape) for t in operand_types]
        result = tuple(result_types[0].shape)
        shaped = _Layout(estimator, shapes, result, axis, present)
        return shaped.rule(len(result), len(result_types), _splits_time(estimator), axis)

    function = custom_partitioning(whole)
    function.def_partition(partition=partition, sharding_rule=rule)
    return function


def _by_formula(
    estimator: Estimator, xp: ShardArrays, operands: Sequence[Any], shape: tuple[int, ...], params: dict[str, Any]
) -> Any:
    """The estimator where this shard holds some of the steps."""
    axis, present = params["axis"], params["present"]
    if estimator is LINEAR_RECURRENCE:
        b, a, reset, initial = _expand(operands, present)
        acc = params["accumulate"]
        y = xp.recurrence(
            a.astype(acc),
            jnp.broadcast_to(b, shape).astype(acc),
            None if reset is None else reset != 0,
            None if initial is None else initial.astype(acc),
            axis,
            params["backward"],
        )
        return (y.astype(params["dtype"]),)
    local = []
    steps = shape[axis]
    for k, x in enumerate(_expand(operands, present)):
        if x is not None and estimator.operands[k].edge and x.shape[axis] not in (1, steps):
            # One more row than there are steps in all: that after this shard's last one is its own edge.
            x = lax.dynamic_slice_in_dim(x, xp.index() * steps, steps + 1, axis)
        local.append(x)
    return tuple(
        evaluate(
            estimator,
            xp,
            local,
            shape=shape,
            axis=axis,
            backward=params["backward"],
            dtype=params["dtype"],
            accumulate=params["accumulate"],
            wanted=params["wanted"],
            standardize=params["standardize"],
        )
    )

"""From a call's arrays to numbers: validation (the only place that checks shapes and dtypes) and the canonical form.

Works on anything with `.shape` and `.dtype`, so both front ends share every rule and every message.
"""

from __future__ import annotations

import dataclasses
import functools
import math
import operator
from collections.abc import Mapping, Sequence
from typing import Any

from .estimator import Estimator, Role
from .kernels.plan import Array, Fold, Problem

FLOATS = ("float16", "bfloat16", "float32", "float64")
INTEGERS = ("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")


def dtype_name(x: Any) -> str:
    """ "float32" for jnp.float32, np.float32 and torch.float32 alike."""
    return _name(x.dtype)


@functools.lru_cache(maxsize=256)
def _name(dtype: Any) -> str:
    return str(dtype).rpartition(".")[2]


def is_number(x: Any) -> bool:
    return isinstance(x, (bool, int, float))


def is_array(x: Any) -> bool:
    return not is_number(x) and hasattr(x, "shape") and hasattr(x, "dtype")


@dataclasses.dataclass(frozen=True)
class Call:
    """A validated call: `shape` of the outputs, `axis` >= 0, which operands carry a row beyond the walk's start."""

    shape: tuple[int, ...]
    axis: int

    @property
    def steps(self) -> int:
        return self.shape[self.axis]

    @property
    def batch(self) -> tuple[int, ...]:
        return self.shape[: self.axis] + self.shape[self.axis + 1 :]


def _text(shape: Sequence[Any]) -> str:
    return "[" + ", ".join(str(s) for s in shape) + "]"


def _describe(x: Any) -> str:
    return f"{dtype_name(x)}{_text(x.shape)}" if is_array(x) else f"{type(x).__name__} {x!r}"


def integer(name: str, label: str, x: Any) -> int:
    """A Python or NumPy integer; True is none."""
    try:
        if isinstance(x, bool):
            raise TypeError
        return operator.index(x)
    except TypeError:
        raise TypeError(f"{name}: `{label}` must be an integer, got {type(x).__name__} {x!r}") from None


def truth(name: str, label: str, x: Any) -> bool:
    """True or False: anything else is more likely a mistake ("no" would be true)."""
    if type(x).__name__ not in ("bool", "bool_"):
        raise TypeError(f"{name}: `{label}` must be True or False, got {type(x).__name__} {x!r}")
    return bool(x)


def validate(estimator: Estimator, arguments: Mapping[str, Any], axis: Any, name: str = "") -> Call:
    """Checks every operand of a call against the estimator's description.

    Raises TypeError for what is no array (or number, where one will do) or has a dtype that cannot be used, ValueError for
    wrong shapes; each names the argument, what was got and what was expected, and the function that was called: `name`, where
    that is not the estimator.
    """
    name = name or estimator.name
    main = estimator.operands[0].name
    first = arguments[main]
    for operand in estimator.operands:
        x = arguments[operand.name]
        if x is None:
            if operand.role in (Role.DECAY, Role.FACTOR) and operand.required:
                raise TypeError(f"{name}: `{operand.name}` is required: a number or an array")
            continue
        numbers = operand.role in (Role.DECAY, Role.FACTOR, Role.EDGE)
        if is_number(x) and numbers:
            continue
        if not is_array(x):
            wanted = "an array or a number" if numbers else "an array"
            raise TypeError(f"{name}: `{operand.name}` must be {wanted}, got {type(x).__name__}")
        dtype = dtype_name(x)
        if dtype not in FLOATS + INTEGERS:
            raise TypeError(
                f"{name}: `{operand.name}` has dtype {dtype}; expected one of {', '.join(FLOATS)}, an integer or bool"
            )
    if first is None:
        raise TypeError(f"{name}: `{main}` is required")
    rank = len(first.shape)
    if rank == 0:
        raise ValueError(f"{name}: `{main}` must have a time axis, got a 0-d array")
    index = integer(name, "axis", axis)
    if not -rank <= index < rank:
        raise ValueError(f"{name}: `axis` {index} is out of range for `{main}` of shape {_text(first.shape)}")
    call = Call(tuple(int(s) for s in first.shape), index % rank)
    for operand in estimator.operands[1:]:
        x = arguments[operand.name]
        if x is not None and is_array(x):
            _check_shape(estimator, operand, tuple(x.shape), call, main, name)
    _check_actions(estimator, arguments, name)
    return call


def _check_actions(estimator: Estimator, arguments: Mapping[str, Any], called: str) -> None:
    """All arrays with an action axis have the same number of actions, one at least."""
    given = [
        (o.name, arguments[o.name].shape)
        for o in estimator.operands
        if o.role is Role.ACTIONS and arguments[o.name] is not None
    ]
    for name, shape in given:
        if shape[-1] == 0 or shape[-1] != given[0][1][-1]:
            also = "" if name == given[0][0] else f", `{given[0][0]}` has {given[0][1][-1]}"
            raise ValueError(f"{called}: `{name}` has {shape[-1]} actions along its last axis{also}")


def _check_shape(estimator: Estimator, operand: Any, shape: tuple[int, ...], call: Call, main: str, name: str) -> None:
    def got() -> str:  # made only when it is said: sizes may be symbols, which torch's compiler cannot write out
        return f"{name}: `{operand.name}` has shape {_text(shape)}"

    def where() -> str:
        return f"`{main}` of shape {_text(call.shape)} and axis={call.axis}"

    if operand.role is Role.EDGE:
        if shape not in ((), call.batch):
            raise ValueError(f"{got()}; expected {_text(call.batch)} (the batch axes of {where()}) or a number")
    elif operand.role is Role.ACTIONS:
        if len(shape) != len(call.shape) + 1 or shape[:-1] != call.shape:
            raise ValueError(
                f"{got()}; expected {_text((*call.shape, 'A'))}, as {where()} and one more axis for the A actions"
            )
    elif operand.role is Role.DATA:
        longer = tuple(s + (k == call.axis) for k, s in enumerate(call.shape))
        if shape == call.shape or (operand.edge and shape == longer):
            return
        also = f", or {_text(longer)} with one more step" if operand.edge else ""
        raise ValueError(f"{got()}; expected {_text(call.shape)}, as {where()}{also}")
    else:
        if shape == () and operand.role in (Role.DECAY, Role.FACTOR):
            return
        if estimator.features and operand.role is Role.FLAG and shape == call.shape[: len(shape)] and shape:
            if call.axis < len(shape):
                return
            raise ValueError(f"{got()}, which lacks the time axis of {where()}")
        if len(shape) != len(call.shape):
            number = "a number, or " if operand.role in (Role.DECAY, Role.FACTOR) else ""
            raise ValueError(
                f"{got()}; expected {number}the same number of axes as {where()}: a lower-rank array could mean "
                f"[T] or [N], so write out its size-1 axes, e.g. x[:, None] for one value for each step"
            )
        if any(s not in (1, full) for s, full in zip(shape, call.shape, strict=True)):
            raise ValueError(f"{got()}; each axis must be 1 or that of {where()}")


def has_extra_row(estimator: Estimator, k: int, x: Any, steps: int, axis: int) -> bool:
    """Whether operand `k` brings its own edge as one more row (values with T+1 steps)."""
    return bool(estimator.operands[k].edge) and x is not None and x.shape[axis] == steps + 1


def result_dtype(estimator: Estimator, arguments: Mapping[str, Any], promote: Any) -> str:
    """The promoted dtype of the floating data operands; float32 where none is floating.

    Where the estimator keeps integers, those of the first operand stay, in 32 bits at least.
    """
    main = dtype_name(arguments[estimator.operands[0].name])
    if estimator.integers and main in INTEGERS:
        return main if main.endswith(("32", "64")) else "int32"
    names = []
    for operand in estimator.operands:
        x = arguments[operand.name]
        if (
            operand.role not in (Role.DATA, Role.EDGE, Role.FACTOR, Role.ACTIONS)
            or x is None
            or is_number(x)
            or len(x.shape) == 0
        ):
            continue  # a 0-d array counts as a number
        if dtype_name(x) in FLOATS:
            names.append(dtype_name(x))
    if not names:
        return "float32"
    result = names[0]
    for other in names[1:]:
        result = promote(result, other)
    return result


def accumulation_dtype(dtype: str) -> str:
    """16-bit data are computed in float32. Unsigned sums are the signed ones, bit for bit."""
    if dtype in INTEGERS:
        return "int64" if dtype.endswith("64") else "int32"
    return "float64" if dtype == "float64" else "float32"


# ---- the canonical form


@dataclasses.dataclass(frozen=True)
class View:
    """An array as the kernels may read it: one stride for each axis of the call (0 where it broadcasts)."""

    dtype: str
    strides: tuple[int, ...]
    extra_row: bool = False
    by_value: bool = False
    by_action: int = 0  # stride along the action axis, and its length, where there is one
    actions: int = 0


def row_major(shape: Sequence[int]) -> tuple[int, ...]:
    strides = []
    step = 1
    for size in reversed(shape):
        strides.append(step)
        step *= size
    return tuple(reversed(strides))


def broadcast_strides(shape: Sequence[int], strides: Sequence[int]) -> tuple[int, ...]:
    return tuple(0 if size == 1 else stride for size, stride in zip(shape, strides, strict=True))


def view_of(
    estimator: Estimator, k: int, dtype: str, shape: Sequence[int], strides: Sequence[int], steps: int, axis: int
) -> View:
    """Operand `k` as memory; all operands have the rank of the call, but for the action axis."""
    if estimator.operands[k].role is Role.ACTIONS:
        return View(dtype, broadcast_strides(shape[:-1], strides[:-1]), by_action=strides[-1], actions=shape[-1])
    extra = bool(estimator.operands[k].edge) and shape[axis] == steps + 1
    return View(dtype, broadcast_strides(shape, strides), extra)


def canonical(
    estimator: Estimator,
    shape: tuple[int, ...],
    axis: int,
    views: Sequence[View | None],
    outputs: Sequence[tuple[View, int]],
    backward: bool,
    accumulate: str,
    standardize: int | None = None,
) -> Problem:
    """The kernels' problem. Batch axes are put in memory order and merged where every array allows it."""
    present = [v for v in views if v is not None] + [v for v, _ in outputs]
    axes = [k for k, size in enumerate(shape) if k != axis and size > 1]
    lead = outputs[0][0] if outputs else present[0]
    axes.sort(key=lambda k: -lead.strides[k])
    groups: list[list[int]] = []  # outermost first; each a run of axes that every array walks with one stride
    for k in axes:
        if groups and all(v.strides[groups[-1][-1]] == v.strides[k] * shape[k] for v in present):
            groups[-1].append(k)
        else:
            groups.append([k])
    sizes = tuple(math.prod(shape[k] for k in group) for group in reversed(groups)) or (1,)
    innermost = [group[-1] for group in reversed(groups)]
    steps = shape[axis]

    buffers = [k for k, v in enumerate(views) if v is not None]

    def array(k: int, only_where: int = -1, edge: bool = False) -> Array | None:
        view = views[k]
        if view is None:
            return None
        levels = tuple(view.strides[i] for i in innermost) or (0,)
        time, offset = view.strides[axis], 0
        if edge:  # the extra row of a longer array
            time, offset = 0, steps * view.strides[axis]
        role = estimator.operands[k].role
        return Array(buffers.index(k), time, levels, offset, role in (Role.FLAG, Role.MASK), only_where, view.by_value)

    def fold(names: Sequence[str]) -> Fold | None:
        given = [estimator.index(name) for name in names]
        members = [views[k] for k in given]
        if not names or any(v is None for v in members):
            return None
        arrays = tuple(array(k) for k in given)
        assert all(a is not None for a in arrays)
        first = members[0]
        assert first is not None
        return Fold(tuple(a for a in arrays if a), tuple(v.by_action for v in members if v), first.actions)

    walked = estimator.walked
    operands = []
    for k in walked:
        if views[k] is None and estimator.operands[k].folds:
            operands.append(fold(estimator.operands[k].folds))
            continue
        name = estimator.operands[k].only_where
        only = walked.index(estimator.index(name)) if name and views[estimator.index(name)] is not None else -1
        operands.append(array(k, only))
    near = []
    for k in estimator.neighbours:
        view = views[k]
        if view is not None and view.extra_row:
            near.append((walked.index(k), array(k, edge=True)))
        else:
            edge = estimator.operands[k].edge
            near.append((walked.index(k), array(estimator.index(edge)) if edge else None))
    initial, mask = estimator.position(Role.EDGE, carry=True), estimator.position(Role.MASK)
    results = tuple(
        (Array(j, v.strides[axis], tuple(v.strides[i] for i in innermost) or (0,)), which)
        for j, (v, which) in enumerate(outputs)
    )
    return Problem(
        estimator.name,
        steps,
        sizes,
        tuple(operands),
        tuple(near),
        None if initial is None else array(initial),
        None if mask is None else array(mask),
        results,
        standardize,
        backward,
        estimator.uses_first,
        estimator.uses_before,
        estimator.window,
        accumulate,
        tuple(v.dtype for v in views if v is not None),
        tuple(v.dtype for v, _ in outputs),
    )


def flags(estimator: Estimator) -> tuple[bool, ...]:
    return tuple(estimator.operands[k].role is Role.FLAG for k in estimator.walked)

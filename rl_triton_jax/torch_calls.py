"""Calls of the torch front end that were made before, kept so that the next one of the same kind is a look-up and a launch.

A call's kind is everything but the numbers that the kernels take by value and the memory of its tensors. What such a call
launches, which argument is which input of the kernels and how results are wrapped is learnt once, by watching the estimator's
own function do it; nothing here knows an estimator.
"""

from __future__ import annotations

import functools
import inspect
import operator
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Concatenate, ParamSpec, TypeVar, cast

import torch
from torch.autograd import forward_ad

from . import versions
from .estimator import Estimator
from .front import offered_by
from .launch import from_torch, torch_ops

P = ParamSpec("P")
R = TypeVar("R")
Tensor = torch.Tensor
# Arguments of these types are part of a call's kind by value.
_BY_VALUE = frozenset({int, bool, str, type(None)})


# How to make the results of each kind of call; None where it cannot be remembered.
_known: dict[Any, Callable[[Sequence[Any]], Any] | None] = {}
# The latest of these by all of a kind but what tensors are like, each behind a quick test for that.
_recent: dict[Any, list[tuple[Callable[..., bool], Callable[[Sequence[Any]], Any]]]] = {}
MOST_RECENT = 8
# What stands for a tensor in the outline of a call: how far its address is off a multiple of 16 bytes.
_OFFSETS = tuple(object() for _ in range(16))


def forget() -> None:
    """As if no call had been made."""
    _known.clear()
    _recent.clear()


class _Number(float):
    """A float that can be told from every other one."""


class _Listener:
    """A front end that passes calls on and notes what came of them."""

    def __init__(self, front: Any) -> None:
        self._front = front
        self.calls: list[tuple[list[Any], from_torch.Ready | None, list[Any]]] = []

    def call(self, estimator: Estimator, operands: Mapping[str, Any], **options: Any) -> list[Any]:
        outputs, ready = self._front.launched(estimator, operands, **options)
        given = [operands.get(o.name) for o in estimator.operands]
        self.calls.append(([x for x in given if x is not None], ready, outputs))
        return list(outputs)

    def sequence_ends(self, *arguments: Any) -> Any:
        return self._front.sequence_ends(*arguments)


def _wrapping(result: Any, outputs: Sequence[Any]) -> Callable[[list[Any]], Any] | None:
    """How `result` is made from `outputs`; None where it is more than these with names on."""

    def place(x: Any) -> int | None:
        return next((k for k, y in enumerate(outputs) if x is y), None)

    if isinstance(result, Tensor):
        which = place(result)
        return None if which is None else operator.itemgetter(which)
    kind: Any = type(result)
    if not hasattr(kind, "_make"):
        return None
    places = [place(x) for x in result]
    if any(p is None and x is not None for p, x in zip(places, result, strict=True)):
        return None
    if places == list(range(len(outputs))):
        return kind._make
    return lambda outputs: kind(*[None if p is None else outputs[p] for p in places])


def _learn(
    front: Any, function: Callable[..., Any], arguments: Sequence[Any], keywords: Mapping[str, Any]
) -> tuple[Any, Callable[[Sequence[Any]], Any] | None]:
    """The result of a call, and how to make that of another of its kind from addresses and numbers, or None.

    Every argument is made an object of its own first, so that an operand can be recognised as one of them: an argument changed on
    its way, however little, is not recognised, and the call is not remembered.
    """
    own: list[Any] = [
        x.detach() if isinstance(x, Tensor) else _Number(x) if type(x) is float else x
        for x in (*arguments, *keywords.values())
    ]
    split = len(arguments)
    parameters = list(inspect.signature(function).parameters.values())[1:]
    given = {p.name for p in parameters[:split]} | set(keywords)
    defaults = {p.name: _Number(p.default) for p in parameters if type(p.default) is float and p.name not in given}
    listener = _Listener(front)
    result = function(listener, *own[:split], **defaults, **dict(zip(keywords, own[split:], strict=True)))
    if len(listener.calls) != 1:
        return result, None
    ((operands, ready, outputs),) = listener.calls
    wrap = _wrapping(result, outputs)
    if ready is None or wrap is None:
        return result, None
    places: list[int] = []
    constants: list[Any] = []
    for x in operands:
        fixed = type(x) in (int, bool) or any(x is y for y in defaults.values())
        where = next((k for k, y in enumerate(own) if x is y), None)
        if fixed:
            places.append(len(own) + len(constants))
            constants.append(ready.number(x))
        elif where is None or (type(x) is _Number and ready.number is int):
            return result, None
        else:
            places.append(where)
    # A number or a tensor that is no operand decides something else, by its value.
    if any(k not in places for k, x in enumerate(own) if isinstance(x, Tensor | _Number)):
        return result, None
    rest = tuple(constants)
    inputs = operator.itemgetter(*places) if len(places) > 1 else lambda values: (values[places[0]],)
    return result, lambda values: wrap(ready(inputs((*values, *rest))))


def _on_gpu(x: Any) -> bool:
    return x.is_cuda


def remembered(front: Any, function: Callable[Concatenate[Any, P], R]) -> Callable[P, R]:
    """`front.offered_by` for torch: goes straight to the launch where a call of the same kind went before."""
    slow: Callable[..., Any] = offered_by(front, function)
    slow.__module__ = sys._getframe(1).f_globals["__name__"]  # as in `offered_by`
    compiling, transformation, modes = torch.compiler.is_compiling, torch_ops.transformation, torch_ops.dispatch_modes
    recent = _recent

    @functools.wraps(slow)
    def call(*args: Any, **kwargs: Any) -> Any:
        # Every line here is on the path of every eager call: no helper, no attribute that can be had before.
        if compiling() or transformation() is not None or modes() or forward_ad._current_level >= 0:
            return slow(*args, **kwargs)
        outline: list[Any] = [function, tuple(kwargs)]
        values: list[Any] = []
        tensors: list[Any] = []
        try:
            for x in (*args, *kwargs.values()):
                t = type(x)
                if t is Tensor:
                    address = x.data_ptr()
                    outline.append(_OFFSETS[address & 15])
                    values.append(address)
                    tensors.append(x)
                else:
                    if t is float:
                        outline.append(t)
                    elif t in _BY_VALUE:
                        outline.append(x)
                    else:
                        return slow(*args, **kwargs)
                    values.append(x)
        except RuntimeError:  # no memory of the usual kind
            return slow(*args, **kwargs)
        known = tuple(outline)
        for alike, again in recent.get(known, ()):
            if alike(*tensors):
                return again(values)
        return _first(front, function, slow, known, values, tensors, args, kwargs)

    return cast(Callable[P, R], call)


def _first(
    front: Any,
    function: Callable[..., Any],
    slow: Callable[..., Any],
    outline: tuple[Any, ...],
    values: Sequence[Any],
    tensors: Sequence[Tensor],
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
) -> Any:
    """The result of a call that is not among the recent ones: of a kind from before, of a new one, or of none to remember."""
    gradients = torch.is_grad_enabled()
    if (
        not tensors
        or torch_ops.opaque()
        or any(not _on_gpu(x) or (gradients and x.requires_grad) or x.is_neg() for x in tensors)
    ):
        return slow(*args, **kwargs)
    kind = outline, *((x.shape, x.stride(), x.dtype, x.device) for x in tensors)
    if kind in _known:
        again = _known[kind]
        if again is None:
            return slow(*args, **kwargs)
        result = again(values)
    else:
        try:
            result, again = _learn(front, function, args, kwargs)
        except (TypeError, ValueError):
            again = result = None
        if result is None:
            return slow(*args, **kwargs)  # the call as it was given says better what is wrong with it
        from_torch.remember(_known, kind, again)
    if again is None or any(x.requires_grad for x in tensors):  # fit for no_grad only, which the test would not look at
        return result
    if (alike := versions.like_tensors(tensors)) is not None:
        from_torch.remember(_recent, outline, [(alike, again), *_recent.get(outline, ())[: MOST_RECENT - 1]])
    return result

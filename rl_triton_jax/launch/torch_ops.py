"""What torch's compiler, tracers and fake tensors see of the machinery: two operators, neither of which knows an algorithm.

`rl_triton_jax::recurrence` is the recurrence, differentiable to any order; `rl_triton_jax::launch` is a whole estimator, by name,
where no derivative is wanted. Numbers are tensors to them, so that a new number is no new program. Eager calls on ordinary
tensors go past both: an operator costs more time on the host than a launch.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, Optional

import torch
from torch.autograd import forward_ad

from .. import problem, versions
from ..estimator import Estimator, by_name
from ..formula import LINEAR_RECURRENCE

Tensor = torch.Tensor
PLAIN = (Tensor, torch.nn.Parameter)
transformation, dispatch_modes = versions.torch_watchers()


@torch.compiler.assume_constant_result  # the compiler guards on it by itself, but cannot follow the question
def transformed() -> bool:
    """Whether `torch.func` (vmap, grad, jvp) is at work, so that tensors may stand for others."""
    return transformation() is not None


def watched() -> bool:
    """Whether something follows every operation, or every operation on a tensor, and would not see a launch."""
    return transformation() is not None or dispatch_modes() > 0 or forward_ad._current_level >= 0


def opaque(*tensors: Any) -> bool:
    """Whether an operator has to stand for a launch: under the compiler, a tracer, or for what only looks like a tensor."""
    return (
        torch.compiler.is_compiling()
        or dispatch_modes() > 0
        or any(isinstance(x, Tensor) and type(x) not in PLAIN for x in tensors)
    )


# ---- the recurrence


def _serial(b: Tensor, a: Tensor, reset: Tensor | None, initial: Tensor, axis: int, backward: bool) -> Tensor:
    """The recurrence, a step at a time, in float64: long sums stay within what the kernels' trees promise."""
    T = b.shape[axis]
    out = torch.empty_like(b)
    b, a, initial = b.double(), a.double(), initial.double()
    y = initial.select(axis, 0)
    rows = [
        x if x is None or x.shape[axis] == T else x.expand(tuple(T if k == axis else s for k, s in enumerate(x.shape)))
        for x in (a, reset)
    ]
    for t in reversed(range(T)) if backward else range(T):
        assert rows[0] is not None
        b_t = b.select(axis, t)
        y = rows[0].select(axis, t) * y + b_t
        if rows[1] is not None:
            y = torch.where(rows[1].select(axis, t), b_t, y)
        out.select(axis, t).copy_(y)
    return out


def _walk(
    b: Tensor, a: Tensor, reset: Tensor | None, initial: Tensor, axis: int, backward: bool, kernels: bool
) -> Tensor:
    if not kernels or b.numel() == 0:
        return _serial(b, a, reset, initial, axis, backward)
    from . import from_torch

    dtype = problem.dtype_name(b)
    ((y,), _) = from_torch.run(LINEAR_RECURRENCE, [b, a, reset, initial], axis, backward, (True,), dtype, dtype)
    return y


@torch.library.custom_op("rl_triton_jax::recurrence", mutates_args=())
def recurrence_op(
    b: Tensor,
    a: Tensor,
    reset: Optional[Tensor],  # noqa: UP045  torch reads these annotations
    initial: Tensor,
    axis: int,
    backward: bool,
    kernels: bool,
) -> Tensor:
    return _walk(b, a, reset, initial, axis, backward, kernels)


@recurrence_op.register_fake
def _(b: Any, a: Any, reset: Any, initial: Any, axis: int, backward: bool, kernels: bool) -> Any:
    return torch.empty_like(b)


def _edges(x: Tensor, edge: Tensor, axis: int, backward: bool) -> Tensor:
    """Row t is `x` at the step walked before t; `edge` comes in at the first."""
    T = x.shape[axis]
    return torch.cat([x.narrow(axis, 1, T - 1), edge] if backward else [edge, x.narrow(axis, 0, T - 1)], axis)


def _moved(x: Any, axis: int, backward: bool) -> Any:
    """Row t is `x` at the step walked after t, as the derivative, which walks the other way, needs it."""
    if x is None or x.shape[axis] == 1:
        return x
    return _edges(x, torch.zeros_like(x.narrow(axis, 0, 1)), axis, not backward)


def _before(y: Tensor, reset: Tensor | None, initial: Tensor, axis: int, backward: bool) -> Tensor:
    """What `a` was multiplied by; 0 where the walk resets, so that whatever is dead there is no factor in any derivative."""
    before = _edges(y, initial.expand_as(y.narrow(axis, 0, 1)), axis, backward)
    return before if reset is None else torch.where(reset, torch.zeros_like(before), before)


def _gradient(recur: Callable[..., Tensor], ctx: Any, g: Tensor) -> tuple[Any, ...]:
    """Gradients by b, a, reset and the initial value, and for the options: the recurrence in the other direction."""
    a, reset, initial, y = ctx.saved_tensors
    axis, backward, kernels = ctx.options
    if y.numel() == 0:
        return torch.zeros_like(y), torch.zeros_like(a), None, torch.zeros_like(initial), None, None, None
    bar = recur(
        g,
        _moved(a, axis, backward),
        _moved(reset, axis, backward),
        torch.zeros_like(initial),
        axis,
        not backward,
        kernels,
    )
    first = y.shape[axis] - 1 if backward else 0

    def row(x: Any) -> Any:
        return x if x.shape[axis] == 1 else x.narrow(axis, first, 1)

    factor = row(a)
    if reset is not None:  # before the product, so that second derivatives are as clean
        factor = torch.where(row(reset), 0, factor)
    by_a = (bar * _before(y, reset, initial, axis, backward)).sum_to_size(a.shape)
    return bar, by_a, None, (factor * row(bar)).sum_to_size(initial.shape), None, None, None


def _save(ctx: Any, inputs: Any, output: Any) -> None:
    _, a, reset, initial, *options = inputs
    ctx.save_for_backward(a, reset, initial, output)
    ctx.options = options


recurrence_op.register_autograd(functools.partial(_gradient, recurrence_op), setup_context=_save)


def _led(x: Any, dim: int | None) -> Any:
    """With the batch axis in front; of size 1 where there is none."""
    return x if x is None else x.unsqueeze(0) if dim is None else x.movedim(dim, 0)


def _batched(recur: Callable[..., Tensor], size: int, dims: Sequence[Any], *arguments: Any) -> tuple[Tensor, int]:
    *tensors, axis, backward, kernels = arguments
    b, a, reset, initial = (_led(x, dim) for x, dim in zip(tensors, dims, strict=False))
    b, initial = (x.expand(size, *x.shape[1:]) for x in (b, initial))
    return recur(b, a, reset, initial, axis + 1, backward, kernels), 0


@recurrence_op.register_vmap
def _(info: Any, in_dims: Any, *arguments: Any) -> Any:
    return _batched(recurrence_op, info.batch_size, in_dims, *arguments)


class _Traced(torch.autograd.Function):
    """The same for `torch.func` within a compiled function: torch takes no operator with a derivative through it."""

    @staticmethod
    def forward(
        b: Tensor, a: Tensor, reset: Tensor | None, initial: Tensor, axis: int, backward: bool, kernels: bool
    ) -> Tensor:
        call = recurrence_op if opaque(b, a, reset, initial) else _walk
        return call(b, a, reset, initial, axis, backward, kernels)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        _save(ctx, inputs, output)

    @staticmethod
    def vmap(info: Any, in_dims: Any, *arguments: Any) -> Any:
        return _batched(_Traced.apply, info.batch_size, in_dims, *arguments)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        return _gradient(_Traced.apply, ctx, grads[0])


class Recurrence(_Traced):
    """The same for eager calls: cheaper on the host than an operator, and with a forward derivative."""

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        _save(ctx, inputs, output)
        ctx.save_for_forward(*inputs[1:4], output)

    @staticmethod
    def vmap(info: Any, in_dims: Any, *arguments: Any) -> Any:
        return _batched(Recurrence.apply, info.batch_size, in_dims, *arguments)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        return _gradient(Recurrence.apply, ctx, grads[0])

    @staticmethod
    def jvp(ctx: Any, *tangents: Any) -> Any:
        """dy_t = a_t dy_prev + (db_t + da_t y_prev), the second product cut where the walk resets."""
        a, reset, initial, y = ctx.saved_tensors
        db, da, _, d_initial, *_ = tangents
        axis, backward, kernels = ctx.options
        source = torch.zeros_like(y) if db is None else db
        if y.numel() == 0:
            return source
        if da is not None:
            source = source + da * _before(y, reset, initial, axis, backward)
        start = torch.zeros_like(initial) if d_initial is None else d_initial
        return Recurrence.apply(source, a, reset, start, axis, backward, kernels)


def recurrence(
    b: Tensor, a: Tensor, reset: Tensor | None, initial: Tensor, axis: int, backward: bool, kernels: bool
) -> Tensor:
    """y_t = a_t y + b_t from the step walked before, y_t = b_t where reset; `kernels` says whether Triton does it."""
    if torch.compiler.is_compiling():
        call = _Traced.apply if transformed() else recurrence_op
    else:
        call = Recurrence.apply
    return call(b, a, reset, initial, axis, backward, kernels)


# ---- an estimator


@torch.library.custom_op("rl_triton_jax::launch", mutates_args=())
def launch_op(
    operands: Sequence[Optional[Tensor]],  # noqa: UP045
    estimator: str,
    window: int,
    axis: int,
    backward: bool,
    wanted: Sequence[bool],
    dtype: torch.dtype,
    standardize: int,
) -> list[Tensor]:
    """The wanted outputs of `by_name(estimator, window)`. Operands have the rank of the first; `standardize` is -1 for none."""
    from . import from_torch

    name = str(dtype).rpartition(".")[2]
    accumulate = problem.accumulation_dtype(name)
    chosen = None if standardize < 0 else standardize
    outputs, _ = from_torch.run(
        by_name(estimator, window), operands, axis, backward, tuple(wanted), name, accumulate, standardize=chosen
    )
    return outputs


@launch_op.register_fake
def _(
    operands: Any,
    estimator: str,
    window: int,
    axis: int,
    backward: bool,
    wanted: Any,
    dtype: torch.dtype,
    standardize: int,
) -> Any:
    return [torch.empty_like(operands[0], dtype=dtype) for want in wanted if want]


@launch_op.register_vmap
def _(info: Any, in_dims: Any, operands: Any, estimator: str, window: int, axis: int, *options: Any) -> Any:
    led = [_led(x, dim) for x, dim in zip(operands, in_dims[0], strict=True)]
    led[0] = led[0].expand(info.batch_size, *led[0].shape[1:])
    outputs = launch_op(led, estimator, window, axis + 1, *options)
    return outputs, [0] * len(outputs)


def launch(
    estimator: Estimator,
    operands: Sequence[Any],
    axis: int,
    backward: bool,
    wanted: tuple[bool, ...],
    dtype: str,
    standardize: int | None,
) -> list[Tensor]:
    """The wanted outputs; every operand is a tensor or None."""
    number = -1 if standardize is None else standardize
    return launch_op(
        list(operands), estimator.name, estimator.window, axis, backward, wanted, getattr(torch, dtype), number
    )

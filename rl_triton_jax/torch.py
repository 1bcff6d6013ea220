"""The same functions for torch tensors: `rl_triton_jax.torch.gae(...)` as `rl_triton_jax.gae`.

On CUDA tensors they launch the Triton kernels directly (no JAX in the path, any strides, the current stream, no
synchronisation); on CPU tensors they evaluate the same formula with torch functions. Where a gradient is wanted, the formula
is evaluated around the recurrence, whose forward and backward passes are the kernels again.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Mapping, Sequence
from typing import Any

from . import problem, versions
from .estimator import Estimator, Role, has_kernel
from .estimators.discounted_returns import discounted_returns as _discounted_returns
from .estimators.eligibility_traces import eligibility_traces as _eligibility_traces
from .estimators.episodic_cumsum import episodic_cumsum as _episodic_cumsum
from .estimators.gae import GAE
from .estimators.gae import gae as _gae
from .estimators.gae_packed import gae_packed as _gae_packed
from .estimators.lambda_returns import lambda_returns as _lambda_returns
from .estimators.lambda_returns import q_lambda as _q_lambda
from .estimators.linear_recurrence import linear_recurrence as _linear_recurrence
from .estimators.n_step_returns import n_step_returns as _n_step_returns
from .estimators.off_policy import Retrace
from .estimators.off_policy import general_off_policy_returns as _general_off_policy_returns
from .estimators.off_policy import retrace as _retrace
from .estimators.off_policy import tree_backup as _tree_backup
from .estimators.upgo import upgo as _upgo
from .estimators.vtrace import VTrace
from .estimators.vtrace import puffer_advantage as _puffer_advantage
from .estimators.vtrace import vtrace as _vtrace
from .formula import LINEAR_RECURRENCE, evaluate
from .front import check_implementation, offered_by
from .kernels.plan import plan

try:
    import torch
except ImportError as error:
    raise ImportError("rl_triton_jax.torch needs PyTorch: pip install 'rl_triton_jax[torch]'") from error

Tensor = torch.Tensor
_functorch_level = versions.functorch_level()


def _promote(a: str, b: str) -> str:
    return str(torch.promote_types(getattr(torch, a), getattr(torch, b))).rpartition(".")[2]


class TorchArrays:
    """The array functions of `formula.evaluate` in torch."""

    def __init__(self, accumulate: str, implementation: str | None) -> None:
        self._accumulate = getattr(torch, accumulate)
        self._implementation = implementation

    def where(self, condition: Any, x: Any, y: Any) -> Any:
        return torch.where(condition, x, y)

    def cast(self, x: Any, dtype: str) -> Any:
        return x.to(getattr(torch, dtype))

    def to_bool(self, x: Any) -> Any:
        return x if x.dtype == torch.bool else x != 0

    def any_of(self, *flags: Any) -> Any:
        given = [f for f in flags if f is not None]
        return functools.reduce(operator.or_, given) if given else None

    def concat(self, parts: Any, axis: int) -> Any:
        return torch.cat(list(parts), axis)

    def slice(self, x: Any, start: int, stop: int, axis: int) -> Any:
        return x.narrow(axis, start, max(0, stop - start))

    def broadcast(self, x: Any, shape: tuple[int, ...]) -> Any:
        return x.expand(shape)

    def invert(self, flags: Any) -> Any:
        return torch.logical_not(flags)

    def exp(self, x: Any) -> Any:
        return torch.exp(x)

    def minimum(self, x: Any, y: Any) -> Any:
        return torch.minimum(x, y)

    def last_axis(self, x: Any) -> Any:
        return x[..., None]

    def expectation(self, x: Any, weights: Any) -> Any:
        return (x * weights).sum(-1)

    def maximum(self, x: Any) -> Any:
        return x.amax(-1)

    def arange(self, shape: tuple[int, ...], axis: int, like: Any) -> Any:
        return torch.arange(shape[axis], device=like.device).reshape(
            [s if k == axis else 1 for k, s in enumerate(shape)]
        )

    def compressing(self, mask: Any, axis: int) -> Any:
        return torch.argsort(torch.logical_not(mask), dim=axis, stable=True)

    def take(self, x: Any, indices: Any, axis: int) -> Any:
        return torch.take_along_dim(x, indices, axis)

    def untake(self, x: Any, indices: Any, axis: int) -> Any:
        return torch.zeros_like(x).scatter(axis, indices, x)

    def first(self, shape: tuple[int, ...], axis: int, backward: bool, like: Any) -> Any:
        return self.arange(shape, axis, like) == (shape[axis] - 1 if backward else 0)

    def zero_edge(self, x: Any, axis: int) -> Any:
        return torch.zeros_like(x.narrow(axis, 0, 1))

    def incoming(self, x: Any, edge: Any, axis: int, backward: bool) -> Any:
        return edge

    def size(self, x: Any) -> int:
        return x.numel()

    def total(self, x: Any) -> Any:
        return x.sum()

    def largest(self, x: Any) -> Any:
        return x.detach().max()

    def sqrt(self, x: Any) -> Any:
        return torch.sqrt(x)

    def recurrence(self, a: Any, b: Any, reset: Any, initial: Any, axis: int, backward: bool) -> Any:
        if isinstance(a, (int, float)):
            a = torch.full((1,) * b.ndim, a, dtype=self._accumulate, device=b.device)
        if initial is None:
            initial = b.new_zeros(()).expand(tuple(1 if k == axis else s for k, s in enumerate(b.shape)))
        return _Recurrence.apply(
            b,
            a,
            reset,
            initial.expand(tuple(1 if k == axis else s for k, s in enumerate(b.shape))),
            axis,
            backward,
            self._implementation,
        )


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


class _Recurrence(torch.autograd.Function):
    """The recurrence with its derivative, which is the recurrence in the other direction: differentiable to any order."""

    @staticmethod
    def forward(
        b: Tensor,
        a: Tensor,
        reset: Tensor | None,
        initial: Tensor,
        axis: int,
        backward: bool,
        implementation: str | None,
    ) -> Tensor:
        if _use_kernels("linear_recurrence", b.device, implementation) and b.numel():
            dtype = problem.dtype_name(b)
            (y,) = _launch(
                LINEAR_RECURRENCE, [b, a, reset, initial], tuple(b.shape), axis, backward, (True,), dtype, dtype
            )
            return y
        return _serial(b, a, reset, initial, axis, backward)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        _, a, reset, initial, axis, backward, implementation = inputs
        ctx.save_for_backward(a, reset, initial, output)
        ctx.options = axis, backward, implementation

    @staticmethod
    def vmap(
        info: Any,
        in_dims: Any,
        b: Any,
        a: Any,
        reset: Any,
        initial: Any,
        axis: int,
        backward: bool,
        implementation: str | None,
    ) -> Any:
        def lead(x: Any, dim: int | None) -> Any:
            return x if x is None else x.unsqueeze(0) if dim is None else x.movedim(dim, 0)

        b = lead(b, in_dims[0]).expand(info.batch_size, *lead(b, in_dims[0]).shape[1:])
        y = _Recurrence.apply(
            b,
            lead(a, in_dims[1]),
            lead(reset, in_dims[2]),
            lead(initial, in_dims[3]).expand(info.batch_size, *lead(initial, in_dims[3]).shape[1:]),
            axis + 1,
            backward,
            implementation,
        )
        return y, 0

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        (g,) = grads
        a, reset, initial, y = ctx.saved_tensors
        axis, backward, implementation = ctx.options
        T = y.shape[axis]
        if y.numel() == 0:
            return torch.zeros_like(y), torch.zeros_like(a), None, torch.zeros_like(initial), None, None, None

        def after(x: Any, edge: Any) -> Any:  # row t: the step walked after t
            rows = [edge, x.narrow(axis, 0, T - 1)] if backward else [x.narrow(axis, 1, T - 1), edge]
            return torch.cat(rows, axis)

        def moved(x: Any) -> Any:
            return x if x is None or x.shape[axis] == 1 else after(x, torch.zeros_like(x.narrow(axis, 0, 1)))

        bar = _Recurrence.apply(
            g, moved(a), moved(reset), torch.zeros_like(initial), axis, not backward, implementation
        )
        edge = initial.expand_as(y.narrow(axis, 0, 1))
        before = torch.cat([y.narrow(axis, 1, T - 1), edge] if backward else [edge, y.narrow(axis, 0, T - 1)], axis)
        if reset is not None:
            before = torch.where(reset, torch.zeros_like(before), before)
        first = bar.narrow(axis, T - 1 if backward else 0, 1)

        def row(x: Any) -> Any:
            return x if x.shape[axis] == 1 else x.narrow(axis, T - 1 if backward else 0, 1)

        factor = row(a)
        if reset is not None:  # before the product, so that second derivatives are as clean
            factor = torch.where(row(reset), 0, factor)
        through = factor * first
        return bar, (bar * before).sum_to_size(a.shape), None, through.sum_to_size(initial.shape), None, None, None


def _use_kernels(name: str, device: torch.device, implementation: str | None) -> bool:
    if implementation == "xla":
        raise ValueError(f"{name}: implementation='xla' is JAX's; torch offers None and 'triton'")
    if device.type != "cuda":
        if implementation == "triton":
            raise ValueError(f"{name}: implementation='triton' needs tensors on a GPU, got {device}")
        return False
    why = versions.why_no_triton()
    if why is None:
        return True
    if implementation == "triton":
        raise ValueError(f"{name}: implementation='triton' cannot run: {why}")
    _warn_once(why)
    return False


@functools.cache
def _warn_once(why: str) -> None:
    import warnings

    warnings.warn(
        f"rl_triton_jax.torch: Triton kernels cannot run, so a slow loop of torch functions is used: {why}",
        RuntimeWarning,
        stacklevel=2,
    )


# Calls that were prepared, by everything that the kernels depend on but the numbers themselves.
_prepared: dict[Any, Any] = {}
MOST_PREPARED = 4096


def _remember(key: Any, ready: Any) -> None:
    if len(_prepared) >= MOST_PREPARED:  # shapes that never come back, say lengths of packed sequences
        _prepared.clear()
    _prepared[key] = ready


def _on_gpu(x: Tensor) -> bool:
    return x.is_cuda


def _transformed() -> bool:
    """Whether `torch.func` (vmap, grad, jvp) is at work, so that tensors may stand for others."""
    return _functorch_level() is not None


def _signature(estimator: Estimator, operands: Sequence[Any], options: tuple[Any, ...]) -> tuple[Any, ...] | None:
    """The key of a call that the kernels can do as it is; None where something has to be looked at first.

    That is tensors on a CPU, those that want a gradient, and anything that stands for a tensor (under `torch.func`, say).
    """
    if _transformed():
        return None
    gradients = torch.is_grad_enabled()
    signature: list[Any] = [estimator.name, estimator.window, estimator.whole is None, options]
    for x in operands:
        if x is None or type(x) in (float, int, bool):
            signature.append(type(x))
        elif type(x) is Tensor and _on_gpu(x) and not (gradients and x.requires_grad):
            signature.append((x.shape, x.stride(), x.dtype, x.get_device(), x.data_ptr() & 15 == 0))
        else:
            return None
    return tuple(signature)


class _Ready:
    """A call that needs nothing but memory for its results and the launch."""

    def __init__(self, prepared: Any, outputs: Sequence[Tensor], number: type) -> None:
        self._prepared = prepared
        self._count = len(outputs)
        self._shape, self._strides = outputs[0].shape, outputs[0].stride()
        self._dtype, self._device = outputs[0].dtype, outputs[0].device
        self._number = number

    def __call__(self, operands: Sequence[Any]) -> list[Tensor]:
        outputs = [
            torch.empty_strided(self._shape, self._strides, dtype=self._dtype, device=self._device)
            for _ in range(self._count)
        ]
        self.into(operands, outputs)
        return outputs

    def into(self, operands: Sequence[Any], outputs: Sequence[Tensor]) -> None:
        inputs = [x if isinstance(x, Tensor) else self._number(x) for x in operands if x is not None]
        if self._device.index == torch.cuda.current_device():
            self._prepared(inputs, outputs)
        else:
            with torch.cuda.device(self._device):
                self._prepared(inputs, outputs)


def _launch(
    estimator: Estimator,
    operands: Sequence[Any],
    shape: tuple[int, ...],
    axis: int,
    backward: bool,
    wanted: tuple[bool, ...],
    dtype: str,
    accumulate: str,
    standardize: int | None = None,
) -> list[Tensor]:
    """Runs the kernels. Operands are tensors of the result's rank, numbers (passed by value), or None."""
    key = _signature(estimator, operands, (shape, axis, backward, wanted, dtype, standardize))
    ready = None if key is None else _prepared.get(key)
    if ready is not None:
        return ready(operands)
    ready, outputs = _prepare(estimator, operands, shape, axis, backward, wanted, dtype, accumulate, standardize)
    if key is not None:
        _remember(key, ready)
    ready.into(operands, outputs)
    return outputs


def _prepare(
    estimator: Estimator,
    operands: Sequence[Any],
    shape: tuple[int, ...],
    axis: int,
    backward: bool,
    wanted: tuple[bool, ...],
    dtype: str,
    accumulate: str,
    standardize: int | None,
) -> tuple[_Ready, list[Tensor]]:
    """The compiled launches of a call, and memory for its results."""
    from .launch import from_torch

    model = operands[0]
    out_dtype = getattr(torch, dtype)
    # Dense inputs give their own memory order to the results; anything else a row-major one.
    outputs = [torch.empty_like(model, dtype=out_dtype) for want in wanted if want]
    if outputs[0].shape != shape:
        outputs = [torch.empty(shape, dtype=out_dtype, device=model.device) for want in wanted if want]
    views: list[problem.View | None] = []
    for k, (operand, x) in enumerate(zip(estimator.operands, operands, strict=True)):
        if x is None:
            views.append(None)
        elif isinstance(x, Tensor):
            if x.device != model.device:
                raise ValueError(f"{estimator.name}: `{operand.name}` is on {x.device}, expected {model.device}")
            views.append(problem.view_of(estimator, k, problem.dtype_name(x), x.shape, x.stride(), shape[axis], axis))
        else:
            views.append(problem.View(accumulate, (0,) * len(shape), by_value=True))
    results = [(problem.View(dtype, outputs[0].stride()), k) for k, want in enumerate(wanted) if want]
    case = problem.canonical(estimator, shape, axis, views, results, backward, accumulate, standardize)
    given = [x for x in operands if x is not None]
    unaligned = frozenset(k for k, x in enumerate(given) if isinstance(x, Tensor) and x.data_ptr() % 16)
    device = from_torch.device_of(model.device.index)
    prepared = from_torch.Prepared(plan(case, device, problem.flags(estimator)), case, device, unaligned)
    return _Ready(prepared, outputs, int if accumulate in problem.INTEGERS else float), outputs


class TorchFront:
    """See `front.FrontEnd`."""

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
        # A call of the same kind as one before goes straight to its launch: views of an operand share its address.
        in_order = [operands.get(o.name) for o in estimator.operands]
        options = axis, backward, None if wanted is None else tuple(wanted), implementation, standardize
        key = _signature(estimator, in_order, ("call", *options))
        ready = None if key is None else _prepared.get(key)
        if ready is not None:
            return ready(in_order)
        name = name or estimator.name
        check_implementation(name, implementation)
        operands = {o.name: x for o, x in zip(estimator.operands, in_order, strict=True)}
        main = operands[estimator.operands[0].name]
        for operand in estimator.operands:
            x = operands[operand.name]
            if x is not None and not problem.is_number(x) and not isinstance(x, Tensor):
                raise TypeError(
                    f"{name}: `{operand.name}` must be a torch.Tensor, got {type(x).__name__}; "
                    f"rl_triton_jax.{name} takes JAX and NumPy arrays"
                )
        call = problem.validate(estimator, operands, axis, name)
        rank = len(call.shape)
        dtype = problem.result_dtype(estimator, operands, _promote)
        accumulate = problem.accumulation_dtype(dtype)
        backward = estimator.backward if backward is None else backward
        wanted = tuple(wanted) if wanted is not None else (True,) * len(estimator.outputs)
        kernels = _use_kernels(name, main.device, implementation) and has_kernel(estimator, operands)
        tensors = [x for x in operands.values() if isinstance(x, Tensor)]
        differentiable = torch.is_grad_enabled() and any(x.requires_grad for x in tensors)
        by_value = kernels and not differentiable and main.numel() > 0 and not _transformed()

        def canonical(role: Role, x: Any) -> Any:
            if x is None:
                return None
            if problem.is_number(x):
                return (
                    (int if accumulate in problem.INTEGERS else float)(x)
                    if by_value
                    else torch.full((1,) * rank, x, dtype=getattr(torch, accumulate), device=main.device)
                )
            if x.ndim == 0:
                # A number's worth of memory may lie on the host, as torch's own functions allow.
                return x.to(main.device).reshape((1,) * rank) if x.device != main.device else x.reshape((1,) * rank)
            if role is Role.FLAG:
                return x[(..., *(None,) * (rank - x.ndim))]
            return x.unsqueeze(call.axis) if role is Role.EDGE else x

        values = [canonical(o.role, operands[o.name]) for o in estimator.operands]
        if by_value:
            outs = _launch(estimator, values, call.shape, call.axis, backward, wanted, dtype, accumulate, standardize)
            known = _signature(estimator, values, (call.shape, call.axis, backward, wanted, dtype, standardize))
            if key is not None and known in _prepared:
                _remember(key, _prepared[known])
            return outs
        if main.numel() == 0:
            return [main.new_zeros(call.shape, dtype=getattr(torch, dtype)) for want in wanted if want]
        return evaluate(
            estimator,
            TorchArrays(accumulate, implementation),
            values,
            shape=call.shape,
            axis=call.axis,
            backward=backward,
            dtype=dtype,
            accumulate=accumulate,
            wanted=wanted,
            standardize=standardize,
        )

    def sequence_ends(self, cu_seqlens: Any, last_values: Any, mask: Any, like: Any) -> tuple[Any, Any]:
        total = like.shape[0]
        starts, last = cu_seqlens[:-1].long(), cu_seqlens[1:].long() - 1
        none = last < starts
        if mask is not None and total:  # the last real token not behind it, if that is in the same sequence
            real = torch.where(mask != 0, torch.arange(total, device=like.device), -1).cummax(0).values
            last = real[last.clamp(0, total - 1)]
            none = none | (last < starts)
        last = torch.where(none, total, last)  # one more place, cut off below
        dtype = like.dtype if like.dtype.is_floating_point else torch.float32
        values = torch.as_tensor(last_values, dtype=dtype, device=like.device).expand(last.shape)
        flags = torch.zeros(total + 1, dtype=torch.bool, device=like.device).index_fill(0, last, True)
        return flags[:total], torch.zeros(total + 1, dtype=dtype, device=like.device).scatter(0, last, values)[:total]


TORCH = TorchFront()

discounted_returns = offered_by(TORCH, _discounted_returns)
eligibility_traces = offered_by(TORCH, _eligibility_traces)
episodic_cumsum = offered_by(TORCH, _episodic_cumsum)
gae = offered_by(TORCH, _gae)
gae_packed = offered_by(TORCH, _gae_packed)
general_off_policy_returns = offered_by(TORCH, _general_off_policy_returns)
lambda_returns = offered_by(TORCH, _lambda_returns)
linear_recurrence = offered_by(TORCH, _linear_recurrence)
n_step_returns = offered_by(TORCH, _n_step_returns)
puffer_advantage = offered_by(TORCH, _puffer_advantage)
q_lambda = offered_by(TORCH, _q_lambda)
retrace = offered_by(TORCH, _retrace)
tree_backup = offered_by(TORCH, _tree_backup)
upgo = offered_by(TORCH, _upgo)
vtrace = offered_by(TORCH, _vtrace)

__all__ = [
    "GAE",
    "Retrace",
    "VTrace",
    "discounted_returns",
    "eligibility_traces",
    "episodic_cumsum",
    "gae",
    "gae_packed",
    "general_off_policy_returns",
    "lambda_returns",
    "linear_recurrence",
    "n_step_returns",
    "puffer_advantage",
    "q_lambda",
    "retrace",
    "tree_backup",
    "upgo",
    "vtrace",
]

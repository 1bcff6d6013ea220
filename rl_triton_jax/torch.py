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

try:
    import torch
except ImportError as error:
    raise ImportError("rl_triton_jax.torch needs PyTorch: pip install 'rl_triton_jax[torch]'") from error

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
from .formula import evaluate
from .front import check_implementation
from .launch import from_torch, torch_ops
from .torch_calls import remembered

Tensor = torch.Tensor


def _promote(a: str, b: str) -> str:
    return str(torch.promote_types(getattr(torch, a), getattr(torch, b))).rpartition(".")[2]


class TorchArrays:
    """The array functions of `formula.evaluate` in torch."""

    def __init__(self, accumulate: str, kernels: bool) -> None:
        self._accumulate = getattr(torch, accumulate)
        self._kernels = kernels  # whether recurrences are for Triton

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

    def along(self, x: Any, axis: int) -> Any:
        return x.amax(axis, keepdim=True)

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
        initial = initial.expand(tuple(1 if k == axis else s for k, s in enumerate(b.shape)))
        return torch_ops.recurrence(b, a, reset, initial, axis, backward, self._kernels)


def _use_kernels(name: str, device: torch.device, implementation: str | None) -> bool:
    if implementation == "xla":
        raise ValueError(f"{name}: implementation='xla' is JAX's; torch offers None and 'triton'")
    if device.type != "cuda":
        if implementation == "triton":
            raise ValueError(f"{name}: implementation='triton' needs tensors on a GPU, got {device}")
        return False
    why = _why_no_triton()
    if why is None:
        return True
    if implementation == "triton":
        raise ValueError(f"{name}: implementation='triton' cannot run: {why}")
    _warn_once(why)
    return False


@torch.compiler.assume_constant_result
def _why_no_triton() -> str | None:
    return versions.why_no_triton()


@torch.compiler.assume_constant_result
@functools.cache
def _warn_once(why: str) -> None:
    import warnings

    warnings.warn(
        f"rl_triton_jax.torch: Triton kernels cannot run, so a slow loop of torch functions is used: {why}",
        RuntimeWarning,
        stacklevel=2,
    )


def _host_number(x: Any, main: Tensor) -> bool:
    """A number's worth of memory may lie on the host, as torch's own functions allow."""
    return isinstance(x, Tensor) and x.ndim == 0 and x.device != main.device and x.device.type == "cpu"


class TorchFront:
    """See `front.FrontEnd`."""

    def call(self, estimator: Estimator, operands: Mapping[str, Any], **options: Any) -> list[Any]:
        outputs, _ = self.launched(estimator, operands, **options)
        return outputs

    def launched(
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
    ) -> tuple[list[Any], from_torch.Ready | None]:
        """`call`, and what was launched for it, where that is all there is to it."""
        name = name or estimator.name
        check_implementation(name, implementation)
        operands = {o.name: operands.get(o.name) for o in estimator.operands}
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
        for operand in estimator.operands:
            x = operands[operand.name]
            if isinstance(x, Tensor) and x.device != main.device and not _host_number(x, main):
                raise ValueError(
                    f"{name}: `{operand.name}` is on {x.device}, expected {main.device}, as the first operand"
                )
        kernels = _use_kernels(name, main.device, implementation)
        tensors = [x for x in operands.values() if isinstance(x, Tensor)]
        differentiable = torch.is_grad_enabled() and any(x.requires_grad for x in tensors)
        whole = kernels and has_kernel(estimator, operands) and not differentiable and main.numel() > 0
        behind_op = torch_ops.opaque(*tensors)
        by_value = whole and not behind_op and not torch_ops.watched()

        def canonical(role: Role, x: Any) -> Any:
            if x is None:
                return None
            if by_value and _host_number(x, main):
                x = x.item()  # no wait: it is on the host
            if problem.is_number(x) or _host_number(x, main):
                if by_value:
                    return (int if accumulate in problem.INTEGERS else float)(x)
                if accumulate in problem.INTEGERS:
                    return torch.full((1,) * rank, x, dtype=getattr(torch, accumulate), device=main.device)
                # A product: the compiler turns one by a number into one by an input of the program, and would build a number
                # given to `full` into it. A tensor on the host is read there and need not be copied.
                return torch.ones((1,) * rank, dtype=getattr(torch, accumulate), device=main.device) * x
            if x.ndim == 0:
                return x.reshape((1,) * rank)
            if role is Role.FLAG:  # those of data with features may lack their axes
                for _ in range(rank - x.ndim):
                    x = x.unsqueeze(-1)
            return x.unsqueeze(call.axis) if role is Role.EDGE else x

        values = [canonical(o.role, operands[o.name]) for o in estimator.operands]
        if by_value:
            outputs, ready = from_torch.run(
                estimator, values, call.axis, backward, wanted, dtype, accumulate, standardize=standardize
            )
            # A number in a tensor on the host has to be read each time.
            return outputs, None if any(_host_number(x, main) for x in tensors) else ready
        if main.numel() == 0:
            return [main.new_zeros(call.shape, dtype=getattr(torch, dtype)) for want in wanted if want], None
        if whole and behind_op and not torch_ops.transformed():
            return torch_ops.launch(estimator, values, call.axis, backward, wanted, dtype, standardize), None
        outputs = evaluate(
            estimator,
            TorchArrays(accumulate, kernels),
            values,
            shape=call.shape,
            axis=call.axis,
            backward=backward,
            dtype=dtype,
            accumulate=accumulate,
            wanted=wanted,
            standardize=standardize,
        )
        return outputs, None

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
        if problem.is_number(last_values):  # filled in on the device: a copy from the host would wait
            values = torch.full(last.shape, last_values, dtype=dtype, device=like.device)
        else:
            values = torch.as_tensor(last_values, dtype=dtype, device=like.device).expand(last.shape)
        flags = torch.zeros(total + 1, dtype=torch.bool, device=like.device).index_fill(0, last, True)
        return flags[:total], torch.zeros(total + 1, dtype=dtype, device=like.device).scatter(0, last, values)[:total]


TORCH = TorchFront()

discounted_returns = remembered(TORCH, _discounted_returns)
eligibility_traces = remembered(TORCH, _eligibility_traces)
episodic_cumsum = remembered(TORCH, _episodic_cumsum)
gae = remembered(TORCH, _gae)
gae_packed = remembered(TORCH, _gae_packed)
general_off_policy_returns = remembered(TORCH, _general_off_policy_returns)
lambda_returns = remembered(TORCH, _lambda_returns)
linear_recurrence = remembered(TORCH, _linear_recurrence)
n_step_returns = remembered(TORCH, _n_step_returns)
puffer_advantage = remembered(TORCH, _puffer_advantage)
q_lambda = remembered(TORCH, _q_lambda)
retrace = remembered(TORCH, _retrace)
tree_backup = remembered(TORCH, _tree_backup)
upgo = remembered(TORCH, _upgo)
vtrace = remembered(TORCH, _vtrace)

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

"""The JAX front end: from a call's arguments to the primitive."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import export, lax
from jax.core import Tracer

from . import problem
from .estimator import Estimator, Role
from .front import check_implementation
from .launch import from_jax
from .primitive import bind


def _promote(a: str, b: str) -> str:
    return a if a == b else str(jnp.promote_types(a, b))


def _bind(
    values: Sequence[Any], *, estimator: Estimator, shape: tuple[int, ...], axis: int, **params: Any
) -> list[Any]:
    """Brings operands to the rank of the call, and decays and edges to floating-point numbers; binds the primitive."""
    rank, accumulate = len(shape), params["accumulate"]

    def canonical(role: Role, x: Any) -> Any:
        if x is None:
            return None
        if x.ndim == 0:
            x = lax.reshape(x, (1,) * rank)
        elif role is Role.EDGE and x.ndim < rank:
            x = lax.expand_dims(x, [axis])
        elif role is Role.FLAG and x.ndim < rank:
            x = lax.expand_dims(x, range(x.ndim, rank))
        if role in (Role.DECAY, Role.FACTOR, Role.EDGE) and not jnp.issubdtype(x.dtype, jnp.floating):
            x = x.astype(accumulate)
        return x

    values = [canonical(o.role, x) for o, x in zip(estimator.operands, values, strict=True)]
    return bind(estimator, values, axis=axis, **params)


# Outside of jit, one dispatch instead of one for every operand that is reshaped.
_bind_at_once = jax.jit(
    _bind,
    static_argnames=(
        *("estimator", "shape", "axis", "backward", "wanted", "dtype", "accumulate", "standardize", "implementation"),
        *("route", "name"),
    ),
)


class JaxFront:
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
        name = name or estimator.name
        check_implementation(name, implementation)
        operands = {o.name: operands.get(o.name) for o in estimator.operands}
        for label, x in operands.items():
            if problem.is_array(x) and not isinstance(x, (jax.Array, np.ndarray, np.generic)):
                raise TypeError(
                    f"{name}: `{label}` must be a JAX or NumPy array, got {type(x).__name__}; for torch "
                    f"tensors there is rl_triton_jax.torch.{name}"
                )
            if problem.is_array(x) and any(export.is_symbolic_dim(size) for size in x.shape):
                raise ValueError(
                    f"{name}: `{label}` has the symbolic shape {x.shape}, but kernels are made for sizes that are known; "
                    f"export once for each shape"
                )
        call = problem.validate(estimator, operands, axis, name)
        # NumPy arrays become JAX arrays here, so that dtypes below are those that JAX computes with.
        arrays = {k: jnp.asarray(x) if isinstance(x, (np.ndarray, np.generic)) else x for k, x in operands.items()}
        rank = len(call.shape)
        dtype = problem.result_dtype(estimator, arrays, _promote)
        accumulate = problem.accumulation_dtype(dtype)

        def filled(x: Any) -> Any:
            """Python numbers as arrays of one: another number compiles nothing."""
            if not problem.is_number(x):
                return x
            try:
                return np.full((1,) * rank, x, accumulate)
            except OverflowError as error:
                raise ValueError(f"{name}: {x} does not fit the {accumulate} that `inputs` are summed in") from error

        values = [filled(arrays[o.name]) for o in estimator.operands]
        traced = any(isinstance(x, Tracer) for x in values)
        return (_bind if traced else _bind_at_once)(
            values,
            estimator=estimator,
            shape=call.shape,
            axis=call.axis,
            backward=estimator.backward if backward is None else backward,
            wanted=tuple(wanted) if wanted is not None else (True,) * len(estimator.outputs),
            dtype=dtype,
            accumulate=accumulate,
            standardize=standardize,
            implementation=implementation,
            route=from_jax.current_route(),
            name=name,
        )

    def sequence_ends(self, cu_seqlens: Any, last_values: Any, mask: Any, like: Any) -> tuple[Any, Any]:
        total = like.shape[0]
        cu_seqlens = jnp.asarray(cu_seqlens)
        starts, last = cu_seqlens[:-1], cu_seqlens[1:] - 1
        none = last < starts
        if mask is not None and total:  # the last real token not behind it, if that is in the same sequence
            real = lax.cummax(jnp.where(jnp.asarray(mask) != 0, jnp.arange(total), -1))
            last = real[jnp.clip(last, 0, total - 1)]
            none |= last < starts
        last = jnp.where(none, total, last)  # out of range: dropped
        dtype = like.dtype if jnp.issubdtype(like.dtype, jnp.floating) else jnp.float32
        values = jnp.broadcast_to(jnp.asarray(last_values).astype(dtype), last.shape)
        flags = jnp.zeros(total, bool).at[last].set(True, mode="drop")
        return flags, jnp.zeros(total, dtype).at[last].set(values, mode="drop")


JAX = JaxFront()

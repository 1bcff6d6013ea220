"""From an estimator to a JAX primitive: shape rule, lowerings, batching, jvp, transpose. One definition serves all.

Every operand of the primitive has the rank of the result; size-1 axes broadcast (in the kernels through stride 0), so a
batched operand only moves `axis` and an unbatched one gains a size-1 axis: nothing is copied.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir, xla

from . import recurrence, sharding, versions
from .estimator import Estimator, Role, has_kernel
from .formula import LINEAR_RECURRENCE, evaluate, standardized
from .launch import from_jax
from .problem import has_extra_row


def _expand(operands: Sequence[Any], present: Sequence[bool]) -> list[Any]:
    rest = iter(operands)
    return [next(rest) if given else None for given in present]


def _result_shape(estimator: Estimator, operands: Sequence[Any], present: Sequence[bool], axis: int) -> tuple[int, ...]:
    """Steps from the first operand, batch axes by broadcasting all."""
    main = operands[0]
    steps = main.shape[axis]
    shape = [1] * main.ndim
    for k, x in zip([k for k, p in enumerate(present) if p], operands, strict=True):
        name = f"{estimator.name}: operand `{estimator.operands[k].name}`"
        sizes = x.shape[:-1] if estimator.operands[k].role is Role.ACTIONS else x.shape
        if len(sizes) != len(shape):
            raise TypeError(f"{name} has rank {x.ndim}, which does not go with rank {len(shape)}")
        for i, size in enumerate(sizes):
            if i == axis:
                if size not in (1, steps) and not has_extra_row(estimator, k, x, steps, axis):
                    raise TypeError(f"{name} has {size} steps, expected {steps}")
            elif size != 1:
                if shape[i] not in (1, size):
                    raise TypeError(f"{name} of shape {x.shape} does not broadcast")
                shape[i] = size
    shape[axis] = steps
    return tuple(shape)


def _xla(
    estimator: Estimator,
    *operands: Any,
    axis: int,
    backward: bool,
    wanted: tuple[bool, ...],
    present: tuple[bool, ...],
    dtype: str,
    accumulate: str,
    standardize: int | None,
    parallel: bool,
    **rest: Any,
) -> list[Any]:
    shape = _result_shape(estimator, operands, present, axis)
    if 0 in shape:
        return [jnp.zeros(shape, dtype) for want in wanted if want]
    if estimator is LINEAR_RECURRENCE:
        return recurrence.evaluate_recurrence(
            operands,
            shape=shape,
            axis=axis,
            backward=backward,
            present=present,
            dtype=dtype,
            accumulate=accumulate,
            parallel=parallel,
        )
    xp = recurrence.JaxArrays(primitive_of(LINEAR_RECURRENCE).bind, accumulate, **rest)
    return evaluate(
        estimator,
        xp,
        _expand(operands, present),
        shape=shape,
        axis=axis,
        backward=backward,
        dtype=dtype,
        accumulate=accumulate,
        wanted=wanted,
        standardize=standardize,
    )


def _lower_anywhere(estimator: Estimator, *operands: Any, parallel: bool, **params: Any) -> list[Any]:
    if params["implementation"] == "triton":
        raise ValueError(
            f"{params['name']}: implementation='triton' needs an NVIDIA or AMD GPU, but this computation is compiled "
            f"for another platform; leave `implementation` at None, or put the arrays on the GPU"
        )
    return _xla(estimator, *operands, parallel=parallel, **params)


def _given(estimator: Estimator, present: Sequence[bool]) -> dict[str, Any]:
    return {o.name: True if there else None for o, there in zip(estimator.operands, present, strict=True)}


def _lower_gpu(estimator: Estimator, *operands: Any, backend: str, **params: Any) -> list[Any]:
    shape = _result_shape(estimator, operands, params["present"], params["axis"])
    if params["implementation"] == "xla" or 0 in shape or not from_jax.can_run(params["name"], params):
        return _xla(estimator, *operands, parallel=True, **params)
    if not has_kernel(estimator, _given(estimator, params["present"])):
        return _xla(estimator, *operands, parallel=True, **params)  # the recurrences in it are launched
    return from_jax.run(estimator, operands, shape, backend=backend, **params)


def _move(x: Any, source: int, target: int) -> Any:
    """`jnp.moveaxis`, as a reshape where only axes of size 1 are passed (one value per column, say)."""
    rest = [size for k, size in enumerate(x.shape) if k != source]
    if all(size == 1 for size in rest[min(source, target) : max(source, target)]):
        return lax.reshape(x, (*rest[:target], x.shape[source], *rest[target:]))
    return jnp.moveaxis(x, source, target)


def _batch(
    estimator: Estimator, primitive: Primitive, args: Sequence[Any], dims: Sequence[Any], *, axis: int, **params: Any
) -> Any:
    if params["standardize"] is not None:
        return _batch_standardized(estimator, primitive, args, dims, axis=axis, **params)
    # Where the first batched operand has it, but never behind the action axis.
    at = min(next(d for d in dims if d is not None), args[0].ndim - (dims[0] is not None))
    moved = [lax.expand_dims(x, [at]) if d is None else _move(x, d, at) for x, d in zip(args, dims, strict=True)]
    outs = primitive.bind(*moved, axis=axis + (at <= axis), **params)
    return outs, [at] * len(outs)


def _batch_standardized(
    estimator: Estimator,
    primitive: Primitive,
    args: Sequence[Any],
    dims: Sequence[Any],
    *,
    standardize: int,
    dtype: str,
    **params: Any,
) -> Any:
    """Every element of the batch has a mean of its own: the kernels run for all, what is left is XLA's."""
    mask = estimator.position(Role.MASK)

    def one(*args: Any) -> list[Any]:
        outs = primitive.bind(*args, standardize=None, dtype=params["accumulate"], **params)
        xp = recurrence.JaxArrays(primitive.bind, params["accumulate"])
        real = None if mask is None else _expand(args, params["present"])[mask]
        real = None if real is None else xp.to_bool(real)
        outs[standardize] = standardized(xp, outs[standardize], real, params["accumulate"])
        return [x.astype(dtype) for x in outs]

    return jax.vmap(one, in_axes=tuple(dims))(*args), [0] * sum(params["wanted"])


def _jvp(
    estimator: Estimator, primitive: Primitive, primals: Sequence[Any], tangents: Sequence[Any], **params: Any
) -> Any:
    """The tangent of the formula; its own primal part is dead code unless gamma, lambda or a ratio is differentiated."""
    outs = primitive.bind(*primals, **params)
    active = [k for k, t in enumerate(tangents) if type(t) is not ad.Zero]

    def formula(*values: Any) -> list[Any]:
        operands = list(primals)
        for k, value in zip(active, values, strict=True):
            operands[k] = value
        return _xla(estimator, *operands, parallel=False, **params)

    _, tangents_out = jax.jvp(formula, [primals[k] for k in active], [tangents[k] for k in active])
    return outs, tangents_out


@functools.cache
def primitive_of(estimator: Estimator) -> Primitive:
    """The primitive of an estimator.

    Parameters of `bind`: axis, backward, wanted (which outputs), present (which operands), dtype (of the outputs),
    accumulate (of the arithmetic), standardize (which of the wanted outputs, or None), implementation and route (see
    `launch/from_jax`), name (what the user called, for errors).
    """
    primitive = Primitive(estimator.name)
    primitive.multiple_results = True
    primitive.def_impl(functools.partial(xla.apply_primitive, primitive))
    versions.lower_with_devices(primitive)

    @primitive.def_abstract_eval
    def _(
        *avals: Any, axis: int, wanted: tuple[bool, ...], present: tuple[bool, ...], dtype: str, **_: Any
    ) -> list[Any]:
        shape = _result_shape(estimator, avals, present, axis)
        model = next((a for a in avals if a.shape == shape), avals[0])  # keeps sharding and varying axes
        return [model.update(shape=shape, dtype=jnp.dtype(dtype), weak_type=False) for want in wanted if want]

    def lowering(function: Any, **fixed: Any) -> Any:
        on_one_device = mlir.lower_fun(functools.partial(function, estimator, **fixed), multiple_results=True)

        def rule(ctx: Any, *operands: Any, **params: Any) -> Any:
            refused = params["implementation"] == "triton" and function is _lower_anywhere
            if refused or not versions.is_partitioned(ctx) or any(0 in aval.shape for aval in ctx.avals_out):
                if all(aval.sharding.mesh.empty for aval in ctx.avals_in):
                    with versions.without_mesh():
                        return on_one_device(ctx, *operands, **params)
                return on_one_device(ctx, *operands, **params)
            function_of_all = sharding.partitioned(
                estimator, primitive, primitive_of(LINEAR_RECURRENCE), tuple(params.items())
            )
            return mlir.lower_fun(function_of_all, multiple_results=True)(ctx, *operands)

        return rule

    mlir.register_lowering(primitive, lowering(_lower_anywhere, parallel=True))
    mlir.register_lowering(primitive, lowering(_lower_anywhere, parallel=False), platform="cpu")
    mlir.register_lowering(primitive, lowering(_lower_gpu, backend="cuda"), platform="cuda")
    mlir.register_lowering(primitive, lowering(_lower_gpu, backend="hip"), platform="rocm")
    batching.primitive_batchers[primitive] = functools.partial(_batch, estimator, primitive)
    if estimator is LINEAR_RECURRENCE:
        ad.primitive_jvps[primitive] = functools.partial(recurrence.jvp, primitive.bind)
        ad.primitive_transposes[primitive] = functools.partial(recurrence.transpose, primitive.bind)
    else:
        ad.primitive_jvps[primitive] = functools.partial(_jvp, estimator, primitive)
    return primitive


def bind(estimator: Estimator, operands: Sequence[Any], **params: Any) -> list[Any]:
    """Binds the primitive on operands in the estimator's order, None where absent."""
    given = versions.unify_varying_axes([x for x in operands if x is not None])
    return primitive_of(estimator).bind(*given, present=tuple(x is not None for x in operands), **params)

"""Arrays between JAX and torch without copies, through DLPack.

    obs = to_torch(env_state.obs)                  # the same memory
    advantages = to_jax(advantages)

Both functions map over pytrees (dictionaries, tuples, dataclasses registered with JAX ...) and leave alone what is no array. What
they return shares its memory with what they were given, and each keeps the other's memory alive. JAX takes arrays to be
immutable: a torch tensor that is written in place changes the JAX array with it, and an array that is donated takes the tensor's
memory away. `copy=True` gives memory of its own. What could only be had by a copy raises, and says how to ask for one.

Objects are exchanged, not capsules, so that on a GPU the consumer's stream waits for the producer's.
"""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
from jax.core import Tracer

try:
    import torch
except ImportError as error:
    raise ImportError("rl_triton_jax.interop needs PyTorch: pip install 'rl_triton_jax[torch]'") from error

__all__ = ["to_jax", "to_torch"]

# What both frameworks hold and DLPack carries.
DTYPES = (
    *("bool", "uint8", "int8", "int16", "int32", "int64", "float16", "bfloat16", "float32", "float64"),
    *("complex64", "complex128"),
)


def to_torch(tree: Any, *, copy: bool = False) -> Any:
    """JAX arrays as torch tensors on the same device, in the same memory.

    Args:
      tree: a pytree; its JAX arrays are converted, everything else is left as it is. Dtypes are kept, bool and bfloat16 included.
      copy: give each tensor memory of its own.

    Returns:
      The same tree with tensors for arrays. Without `copy` they are not to be written to.

    Raises:
      TypeError: an array is being traced (inside jit, vmap, grad), or torch has no such dtype.
      ValueError: an array was donated or deleted, or is spread over several devices.
    """
    return jax.tree.map(lambda x: _to_torch(x, copy) if isinstance(x, jax.Array) else x, tree)


def to_jax(tree: Any, *, copy: bool = False) -> Any:
    """torch tensors as JAX arrays on the same device, in the same memory.

    Args:
      tree: a pytree; its torch tensors are converted, everything else is left as it is. Dtypes are kept, bool and bfloat16
        included.
      copy: give each array memory of its own, whatever the tensor's strides.

    Returns:
      The same tree with arrays for tensors. Without `copy` the tensors are not to be written to while the arrays are used.

    Raises:
      TypeError: a tensor has a dtype that JAX has not, or one of 64 bits while `jax_enable_x64` is off; it is no dense tensor.
      ValueError: a tensor requires a gradient, is not contiguous, is not aligned as JAX wants, or lies on a device that
        JAX does not see. All but the first and the last go with `copy=True`.
    """
    return jax.tree.map(lambda x: _to_jax(x, copy) if isinstance(x, torch.Tensor) else x, tree)


def _to_torch(x: jax.Array, copy: bool) -> torch.Tensor:
    if isinstance(x, Tracer):
        raise TypeError(
            f"to_torch: got a traced array ({x.dtype}{list(x.shape)}): inside jit, vmap or grad an array has no memory yet; "
            "convert outside, or use `jax.pure_callback`"
        )
    if x.is_deleted():
        raise ValueError(f"to_torch: the array ({x.dtype}{list(x.shape)}) was donated or deleted: its memory is gone")
    if len(x.devices()) != 1:
        raise ValueError(
            f"to_torch: the array ({x.dtype}{list(x.shape)}) lies on {len(x.devices())} devices; take its "
            "`addressable_shards`, or `jax.device_put` it on one"
        )
    if str(x.dtype) not in DTYPES:
        raise TypeError(
            f"to_torch: torch has no counterpart of dtype {x.dtype} that can share memory; convert with `astype`"
        )
    tensor = torch.from_dlpack(x)
    return tensor.clone() if copy else tensor


def _to_jax(x: torch.Tensor, copy: bool) -> jax.Array:
    dtype = str(x.dtype).rpartition(".")[2]
    what = f"tensor ({dtype}{list(x.shape)})"
    if x.requires_grad:
        raise ValueError(f"to_jax: the {what} requires a gradient, which JAX cannot follow; pass `x.detach()`")
    if x.layout is not torch.strided or x.is_meta or x.is_quantized:
        raise TypeError(f"to_jax: the {what} is no dense tensor with memory; convert it first")
    if dtype not in DTYPES:
        raise TypeError(f"to_jax: JAX has no counterpart of {x.dtype} that can share memory; convert with `x.to`")
    if np.dtype(jax.dtypes.canonicalize_dtype(dtype)).name != np.dtype(jax.numpy.dtype(dtype)).name:
        raise TypeError(
            f"to_jax: the {what} has 64-bit numbers and `jax_enable_x64` is off: JAX would make a copy in 32 bits; switch it "
            "on, or convert with `x.to`"
        )
    x = x.resolve_conj().resolve_neg() if copy else x
    if x.is_conj() or x.is_neg():
        raise ValueError(f"to_jax: the {what} is a lazy conjugate or negative; pass `copy=True`")
    if copy:
        x = x.clone(memory_format=torch.contiguous_format)
    elif not x.is_contiguous():
        raise ValueError(
            f"to_jax: the {what} has strides {list(x.stride())}; JAX arrays are contiguous: pass `copy=True`, or `x.contiguous()`"
        )
    try:
        array = jax.dlpack.from_dlpack(x)
    except Exception as error:
        raise ValueError(f"to_jax: the {what} on {x.device} cannot become a JAX array: {error}") from error
    if not copy and x.numel() and array.unsafe_buffer_pointer() != x.data_ptr():
        raise ValueError(f"to_jax: the {what} is not aligned as JAX wants it, so it would be copied: pass `copy=True`")
    return array

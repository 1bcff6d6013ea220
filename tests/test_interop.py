"""Sharing memory between JAX and torch: every dtype, the same pointer, lifetimes, and what is refused."""

from __future__ import annotations

import gc
import importlib.util
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import oracle
import pytest

if importlib.util.find_spec("torch") is None:
    pytest.skip("no torch", allow_module_level=True)

import torch

from rl_triton_jax.interop import to_jax, to_torch

NARROW = ["bool", "uint8", "int8", "int16", "int32", "float16", "bfloat16", "float32", "complex64"]
WIDE = ["int64", "float64", "complex128"]


def numbers(dtype: str) -> jax.Array:
    return jnp.asarray(np.random.default_rng(0).integers(0, 2 if dtype == "bool" else 100, (6, 5))).astype(dtype)


@pytest.mark.parametrize("dtype", NARROW)
def test_there_and_back(dtype: str) -> None:
    x = jax.block_until_ready(numbers(dtype))
    tensor = to_torch(x)
    assert tensor.dtype is getattr(torch, dtype)
    assert tensor.data_ptr() == x.unsafe_buffer_pointer()
    again = to_jax(tensor)
    assert again.dtype == x.dtype
    assert again.unsafe_buffer_pointer() == x.unsafe_buffer_pointer()
    assert np.array_equal(oracle.bits(again), oracle.bits(x))


@pytest.mark.parametrize("dtype", WIDE)
def test_64_bits(dtype: str, x64: None) -> None:
    x = jax.block_until_ready(numbers(dtype))
    assert to_torch(x).dtype is getattr(torch, dtype)
    assert to_jax(to_torch(x)).dtype == x.dtype


@pytest.mark.parametrize("dtype", WIDE)
def test_64_bits_are_not_cut_silently(dtype: str) -> None:
    for copy in (False, True):
        with pytest.raises(TypeError, match=r"jax_enable_x64"):
            to_jax(torch.ones(3, dtype=getattr(torch, dtype)), copy=copy)


def test_trees_and_what_is_no_array() -> None:
    tree = {"a": jnp.ones(3), "b": (1, None, "text", np.ones(2)), "c": [jnp.zeros((2, 2), bool)]}
    out = to_torch(tree)
    assert isinstance(out["a"], torch.Tensor)
    assert isinstance(out["c"][0], torch.Tensor)
    assert out["b"][:3] == (1, None, "text")
    assert isinstance(out["b"][3], np.ndarray)
    back = to_jax(out)
    assert isinstance(back["a"], jax.Array)
    assert back["b"][:3] == (1, None, "text")


def test_copies_are_copies() -> None:
    x = jnp.arange(4.0)
    tensor = to_torch(x, copy=True)
    tensor += 1
    assert np.array_equal(x, np.arange(4.0))
    array = to_jax(tensor, copy=True)
    tensor += 1
    assert np.array_equal(array, np.arange(4.0) + 1)


def test_memory_outlives_its_first_owner() -> None:
    x = jnp.arange(10_000.0) + 1
    tensor = to_torch(x)
    del x
    gc.collect()
    junk = [jnp.full(10_000, np.nan) for _ in range(8)]
    assert float(tensor.sum()) == 10_000 * 10_001 / 2
    del junk
    array = to_jax(torch.arange(10_000, dtype=torch.float32))
    gc.collect()
    assert float(array[-1]) == 9_999


def misaligned() -> Any:
    base = torch.zeros(100)
    return base[1:41] if base.data_ptr() % 64 == 0 else base[:40]


@pytest.mark.parametrize(
    ("make", "error", "match"),
    [
        (lambda: torch.ones(3, requires_grad=True), ValueError, r"detach"),
        (lambda: torch.ones(6)[::2], ValueError, r"copy=True"),
        (lambda: torch.ones(1).expand(4), ValueError, r"copy=True"),
        (lambda: torch.ones(3, 4).t(), ValueError, r"copy=True"),
        (lambda: torch.ones(3, device="meta"), TypeError, r"memory"),
        (lambda: torch.ones(3).to_sparse(), TypeError, r"dense"),
        (misaligned, ValueError, r"aligned"),
    ],
    ids=["gradient", "strided", "expanded", "transposed", "meta", "sparse", "misaligned"],
)
def test_refused_by_to_jax(make: Any, error: type[Exception], match: str) -> None:
    with pytest.raises(error, match=match):
        to_jax(make())


@pytest.mark.parametrize("make", [lambda: torch.arange(6.0)[::2], lambda: torch.ones(3, 4).t(), misaligned])
def test_a_copy_takes_any_strides(make: Any) -> None:
    x = make()
    assert np.array_equal(to_jax(x, copy=True), x.numpy())


def test_refused_by_to_torch() -> None:
    with pytest.raises(TypeError, match=r"traced"):
        jax.jit(lambda x: to_torch(x))(jnp.ones(3))
    gone = jnp.ones(3)
    gone.delete()
    with pytest.raises(ValueError, match=r"donated or deleted"):
        to_torch(gone)
    with pytest.raises(TypeError, match=r"float8"):
        to_torch(jnp.ones(3, jnp.float8_e4m3fn))


def test_empty() -> None:
    assert to_torch(jnp.zeros((0, 3))).shape == (0, 3)
    assert to_jax(torch.zeros(0, 3)).shape == (0, 3)

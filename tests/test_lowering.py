"""The CUDA path lowered and exported in full on a machine without a GPU, by both launch routes."""

from __future__ import annotations

import importlib.util
import math
import re
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import oracle
import pytest
from jax import export

import rl_triton_jax

if importlib.util.find_spec("triton") is None:
    pytest.skip("no triton", allow_module_level=True)

from rl_triton_jax import versions

ROUTES = {"xla-triton": ("__gpu$xla.gpu.triton",), "jax-triton": ("triton_kernel_call", "triton_kernel_call_ffi")}
pytestmark = pytest.mark.parametrize(
    "route",
    [
        "xla-triton",
        pytest.param(
            "jax-triton",
            marks=pytest.mark.skipif(
                versions.why_no_jax_triton() is not None, reason=str(versions.why_no_jax_triton())
            ),
        ),
    ],
)


def exported(function: Callable[..., Any], route: str, *arguments: Any) -> export.Exported:
    with rl_triton_jax.launch_route(route):
        return export.export(jax.jit(function), platforms=["cpu", "cuda"], disabled_checks=rl_triton_jax.EXPORT_CHECKS)(
            *arguments
        )


def launches(module: str, route: str) -> int:
    return sum(module.count(f"@{name}(") for name in ROUTES[route])


def shapes(*dims: int) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(dims, jnp.float32)


@pytest.mark.parametrize(
    ("shape", "axis", "expected"), [((20, 256), 0, 1), ((128, 4096), 0, 1), ((64, 128), 1, 1), ((4096, 64), 0, 2)]
)
def test_one_launch_and_nothing_around_it(route: str, shape: tuple[int, int], axis: int, expected: int) -> None:
    def function(rewards: Any, values: Any, terminated: Any, last_values: Any) -> Any:
        return rl_triton_jax.gae(rewards, values, terminated, last_values=last_values, axis=axis)

    flags = jax.ShapeDtypeStruct(shape, jnp.bool_)
    text = exported(function, route, shapes(*shape), shapes(*shape), flags, shapes(shape[1 - axis])).mlir_module()
    assert launches(text, route) == expected


def test_exported_bytes_run_on_the_cpu(route: str) -> None:
    problem = oracle.gae_problem(0, (16, 8))
    names = list(problem)

    def function(*arrays: Any) -> Any:
        return rl_triton_jax.gae(**dict(zip(names, arrays, strict=True)))

    arrays = [jnp.asarray(x) for x in problem.values()]
    again = export.deserialize(exported(function, route, *arrays).serialize())
    for got, expected in zip(again.call(*arrays), oracle.gae(**problem), strict=True):
        oracle.assert_close(got, expected)


def test_derivatives_lower_to_the_kernels(route: str) -> None:
    def loss(rewards: Any, values: Any, gamma: Any) -> Any:
        return jnp.sum(rl_triton_jax.gae(rewards, values, last_values=0.0, gamma=gamma).advantages ** 2)

    text = exported(jax.grad(loss, (0, 1, 2)), route, shapes(128, 64), shapes(128, 64), shapes()).mlir_module()
    assert launches(text, route) >= 2
    # The CPU's version of the same program walks with a while loop; the GPU's must not add one of its own.
    cpu_only = export.export(jax.jit(jax.grad(loss, (0, 1, 2))), platforms=["cpu"])(
        shapes(128, 64), shapes(128, 64), shapes()
    )
    assert text.count("stablehlo.while") <= cpu_only.mlir_module().count("stablehlo.while")


def test_vmap_lowers_without_a_transpose(route: str) -> None:
    def function(rewards: Any, values: Any, last_values: Any) -> Any:
        return rl_triton_jax.gae(rewards, values, last_values=last_values)

    for axis in (0, 1, 2):
        dims = [16, 8]
        dims.insert(axis, 4)
        # One per column is batched where the rewards are, once their time axis is taken away.
        last = [8]
        last.insert(max(0, axis - 1), 4)
        batched = jax.vmap(function, in_axes=(axis, axis, max(0, axis - 1)), out_axes=axis)
        with rl_triton_jax.launch_route(route):
            text = export.export(jax.jit(batched), platforms=["cuda"], disabled_checks=rl_triton_jax.EXPORT_CHECKS)(
                shapes(*dims), shapes(*dims), shapes(*last)
            ).mlir_module()
        assert launches(text, route) == 1
        # JAX itself moves the batch axis of one small operand; nothing with a time axis may move.
        moved = re.findall(r"stablehlo\.transpose.*-> tensor<([\dx]+)xf32>", text)
        assert len(moved) == text.count("stablehlo.transpose")
        assert all(math.prod(int(n) for n in shape.split("x")) <= 8 * 4 for shape in moved)


def test_ir_has_no_paths(route: str) -> None:
    def function(rewards: Any, values: Any) -> Any:
        return rl_triton_jax.gae(rewards, values, last_values=0.0)

    if route == "xla-triton":
        text = exported(function, route, shapes(16, 64), shapes(16, 64)).mlir_module()
        assert "columns.py" not in text


def test_numbers_are_not_compiled_in(route: str) -> None:
    traces = []

    @jax.jit
    def function(gamma: Any, rewards: Any) -> Any:
        traces.append(gamma)
        return rl_triton_jax.gae(rewards, rewards, last_values=0.0, gamma=gamma)

    rewards = jnp.asarray(np.random.default_rng(0).standard_normal((8, 4)), jnp.float32)
    with rl_triton_jax.launch_route(route):
        for gamma in (0.9, 0.95, 0.99):
            function(gamma, rewards)
    assert len(traces) == 1

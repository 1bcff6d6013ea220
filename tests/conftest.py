"""Fixtures shared by every test. Nothing here chooses a device: the same tests run on whatever JAX finds."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import hypothesis
import jax
import jax.numpy as jnp
import numpy as np
import pytest

hypothesis.settings.register_profile(
    "suite",
    parent=hypothesis.settings(),
    deadline=None,
    max_examples=12,
    suppress_health_check=[hypothesis.HealthCheck.too_slow],
)
hypothesis.settings.load_profile("suite")


def gpu_present() -> bool:
    return jax.default_backend() in ("gpu", "cuda", "rocm")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if not gpu_present():
        for item in items:
            if item.get_closest_marker("gpu"):
                item.add_marker(pytest.mark.skip(reason="needs a GPU"))


@pytest.fixture(params=["xla-triton", "jax-triton"])
def gpu_route(request: pytest.FixtureRequest) -> Iterator[str]:
    """Each launch route in turn, where it can be used."""
    import rl_triton_jax
    from rl_triton_jax import versions

    if request.param == "jax-triton" and versions.why_no_jax_triton():
        pytest.skip(str(versions.why_no_jax_triton()))
    if request.param == "xla-triton" and not versions.xla_triton_is_known_good():
        pytest.skip("this pair of jaxlib and Triton is not among those known good")
    with rl_triton_jax.launch_route(request.param):
        yield request.param


def to_jax(tree: Any) -> Any:
    """NumPy arrays to JAX arrays; numbers, flags and None stay what they are."""
    return jax.tree.map(lambda x: jnp.asarray(x) if isinstance(x, np.ndarray) else x, tree)


@pytest.fixture(scope="session", params=["xla", "triton"] if gpu_present() else ["xla"])
def implementation(request: pytest.FixtureRequest) -> str:
    """Every implementation that can run here."""
    return request.param


@pytest.fixture
def x64() -> Iterator[None]:
    """float64 switched on for one test."""
    with jax.enable_x64(True):
        yield


@pytest.fixture(scope="session")
def gae(implementation: str) -> Callable[..., Any]:
    """`rl_triton_jax.gae` on one implementation; NumPy arguments become JAX arrays."""
    import rl_triton_jax

    def call(*args: Any, **kwargs: Any) -> Any:
        return rl_triton_jax.gae(*to_jax(args), **to_jax(kwargs), implementation=implementation)

    return call


@pytest.fixture(scope="session")
def linear_recurrence(implementation: str) -> Callable[..., Any]:
    """`rl_triton_jax.linear_recurrence` on one implementation; NumPy arguments become JAX arrays."""
    import rl_triton_jax

    def call(*args: Any, **kwargs: Any) -> Any:
        return rl_triton_jax.linear_recurrence(*to_jax(args), **to_jax(kwargs), implementation=implementation)

    return call

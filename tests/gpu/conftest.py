"""Tests that need a GPU. The rest of the suite runs on the GPU as well where there is one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import jax
import pytest

import rl_triton_jax
from rl_triton_jax import versions

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    present = jax.default_backend() in ("gpu", "cuda", "rocm")
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.gpu)
            if not present:
                item.add_marker(pytest.mark.skip(reason="needs a GPU"))


@pytest.fixture(params=["xla-triton", "jax-triton"])
def route(request: pytest.FixtureRequest) -> Iterator[str]:
    """Each launch route in turn."""
    if request.param == "jax-triton" and versions.why_no_jax_triton():
        pytest.skip(str(versions.why_no_jax_triton()))
    if request.param == "xla-triton" and not versions.xla_triton_is_known_good():
        pytest.skip("this pair of jaxlib and Triton is not among those known good")
    with rl_triton_jax.launch_route(request.param):
        yield request.param

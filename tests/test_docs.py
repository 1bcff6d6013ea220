"""The documentation speaks of what there is: pages name every public function, tables name tests that exist, code runs."""

from __future__ import annotations

import ast
import inspect
import pickle
import re
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import rl_triton_jax
from rl_triton_jax.compat.brax import compute_gae

REPOSITORY = Path(__file__).parents[1]
DOCS = REPOSITORY / "docs"
ESTIMATORS = REPOSITORY / "rl_triton_jax" / "estimators"


def functions_in(path: Path) -> set[str]:
    return {node.name for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.FunctionDef)}


def test_the_transformations_name_tests() -> None:
    named = re.findall(r"`([\w/]+\.py)::(\w+)`", (DOCS / "transformations.md").read_text())
    assert len(named) > 40
    missing = [f"{path}::{name}" for path, name in named if name not in functions_in(REPOSITORY / "tests" / path)]
    assert not missing


def test_every_public_name_is_on_a_page() -> None:
    pages = set(re.findall(r"^::: (\S+)$", "\n".join(p.read_text() for p in (DOCS / "api").glob("*.md")), re.M))
    public = {f"rl_triton_jax.{name}" for name in rl_triton_jax.__all__ if name != "__version__"}
    public |= {f"rl_triton_jax.compat.{p.stem}" for p in (REPOSITORY / "rl_triton_jax" / "compat").glob("*.py")}
    public -= {f"rl_triton_jax.compat.{name}" for name in ("__init__", "frameworks", "notice")}
    public |= {f"rl_triton_jax.interop.{name}" for name in ("to_jax", "to_torch")}
    functions = [name for name in rl_triton_jax.__all__ if "implementation" in parameters(name)]
    public |= {f"rl_triton_jax.torch.{name}" for name in functions}
    assert len(functions) > 10
    assert pages == public


def parameters(name: str) -> list[str]:
    value = getattr(rl_triton_jax, name)
    return list(inspect.signature(value).parameters) if inspect.isfunction(value) else []


def test_every_public_function_says_all() -> None:
    for name in rl_triton_jax.__all__:
        value = getattr(rl_triton_jax, name)
        if inspect.isfunction(value) and "implementation" in parameters(name):
            text = inspect.getdoc(value) or ""
            for part in ("Args:", "Returns:", "Raises:"):
                assert part in text, (name, part)
            described = set(re.findall(r"\w+", text))
            assert set(parameters(name)) <= described, name


def test_public_functions_are_found_again_by_pickle() -> None:
    for name in rl_triton_jax.__all__:
        value = getattr(rl_triton_jax, name)
        if inspect.isfunction(value):
            assert pickle.loads(pickle.dumps(value)) is value
    torch = pytest.importorskip("rl_triton_jax.torch", exc_type=ImportError)
    assert pickle.loads(pickle.dumps(torch.gae)) is torch.gae


@pytest.mark.parametrize("page", ["index.md"])
def test_code_on_pages_runs(page: str) -> None:
    pytest.importorskip("torch")
    blocks = re.findall(r"^( *)```python\n(.*?)^ *```", (DOCS / page).read_text(), re.M | re.S)
    assert blocks
    for indent, block in blocks:
        exec("\n".join(line.removeprefix(indent) for line in block.splitlines()), {})


def test_the_version_is_said_once() -> None:
    citation = (REPOSITORY / "CITATION.cff").read_text()
    assert f"\nversion: {rl_triton_jax.__version__}\n" in citation


def test_the_papers_of_estimators_are_linked() -> None:
    named = set(re.findall(r"arXiv:(\d{4}\.\d{5})", "".join(p.read_text() for p in ESTIMATORS.glob("*.py"))))
    assert len(named) >= 3
    linked = set(re.findall(r"https://arxiv\.org/abs/(\d{4}\.\d{5})", (DOCS / "choosing.md").read_text()))
    assert named <= linked


def test_the_same_data_six_ways() -> None:
    rows = re.findall(r"^\| .* \| ([\d.]+) \| ([\d.]+) \|", (DOCS / "episode-ends.md").read_text(), re.M)
    rewards, values, cut = jnp.arange(1.0, 5.0), jnp.asarray([0.5, 1.0, 1.5, 2.0]), jnp.arange(4) == 1

    def gae(rewards: jax.Array, *flags: jax.Array, **options: jax.Array) -> jax.Array:
        return rl_triton_jax.gae(rewards, values, *flags, last_values=2.5, **options).advantages

    ways = [
        gae(rewards, truncated=cut, final_values=jnp.full(4, 1.2)),
        gae(rewards, cut),
        gae(rewards),
        gae(rewards, truncated=cut, final_values=jnp.full(4, 1.5)),
        gae(jnp.where(cut, rewards + 0.99 * values, rewards), cut),
        compute_gae(cut, jnp.zeros(4), rewards, values, jnp.asarray(2.5), 0.95)[1],
    ]
    np.testing.assert_allclose(np.asarray(rows, float), [np.asarray(way[:2]) for way in ways], rtol=1e-6)

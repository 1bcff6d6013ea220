"""What is installed is whole, and needs nothing beyond the base dependencies."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[1]
OPTIONAL = ("triton", "torch", "jax_triton")

# Run in a fresh interpreter. It looks for its arguments, folders, first; nothing of the checkout is on its path.
IMPORT_WITHOUT_OPTIONAL = f"""
import sys

class Blocker:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {OPTIONAL}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Blocker())
sys.path[:0] = sys.argv[1:]
import jax.numpy as jnp
import rl_triton_jax
import rl_triton_jax.kernels.plan
print(rl_triton_jax.__file__)
print(rl_triton_jax.kernels.plan.__file__)
print(rl_triton_jax.default_implementation())
ones = jnp.ones((3, 2))
print(rl_triton_jax.gae(ones, 0 * ones, last_values=0.0, gamma=1.0, lambda_=1.0).advantages[:, 0].tolist())
"""


def modules(folder: Path, name: str) -> set[str]:
    """Every module below `folder`, as a file inside the package `name`."""
    return {f"{name}/{path.relative_to(folder).as_posix()}" for path in folder.rglob("*.py")}


def in_checkout() -> set[str]:
    own = {
        path
        for path in modules(REPOSITORY / "rl_triton_jax", "rl_triton_jax")
        if not path.startswith("rl_triton_jax/kernels/")
    }  # where a checkout has a link of that name to the folder below
    return own | modules(REPOSITORY / "kernels", "rl_triton_jax/kernels")


def run(*command: str, cwd: Path) -> str:
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    result = subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, timeout=300, check=False)
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that holds the package as a wheel installs it."""
    pytest.importorskip("setuptools", minversion="77")
    pytest.importorskip("pip")
    source, wheels, target = (tmp_path_factory.mktemp(name) for name in ("source", "wheels", "target"))
    # From a copy: a build leaves build/ and *.egg-info behind, whose contents would get into the next wheel.
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        if (REPOSITORY / name).exists():
            shutil.copy(REPOSITORY / name, source)
    for name in ("rl_triton_jax", "kernels"):
        shutil.copytree(REPOSITORY / name, source / name, symlinks=True, ignore=shutil.ignore_patterns("__pycache__"))
    pip = (sys.executable, "-m", "pip", "--disable-pip-version-check")
    run(*pip, "wheel", ".", "--no-deps", "--no-build-isolation", "--wheel-dir", str(wheels), cwd=source)
    (wheel,) = wheels.glob("*.whl")
    run(*pip, "install", "--no-deps", "--no-index", "--target", str(target), str(wheel), cwd=wheels)
    return target


@pytest.mark.slow
def test_wheel_holds_every_module_and_no_other_package(installed: Path) -> None:
    assert modules(installed / "rl_triton_jax", "rl_triton_jax") == in_checkout()
    assert (installed / "rl_triton_jax" / "py.typed").exists()
    assert {path.name for path in installed.iterdir() if path.suffix != ".dist-info"} == {"rl_triton_jax"}


@pytest.mark.slow
def test_import_without_optional_packages(installed: Path, tmp_path: Path) -> None:
    package, kernels, implementation, advantages = run(
        sys.executable, "-c", IMPORT_WITHOUT_OPTIONAL, str(installed), cwd=tmp_path
    ).splitlines()
    assert Path(package).parent == installed / "rl_triton_jax"
    assert Path(kernels).parent == installed / "rl_triton_jax" / "kernels"
    assert implementation == "xla"
    assert advantages == "[3.0, 2.0, 1.0]"


def test_every_package_is_listed() -> None:
    """Without a build: a new folder of modules that pyproject.toml does not name would be missing from wheels."""
    listed = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["tool"]["setuptools"]["packages"]
    assert sorted(listed) == sorted({str(Path(path).parent).replace(os.sep, ".") for path in in_checkout()})

"""Notebooks are what their sources say, were run, and run again to the same words."""

from __future__ import annotations

import importlib.util
import re
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("ipykernel")
pytest.importorskip("matplotlib")
pytest.importorskip("jupytext")
nbformat = pytest.importorskip("nbformat")
pytest.importorskip("nbclient")

FOLDER = Path(__file__).parents[1] / "notebooks"
NAMES = sorted(path.stem for path in FOLDER.glob("*.ipynb"))


@pytest.fixture(scope="module")
def build() -> Any:
    spec = importlib.util.spec_from_file_location("build", FOLDER / "build.py")
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules["build"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def committed(name: str) -> Any:
    return nbformat.read(FOLDER / f"{name}.ipynb", as_version=4)


def shown(notebook: Any) -> list[str]:
    """What cells show as text, in order."""
    outputs = [o for cell in notebook.cells for o in cell.get("outputs", [])]
    assert not [o for o in outputs if o.output_type == "error" or o.get("name") == "stderr"]
    return [o["data"]["text/plain"] for o in outputs if "data" in o]


def test_each_has_its_source(build: Any) -> None:
    assert len(NAMES) == 5
    assert sorted(path.stem for path in build.sources()) == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_is_its_source_with_outputs(build: Any, name: str) -> None:
    notebook, source = committed(name), build.read(FOLDER / f"{name}.py")
    nbformat.validate(notebook)
    assert [(c.cell_type, c.source) for c in notebook.cells] == [(c.cell_type, c.source) for c in source.cells], (
        "run `python notebooks/build.py`"
    )
    assert shown(notebook)


@pytest.fixture(scope="module", params=NAMES)
def run_again(request: pytest.FixtureRequest, build: Any) -> tuple[str, list[str]]:
    if "import torch" in (FOLDER / f"{request.param}.py").read_text():
        pytest.importorskip("torch")
    return request.param, shown(build.run(build.read(FOLDER / f"{request.param}.py")))


def test_runs(run_again: tuple[str, list[str]]) -> None:
    """And what it promises in its text holds."""
    name, texts = run_again
    assert len(texts) == len(shown(committed(name)))
    if name == "episode_ends":
        assert float(texts[0].split("(")[-1].split(",")[0].rstrip(")")) < 1e-5  # truncated: advantages are 0
        clean, leaky = (float(x) for x in texts[3].strip("()").split(","))
        assert clean < 1e-4
        assert leaky > 1
        six = [float(x) for x in re.findall(r"\d[\d.]*", texts[-1].partition("dtype")[0])]
        by_hand = [3.547814, 2.188, 2.4305, 1, 10.62814, 9.716258, 3.827142, 2.485, 3.361595, 1.99, 1.49, 0]
        assert six == pytest.approx(by_hand, rel=1e-6)
    if name == "against_associative_scan":
        again = [text for text in texts if not text.startswith("<Figure")]
        assert float(again[0].split("(")[-1].rstrip(")")) < 1e-6  # of all errors the largest
        assert again[1] == "{'associative_scan': 20, 'rl_triton_jax': 0}"  # steps lost to a NaN that nothing depends on
        if "read from benchmarks/results" in str(committed(name)):
            assert again[-1] == shown(committed(name))[-1], "new results: run `python notebooks/build.py`"
    if name == "ppo_in_one_jit":
        assert texts[0].startswith("(1,")  # one operation
        lengths = [float(x) for x in re.findall(r"\d[\d.]*", texts[2])]
        assert len(lengths) == 3
        assert min(lengths) > 200  # of 500; about 20 before it learned
    if name == "torch_and_dlpack":
        same, addresses, learned, gradient = texts
        assert float(same) < 1e-5
        assert addresses == "1"
        before, after = (float(x) for x in re.findall(r"-?\d+\.\d+", learned))
        assert after - before > 0.5
        assert float(gradient) < 1e-6
    if name == "one_recurrence":
        assert float(texts[0]) < 1e-5  # by hand and fused
        assert float(texts[-1]) == 0  # no weight crosses an end

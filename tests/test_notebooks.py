"""Every notebook runs from top to bottom."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("ipykernel")
nbformat = pytest.importorskip("nbformat")
nbclient = pytest.importorskip("nbclient")
NOTEBOOKS = sorted((Path(__file__).parent.parent / "notebooks").glob("*.ipynb"))


def test_there_are_notebooks() -> None:
    assert NOTEBOOKS


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda p: p.stem)
def test_runs(path: Path) -> None:
    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    assert not any(cell.get("outputs") for cell in notebook.cells), "clear the outputs before committing"
    nbclient.NotebookClient(notebook, timeout=120, kernel_name="python3").execute()


def test_what_episode_ends_says() -> None:
    """The numbers that the text of the notebook promises."""
    notebook = nbformat.read(NOTEBOOKS[0].parent / "episode_ends.ipynb", as_version=4)
    done = nbclient.NotebookClient(notebook, timeout=120, kernel_name="python3").execute()
    shown = [o["data"]["text/plain"] for c in done.cells for o in c.get("outputs", []) if "data" in o]
    assert float(shown[0].split("(")[-1].split(",")[0].rstrip(")")) < 1e-5  # truncated: advantages are 0
    clean, leaky = (float(x) for x in shown[-1].strip("()").split(","))
    assert clean < 1e-4
    assert leaky > 1

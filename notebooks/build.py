"""Runs the notebooks: each `.py` here (percent format of jupytext) becomes an `.ipynb` with its outputs.

python notebooks/build.py [name ...]
"""

from __future__ import annotations

import sys
from pathlib import Path

import jupytext
import nbclient
import nbformat

HERE = Path(__file__).parent


def sources() -> list[Path]:
    return sorted(path for path in HERE.glob("*.py") if path != Path(__file__))


def read(path: Path) -> nbformat.NotebookNode:
    """The notebook of a source, without outputs; the same each time."""
    notebook = jupytext.read(path)
    notebook.metadata = {k: x for k, x in notebook.metadata.items() if k != "jupytext"}
    for number, cell in enumerate(notebook.cells):
        cell.id = f"cell-{number}"
    return notebook


def run(notebook: nbformat.NotebookNode) -> nbformat.NotebookNode:
    nbclient.NotebookClient(
        notebook, timeout=300, kernel_name="python3", resources={"metadata": {"path": HERE}}
    ).execute()
    for cell in notebook.cells:
        cell.metadata.pop("execution", None)  # when it ran
    return notebook


if __name__ == "__main__":
    for path in sources():
        if not sys.argv[1:] or path.stem in sys.argv[1:]:
            nbformat.write(run(read(path)), path.with_suffix(".ipynb"))
            print(path.with_suffix(".ipynb"))

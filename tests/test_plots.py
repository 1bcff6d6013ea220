"""The pictures of the benchmarks: the numbers drawn are those of the rows, and the committed ones are not stale."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("matplotlib")

from benchmarks import plot
from benchmarks.rows import Row, empty_row, latest, load
from benchmarks.run import RESULTS

COMMITTED = Path(__file__).parents[1] / "docs" / "plots"


def _row(T: int, N: int, provider: str, device_us: float, **fields: Any) -> Row:
    row: dict[str, Any] = empty_row() | {"op": "gae", "layout": "time_major", "T": T, "N": N, "dtype": "float32"}
    row |= {"provider": provider, "outputs": "advantages,returns", "truncation": False, "warm": "warm"}
    row |= {"device_us": device_us, "copy_us": 2.0, "fraction_of_copy": 2.0 / device_us}
    return Row(**(row | fields))


ROWS = [
    *(_row(T, 64, "ours_xla_triton", T / 8) for T in (16, 64, 32)),
    *(_row(T, 64, "associative_scan", T / 2) for T in (16, 64, 32)),
    _row(16, 128, "ours_xla_triton", 3.0),
    _row(16, 64, "lax_scan_1", 99.0),
    _row(16, 64, "ours_torch", 1.0, error="refused"),
    _row(16, 64, "ours_torch", 1.0, dtype="bfloat16"),
    _row(16, 64, "ours_torch", 1.0, warm="rotated"),
]


def _lines(axes: Any) -> dict[str, tuple[list[float], list[float]]]:
    return {line.get_label(): (list(line.get_xdata()), list(line.get_ydata())) for line in axes.lines}


def test_times_by_shape() -> None:
    figure = plot.by_shape(ROWS)
    assert figure is not None
    (axes,) = figure.axes
    assert [text.get_text() for text in axes.get_xticklabels()] == ["16x64", "16x128", "32x64", "64x64"]
    lines = _lines(axes)
    assert dict(zip(*lines["ours, XLA's Triton call"], strict=True)) == {0: 2.0, 1: 3.0, 2: 4.0, 3: 8.0}
    assert lines["lax_scan_1"] == ([0], [99.0])
    assert "ours, torch" not in lines  # wrong, of another type, or rotated


def test_times_along_a_size() -> None:
    figure = plot.along(ROWS, "T")
    assert figure is not None
    assert _lines(figure.axes[0])["associative_scan"] == ([16, 32, 64], [8.0, 16.0, 32.0])
    assert "N = 64" in figure.axes[0].get_xlabel()
    assert plot.along(ROWS, "N") is None  # two points are no line


def test_speed_up() -> None:
    figure = plot.heat_map(ROWS)
    assert figure is not None
    # At 16x128 there is no baseline.
    assert [text.get_text() for text in figure.axes[0].texts] == ["4.0", "4.0", "4.0"]
    shown: Any = figure.axes[0].images[0].get_array()
    np.testing.assert_allclose(shown, [[2, 2, 2]])


def test_fractions() -> None:
    figure = plot.fractions(ROWS)
    assert figure is not None
    drawn = [x for line in figure.axes[0].lines[:-1] for x in np.asarray(line.get_xdata())]
    assert sorted(drawn) == [0.25, 0.5, pytest.approx(2 / 3), 1.0]


@pytest.mark.parametrize("draw", [plot.by_shape, plot.heat_map, plot.fractions])
def test_nothing_measured_is_nothing_drawn(draw: Any) -> None:
    assert draw([]) is None


def test_the_committed_pictures_show_the_committed_results(tmp_path: Path) -> None:
    found = plot.pictures(list(latest(load(sorted(RESULTS.glob("*/*.json")))).values()))
    assert sorted(found) == sorted(path.stem for path in COMMITTED.glob("*.svg")), "run python -m benchmarks.plot"

    def texts(path: Path) -> list[str]:
        return re.findall(r"<text[^>]*>([^<]*)<", path.read_text())

    assert plot.main(["--out", str(tmp_path)], log=lambda _: None) == 0
    for name in found:
        assert texts(tmp_path / f"{name}.svg") == texts(COMMITTED / f"{name}.svg"), "run python -m benchmarks.plot"
    assert len(texts(COMMITTED / "speed-up.svg")) > 80

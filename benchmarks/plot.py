"""Draws results: `python -m benchmarks.plot [FILES] --out FOLDER`, one SVG a picture.

Without files, all committed results. Only float32 with reused buffers is drawn; what was not measured is left out.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from .report import OURS, grouped, heading, ours_of, provider_order, shape_of, value_of
from .rows import Row, latest, load
from .run import RESULTS
from .shapes import Shape

# The same hue for a provider in every picture; ours in blues.
COLORS = {
    "ours_xla_triton": "#1f5fa8",
    "ours_jax_triton": "#5fa8e8",
    "ours_torch": "#17becf",
    "ours_xla": "#9aa5b1",
    "associative_scan": "#d9822b",
    "lax_scan_1": "#8a5fbf",
    "lax_scan_16": "#b79ad9",
}
FEWEST = 3  # points that make a line


def _color(provider: str) -> str:
    return COLORS.get(provider, "#6b6b6b")


def _name(provider: str) -> str:
    return heading(provider).replace("`", "")


def _chosen(rows: Iterable[Row], **fields: Any) -> list[Row]:
    wanted = {"dtype": "float32", "warm": "warm", **fields}
    return [row for row in rows if not row["error"] and all(row.get(k) == x for k, x in wanted.items())]


def _providers(rows: Iterable[Row]) -> list[str]:
    return sorted({row["provider"] for row in rows}, key=provider_order)


def _outer(layout: str) -> str:
    return "time-major, TxN" if layout == "time_major" else "batch-major, NxT"


def by_shape(rows: Sequence[Row], op: str = "gae", layout: str = "time_major", **fields: Any) -> Figure | None:
    """Device time of each provider at each shape, and of a copy of the bytes."""
    chosen = _chosen(rows, op=op, layout=layout, truncation=False, **fields)
    chosen = [row for row in chosen if value_of(row, "device_us") is not None]
    if not chosen:
        return None
    shapes = sorted({shape_of(row) for row in chosen}, key=lambda shape: (shape.T * shape.N, shape.T))
    figure = Figure(figsize=(3.4 + 0.95 * len(shapes), 3.8), layout="constrained")
    axes: Axes = figure.subplots()
    place = {shape: k for k, shape in enumerate(shapes)}
    for provider in _providers(chosen):
        own = [row for row in chosen if row["provider"] == provider]
        axes.plot(
            [place[shape_of(row)] for row in own],
            [row["device_us"] or math.nan for row in own],
            marker="o",
            linestyle="",
            color=_color(provider),
            label=_name(provider),
            zorder=3 if provider in OURS else 2,
        )
    floors = {shape_of(row): row["copy_us"] or math.nan for row in chosen}
    axes.hlines(
        [floors[shape] for shape in shapes],
        [k - 0.3 for k in range(len(shapes))],
        [k + 0.3 for k in range(len(shapes))],
        color="black",
        label="a copy of the bytes",
    )
    axes.set(yscale="log", ylabel="device time, µs", title=f"{op}, {_outer(layout)}, float32")
    axes.set_xticks(range(len(shapes)), [shape.name for shape in shapes])
    axes.grid(axis="y", alpha=0.3)
    figure.legend(fontsize="small", loc="outside right upper")
    return figure


def along(rows: Sequence[Row], size: str, op: str = "gae", **fields: Any) -> Figure | None:
    """Device time against T, or against N ("T" or "N"), for the other size that was measured most often; time-major."""
    other = "N" if size == "T" else "T"
    chosen = _chosen(rows, op=op, layout="time_major", truncation=False, **fields)
    chosen = [row for row in chosen if value_of(row, "device_us") is not None]
    fixed: dict[int, set[int]] = {}
    for row in chosen:
        fixed.setdefault(_size(row, other), set()).add(_size(row, size))
    at = max(fixed, key=lambda value: (len(fixed[value]), value), default=None)
    if at is None or len(fixed[at]) < FEWEST:
        return None
    chosen = sorted((row for row in chosen if _size(row, other) == at), key=lambda row: _size(row, size))
    figure = Figure(figsize=(5.6, 3.8), layout="constrained")
    axes: Axes = figure.subplots()
    for provider in _providers(chosen):
        own = [row for row in chosen if row["provider"] == provider]
        xs, ys = [_size(row, size) for row in own], [row["device_us"] or math.nan for row in own]
        axes.plot(xs, ys, marker="o", markersize=4, color=_color(provider), label=_name(provider))
    floors = {_size(row, size): row["copy_us"] or math.nan for row in chosen}
    axes.plot(list(floors), list(floors.values()), color="black", linestyle="--", label="a copy of the bytes")
    axes.set(
        xscale="log", yscale="log", xlabel=f"{size} ({other} = {at})", ylabel="device time, µs", title=f"{op}, float32"
    )
    axes.set_xscale("log", base=2)
    axes.grid(alpha=0.3)
    axes.legend(fontsize="small")
    return figure


def _size(row: Row, name: str) -> int:
    return row["T"] if name == "T" else row["N"]


def fractions(rows: Sequence[Row]) -> Figure | None:
    """How near each estimator of ours comes to a copy of its bytes: a mark for each shape, a line at 1."""
    chosen = [row for row in _chosen(rows, truncation=False) if row["provider"] == OURS[0]]
    chosen = [row for row in chosen if value_of(row, "fraction_of_copy") is not None and row["layout"] != "packed"]
    first: dict[tuple[str, Shape], Row] = {}
    for row in chosen:
        key = row["op"], shape_of(row)
        if key not in first or row["outputs"].count(",") > first[key]["outputs"].count(","):
            first[key] = row  # all outputs rather than some
    ops = sorted({op for op, _ in first})
    if not ops:
        return None
    sizes = sorted({shape.T * shape.N for _, shape in first})
    figure = Figure(figsize=(6.8, 1 + 0.32 * len(ops)), layout="constrained")
    axes: Axes = figure.subplots()
    shades = matplotlib.colormaps["viridis"]
    for k, elements in enumerate(sizes):
        color = shades(0.85 * k / max(len(sizes) - 1, 1))
        for layout, marker in (("time_major", "o"), ("batch_major", "s")):
            points = [
                (row["fraction_of_copy"] or 0, ops.index(op))
                for (op, shape), row in first.items()
                if elements == shape.T * shape.N and shape.layout == layout
            ]
            if points:
                label = f"{elements:,} steps, {layout.replace('_', '-')}"
                axes.plot(*zip(*points, strict=True), marker=marker, linestyle="", color=color, label=label, alpha=0.8)
    axes.axvline(1, color="black")
    axes.set_yticks(range(len(ops)), ops)
    axes.invert_yaxis()
    axes.set(xlabel="time of a copy of the bytes / device time", xlim=(0, None), title=f"{_name(OURS[0])}, float32")
    axes.grid(axis="x", alpha=0.3)
    figure.legend(fontsize="x-small", loc="outside right upper")
    return figure


def heat_map(rows: Sequence[Row]) -> Figure | None:
    """Of each estimator at each shape: how many times longer the best baseline takes than we do."""
    cells: dict[str, dict[Shape, float]] = {}
    for group, by in grouped(_chosen(rows, truncation=False)).items():
        for shape, providers in by.items():
            ours = ours_of(providers, "device_us")
            others = [value_of(row, "device_us") for name, row in providers.items() if name not in OURS]
            best = min((x for x in others if x is not None), default=None)
            if ours and best and shape.layout != "packed":
                cells.setdefault(group[0], {})[shape] = best / ours
    if not cells:
        return None
    ops = sorted(cells)
    # Shapes at which most were measured: a column with one cell says nothing.
    counts = {shape: sum(shape in by for by in cells.values()) for by in cells.values() for shape in by}
    shapes = [shape for shape, count in counts.items() if 2 * count >= len(ops)]
    shapes.sort(key=lambda shape: (shape.layout != "time_major", shape.T * shape.N, shape.T))
    if not shapes:
        return None
    grid = [[cells[op].get(shape, math.nan) for shape in shapes] for op in ops]
    figure = Figure(figsize=(3 + 0.95 * len(shapes), 1.6 + 0.34 * len(ops)), layout="constrained")
    axes: Axes = figure.subplots()
    # On a logarithm, so that twice as fast and twice as slow lie equally far from the middle.
    most = max(abs(math.log2(x)) for line in grid for x in line if not math.isnan(x)) or 1
    logs = [[math.log2(x) for x in line] for line in grid]
    axes.imshow(logs, cmap="RdBu", vmin=-most, vmax=most, aspect="auto")
    for i, line in enumerate(grid):
        for j, x in enumerate(line):
            text = "" if math.isnan(x) else f"{x:.1f}"
            dark = not math.isnan(x) and abs(math.log2(x)) > 0.65 * most
            axes.text(j, i, text, ha="center", va="center", fontsize="small", color="white" if dark else "black")
    marks = {"time_major": "TxN\n", "batch_major": "NxT\n"}
    axes.set_xticks(range(len(shapes)), [marks[shape.layout] + shape.name for shape in shapes], fontsize="small")
    axes.set_yticks(range(len(ops)), ops)
    axes.set_title("best baseline / ours, device time, float32")
    return figure


def pictures(rows: Sequence[Row]) -> dict[str, Figure]:
    found = {
        "gae-by-shape": by_shape(rows),
        "gae-along-steps": along(rows, "T"),
        "gae-along-environments": along(rows, "N"),
        "fraction-of-copy": fractions(rows),
        "speed-up": heat_map(rows),
    }
    return {name: figure for name, figure in found.items() if figure is not None}


def save(figure: Figure, path: Path) -> None:
    """The same bytes for the same numbers."""
    with matplotlib.rc_context({"svg.hashsalt": path.stem, "svg.fonttype": "none"}):
        figure.savefig(path, format="svg", metadata={"Date": None})


def main(argv: Sequence[str] | None = None, log: Callable[[str], None] = print) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.plot", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("results", nargs="*", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args(argv)
    results = load(args.results or sorted(RESULTS.glob("*/*.json")))
    devices = sorted({one["header"]["device"] for one in results})
    if len(devices) != 1:
        log(f"expected the results of one device, got {', '.join(devices) or 'none'}")
        return 1
    args.out.mkdir(parents=True, exist_ok=True)
    for name, figure in pictures(list(latest(results).values())).items():
        save(figure, args.out / f"{name}.svg")
        log(str(args.out / f"{name}.svg"))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())

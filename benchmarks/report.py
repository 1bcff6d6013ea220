"""Shows results: `python -m benchmarks.report [FILES] [--readme | --check-readme]`.

Without files, all committed results. README.md's block between the two marks is made of them, and of nothing else.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from .ops import all_ops
from .rows import Results, Row, latest, load
from .run import RESULTS
from .shapes import Shape

BEGIN, END = "<!-- benchmarks:begin -->", "<!-- benchmarks:end -->"
README = Path(__file__).parent.parent / "README.md"
# Ratios are to the first of these that was measured.
OURS = ("ours_xla_triton", "ours_jax_triton", "ours_xla", "ours_torch")
SMALL = 1 << 20  # elements up to which launches, not bytes, are the cost
CELLS = {"xla_triton": "XLA's Triton call", "jax_triton": "jax-triton", "torch": "torch", "xla": "XLA formula"}

Group = tuple[str, str, str, str, bool, int, str]


def group_of(row: Row) -> Group:
    actions = row.get("actions") or 0  # older results have no such field
    return row["op"], row["layout"], row["dtype"], row["outputs"], row["truncation"], actions, row["warm"]


def title(group: Group) -> str:
    op, layout, dtype, outputs, truncation, actions, warm = group
    return (
        f"{op}, {layout.replace('_', '-')}, {dtype}, {outputs.replace(',', ' and ')}"
        f"{f', {actions} actions' if actions else ''}{', with truncations' if truncation else ''}, "
        f"{'buffers reused' if warm == 'warm' else 'buffers rotated'}"
    )


def shape_of(row: Row) -> Shape:
    layout: Any = row["layout"]
    return Shape(layout, row["T"], row["N"])


def provider_order(name: str) -> tuple[int, str]:
    return (OURS.index(name) if name in OURS else len(OURS)), name


def heading(name: str) -> str:
    return f"ours, {CELLS[name.removeprefix('ours_')]}" if name in OURS else f"`{name}`"


def grouped(rows: Iterable[Row]) -> dict[Group, dict[Shape, dict[str, Row]]]:
    groups: dict[Group, dict[Shape, dict[str, Row]]] = {}
    for row in rows:
        groups.setdefault(group_of(row), {}).setdefault(shape_of(row), {})[row["provider"]] = row
    return {
        group: dict(sorted(shapes.items(), key=lambda item: (item[0].T * item[0].N, item[0].T)))
        for group, shapes in sorted(groups.items())
    }


def value_of(row: Row | None, name: str) -> float | None:
    value: Any = None if row is None or row["error"] else row.get(name)
    return value


def ours_of(providers: dict[str, Row], name: str) -> float | None:
    return next((x for x in (value_of(providers.get(ours), name) for ours in OURS) if x is not None), None)


def show(value: float | None, digits: int = 3) -> str:
    if value is None:
        return "-"
    return f"{value:.0f}" if value >= 10 ** (digits - 1) else f"{value:.{digits}g}"


# ---- the terminal

COLUMNS = (
    ("device_us", "device us"),
    ("device_spread", "spread"),
    ("graph_us", "graph us"),
    ("marginal_us", "marginal us"),
    ("call_us", "call us"),
    ("enqueue_us", "enqueue us"),
    ("compile_s", "compile s"),
    ("launches", "launches"),
    ("fraction_of_copy", "of copy"),
    ("max_rel_err", "error"),
)


def text_tables(rows: Iterable[Row]) -> str:
    lines: list[str] = []
    for group, by_shape in grouped(rows).items():
        head = [f"{'shape':>12} {'provider':18} {'ratio':>7}", *(f"{label:>11}" for _, label in COLUMNS)]
        lines += ["", title(group), " ".join(head)]
        for shape, providers in by_shape.items():
            base = ours_of(providers, "device_us")
            for name in sorted(providers, key=provider_order):
                row = providers[name]
                device = value_of(row, "device_us")
                ratio = f"{device / base:.2f}" if device and base else ""
                cells = [row["error"]] if row["error"] else [f"{show(value_of(row, key)):>11}" for key, _ in COLUMNS]
                lines.append(" ".join([f"{shape.name:>12} {name:18} {ratio:>7}", *cells]))
    return "\n".join(lines[1:])


# ---- README.md


def _markdown(head: Sequence[str], body: Iterable[Sequence[str]]) -> list[str]:
    return [f"| {' | '.join(row)} |" for row in (head, ["---", *["---:"] * (len(head) - 1)], *body)]


def _names(by_shape: dict[Shape, dict[str, Row]], metric: str) -> list[str]:
    found = {
        name for providers in by_shape.values() for name, row in providers.items() if value_of(row, metric) is not None
    }
    return sorted(found, key=provider_order)


def _device_table(by_shape: dict[Shape, dict[str, Row]]) -> list[str]:
    names = _names(by_shape, "device_us")
    outer = "TxN" if next(iter(by_shape)).layout == "time_major" else "NxT"

    def cell(providers: dict[str, Row], name: str) -> str:
        value, base = value_of(providers.get(name), "device_us"), ours_of(providers, "device_us")
        if value is None or base is None or name in OURS:
            return show(value)
        return f"{show(value)} ({value / base:.1f}x)"

    def copy(providers: dict[str, Row]) -> float | None:
        return next((x for x in (value_of(row, "copy_us") for row in providers.values()) if x is not None), None)

    return _markdown(
        [outer, "a copy of the bytes", *map(heading, names)],
        (
            [shape.name, show(copy(providers)), *(cell(providers, name) for name in names)]
            for shape, providers in by_shape.items()
        ),
    )


def _marginal_table(by_shape: dict[Shape, dict[str, Row]]) -> list[str]:
    small = {
        shape: providers
        for shape, providers in by_shape.items()
        if shape.T * shape.N <= SMALL and _names({shape: providers}, "marginal_us")
    }
    if not small:
        return []
    names = _names(small, "marginal_us")

    def cell(row: Row | None) -> str:
        marginal = value_of(row, "marginal_us")
        return "-" if marginal is None else f"{show(marginal)} ({show(value_of(row, 'compile_s'), 2)} s)"

    outer = "TxN" if next(iter(small)).layout == "time_major" else "NxT"
    return [
        "",
        "One more call inside a jit, µs (and the time to compile one call):",
        "",
        *_markdown(
            [outer, *map(heading, names)],
            ([shape.name, *(cell(providers.get(name)) for name in names)] for shape, providers in small.items()),
        ),
    ]


def _label(group: Group) -> str:
    op, outputs, actions = group[0], group[3], group[5]
    few = f", {outputs} only" if len(outputs.split(",")) < len(all_ops()[op].outputs) else ""
    return f"`{op}`{few}" + (f", {actions} actions" if actions else "")


def _overview(rows: Iterable[Row]) -> list[str]:
    """All estimators of a run that is not about one: a table for each layout."""
    groups = [(group, by_shape) for group, by_shape in grouped(rows).items() if _names(by_shape, "device_us")]
    lines: list[str] = []
    for key in sorted({(layout, dtype, truncation) for (_, layout, dtype, _, truncation, _, _), _ in groups}):
        here = {_label(group): by_shape for group, by_shape in groups if (group[1], group[2], group[4]) == key}
        names = dict.fromkeys(shape for by_shape in here.values() for shape in by_shape)
        columns = sorted(names, key=lambda shape: (shape.T * shape.N, shape.T))

        def cell(providers: dict[str, Row]) -> str:
            ours = ours_of(providers, "device_us")
            others = [value_of(row, "device_us") for name, row in providers.items() if name not in OURS]
            best = min((x for x in others if x is not None), default=None)
            return show(ours) + (f" ({best / ours:.1f}x)" if ours and best else "")

        layout, dtype, truncation = key
        lines += [
            "",
            f"All estimators, {layout.replace('_', '-')}, {dtype}{', with truncations' if truncation else ''}, buffers reused: "
            "ours (ratio of the best baseline to it):",
            "",
            *_markdown(
                ["", *(shape.name for shape in columns)],
                ([label, *(cell(by_shape.get(shape, {})) for shape in columns)] for label, by_shape in here.items()),
            ),
        ]
    return lines


def _run_line(results: Results) -> str:
    header = results["header"]
    versions = ", ".join(
        f"{name} {version}"
        for name, version in header["versions"].items()
        if version and name in ("jax", "jax-triton", "triton", "torch", "driver")
    )
    empty = header.get("empty_kernel_us")
    floors = f"a large copy moved {header['copy_gb_s'] / 1e3:.2f} TB/s"
    floors += f", an empty kernel took {show(empty)} µs" if empty else ""
    return f"{header['date'][:10]}, commit {(header['commit'] or 'unknown')[:10]} ({versions}); {floors}."


def readme_block(results: Sequence[Results]) -> str:
    """The block between the marks. Quick runs are not measurements and are left out."""
    real = [r for r in results if not r["header"]["quick"]]
    if not real:
        return "No results are committed yet."
    lines: list[str] = []
    for device in sorted({r["header"]["device"] for r in real}):
        here = [r for r in real if r["header"]["device"] == device]
        light = [r for r in here if r["header"].get("light") or r["header"].get("targets")]
        lines += ["", f"**{device}.** Device time, µs (ratio to ours)."]
        for group, by_shape in grouped(latest(r for r in here if r not in light).values()).items():
            if group[-1] == "warm" and _names(by_shape, "device_us"):
                lines += ["", f"{title(group)}:", "", *_device_table(by_shape), *_marginal_table(by_shape)]
        lines += _overview(latest(light).values())
        lines += ["", *(f"{'Measured' if k == 0 else 'And'} {_run_line(r)}" for k, r in enumerate(here))]
    return "\n".join(lines[1:])


def with_block(text: str, block: str) -> str:
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not (begin and end):
        raise ValueError(f"no block between {BEGIN} and {END}")
    return f"{before}{BEGIN}\n{block}\n{END}{after}"


def main(argv: Sequence[str] | None = None, log: Callable[[str], None] = print) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.report", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("results", nargs="*", type=Path)
    mode = parser.add_mutually_exclusive_group()
    mode.add_argument("--readme", nargs="?", type=Path, const=README, help="rewrite the block in README.md")
    mode.add_argument("--check-readme", nargs="?", type=Path, const=README, help="fail if that block is stale")
    args = parser.parse_args(argv)
    results = load(args.results or sorted(RESULTS.glob("*/*.json")))
    path: Path | None = args.readme or args.check_readme
    if path is None:
        log(text_tables(latest(results).values()))
        return 0
    try:
        old = path.read_text()
        new = with_block(old, readme_block(results))
    except (OSError, ValueError) as error:
        log(f"{path}: {error}")
        return 1
    if args.readme:
        path.write_text(new)
    elif new != old:
        log(f"{path.name} is stale: python -m benchmarks.report --readme")
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())

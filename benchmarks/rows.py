"""The result file: one header and a list of rows."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any, TypedDict


class Row(TypedDict):
    """One provider on one problem. Times are medians; None is "not measured"."""

    op: str
    layout: str
    T: int
    N: int
    dtype: str
    provider: str
    route: str | None  # "xla_triton", "jax_triton", "torch"
    outputs: str  # comma list
    truncation: bool
    actions: int | None  # where action values are folded in
    warm: str  # "warm": the same buffers at every call; "rotated": over more than twice the L2
    device_us: float | None
    device_spread: float | None  # relative difference of two repeats
    device_method: str | None  # "cupti", or "wall" where there is no CUPTI
    graph_us: float | None  # torch: replayed in a CUDA graph
    marginal_us: float | None
    marginal_spread_us: float | None
    chains: list[int] | None  # calls in the two jits behind marginal_us
    call_us: float | None
    enqueue_us: float | None
    compile_s: float | None
    launches: float | None
    bytes: int | None
    copy_us: float | None  # a copy of as many bytes in this run
    fraction_of_copy: float | None
    max_rel_err: float | None
    note: str | None
    error: str | None


class Results(TypedDict):
    header: dict[str, Any]
    rows: list[Row]


KEY = ("op", "layout", "T", "N", "dtype", "provider", "outputs", "truncation", "actions", "warm")


def empty_row() -> Row:
    row: dict[str, Any] = dict.fromkeys(Row.__annotations__)
    return Row(**row)


def key_of(row: Row) -> tuple[Any, ...]:
    return tuple(row.get(name) for name in KEY)


def save(path: Path, results: Results) -> None:
    """Whole or not at all: a killed run leaves the rows it had."""
    scratch = path.with_suffix(".part")
    scratch.write_text(json.dumps(results, indent=1) + "\n")
    scratch.replace(path)


def load(paths: Iterable[Path]) -> list[Results]:
    """In order of date."""
    found: list[Results] = [json.loads(Path(path).read_text()) for path in paths]
    return sorted(found, key=lambda r: r["header"]["date"])


def latest(results: Iterable[Results]) -> dict[tuple[Any, ...], Row]:
    """The newest row of each key."""
    return {key_of(row): row for one in results for row in one["rows"]}

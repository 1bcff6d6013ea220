"""What became slower between two sets of results: `python -m benchmarks.compare OLD NEW`; fails where something did.

OLD and NEW are files or folders of files. Only rows of the same device and kind of run are compared, and a difference that
is smaller than either row's own spread is noise.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from .rows import Results, Row, key_of, latest, load

METRICS = ("device_us", "graph_us", "marginal_us", "call_us", "enqueue_us", "compile_s")
# These depend on the machine around the GPU: shown, not judged.
ON_THE_HOST = ("call_us", "enqueue_us", "compile_s")
SLOWER = 1.05


class Change(NamedTuple):
    row: Row
    metric: str
    old: float
    new: float
    noise: float  # relative

    @property
    def ratio(self) -> float:
        return self.new / self.old

    @property
    def slower(self) -> bool:
        return self.metric not in ON_THE_HOST and self.ratio > max(SLOWER, 1 + self.noise)


def _noise(row: Row, metric: str) -> float:
    if metric == "marginal_us":
        return (row["marginal_spread_us"] or 0.0) / (row["marginal_us"] or 1.0)
    return (row["device_spread"] or 0.0) if metric == "device_us" else 0.0


def _newest(results: Iterable[Results]) -> dict[tuple[object, ...], Row]:
    """Quick runs are not measurements; light ones time fewer calls, and are compared with light ones."""
    kinds: dict[tuple[object, ...], list[Results]] = {}
    for one in results:
        header = one["header"]
        if not header["quick"]:
            kinds.setdefault((header["device"], bool(header.get("light"))), []).append(one)
    return {(*kind, *key): row for kind, found in kinds.items() for key, row in latest(found).items()}


def changes(old: Iterable[Results], new: Iterable[Results]) -> list[Change]:
    """Of every figure that both have, in their newest rows; the worst first."""
    before, found = _newest(old), []
    for key, row in _newest(new).items():
        past = before.get(key)
        if past is None or row["error"] or past["error"]:
            continue
        for metric in METRICS:
            x, y = past.get(metric), row.get(metric)
            if isinstance(x, (int, float)) and isinstance(y, (int, float)) and x > 0:
                found.append(Change(row, metric, x, y, max(_noise(past, metric), _noise(row, metric))))
    return sorted(found, key=lambda change: -change.ratio)


def _files(path: Path) -> list[Path]:
    return sorted(path.glob("**/*.json")) if path.is_dir() else [path]


def main(argv: Sequence[str] | None = None, log: Callable[[str], None] = print) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.compare", description=(__doc__ or "").partition("\n")[0]
    )
    parser.add_argument("old", type=Path)
    parser.add_argument("new", type=Path)
    parser.add_argument("--all", action="store_true", help="show what did not change too")
    args = parser.parse_args(argv)
    found = changes(load(_files(args.old)), load(_files(args.new)))
    if not found:
        log("nothing to compare: no row is in both, on the same device")
        return 1
    for change in found:
        if args.all or not 1 / SLOWER <= change.ratio <= SLOWER:
            label = " ".join(str(x) for x in key_of(change.row) if x is not None)
            moved = f"{change.ratio:6.2f}x {change.metric:12} {change.old:10.4g} -> {change.new:10.4g}"
            log(f"{moved}  {label}{' SLOWER' if change.slower else ''}")
    slower = sum(change.slower for change in found)
    log(f"{len(found)} figures in both, {slower} slower by more than {SLOWER - 1:.0%} and by more than their noise")
    return 1 if slower else 0


if __name__ == "__main__":
    raise SystemExit(main())

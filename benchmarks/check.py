"""Compares results with targets.json and fails on a miss: `python -m benchmarks.check results/<device>/*.json`."""

from __future__ import annotations

import argparse
import itertools
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from .ops import all_ops
from .rows import KEY, Results, Row, key_of, latest, load
from .shapes import parse

TARGETS = Path(__file__).parent / "targets.json"


class Target(NamedTuple):
    """A bound on one figure of one problem, or with `of` on its ratio to the same figure of another row.

    In the file `max` or `min` says which bound and `of` what is different in the other row; each list in `providers` is a
    target of its own, met by any in it.
    """

    fields: Mapping[str, Any]  # of the problem, by the names of `rows.KEY`
    metric: str
    limit: float
    least: bool  # the limit is the least, not the most
    providers: tuple[str, ...]  # the best of these counts
    of: Mapping[str, Any] | None
    device: str

    @property
    def label(self) -> str:
        field = self.fields
        sizes = (field["N"], field["T"]) if field["layout"] == "batch_major" else (field["T"], field["N"])
        parts = [field["op"], field["layout"], "x".join(map(str, sizes))]
        parts += [field["dtype"]] if field["dtype"] != "float32" else []
        parts += ["truncation"] if field["truncation"] else []
        parts += [f"{field['outputs']} only"] if field["op"] == "gae" and "," not in field["outputs"] else []
        parts += [self.metric]
        parts += [f"/ {' '.join(map(str, self.of.values()))}"] if self.of else []
        return " ".join(parts)

    def key(self, provider: str, other: Mapping[str, Any] | None = None) -> tuple[Any, ...]:
        fields = {"provider": provider, **self.fields, **(other or {})}
        return tuple(fields.get(name) for name in KEY)

    def rows(self) -> list[tuple[Any, ...]]:
        """Of all rows that it looks at."""
        own = [self.key(provider) for provider in self.providers]
        return own + ([self.key(provider, self.of) for provider in self.providers] if self.of else [])


class Verdict(NamedTuple):
    target: Target
    measured: float | None
    provider: str | None

    @property
    def met(self) -> bool:
        if self.measured is None:
            return False
        return self.measured >= self.target.limit if self.target.least else self.measured <= self.target.limit


def load_targets(path: Path = TARGETS) -> list[Target]:
    """One for each op, shape and front end that an entry of the file names."""
    content = json.loads(path.read_text())
    return [target for given in content["targets"] for target in _targets(content["defaults"] | given)]


def _targets(given: Mapping[str, Any]) -> Iterator[Target]:
    for name, shape, providers in itertools.product(given["ops"], parse(given["shapes"]), given["providers"]):
        op = all_ops()[name]
        problem = op.problem(shape)
        fields = {
            "op": name,
            "layout": shape.layout,
            "T": shape.T,
            "N": shape.N,
            "dtype": given["dtype"],
            "outputs": given.get("outputs", ",".join(op.outputs)),
            "truncation": given["truncation"],
            "actions": problem.actions,
            "warm": given["warm"],
        }
        limit = given["min"] if "min" in given else given["max"]
        yield Target(fields, given["metric"], limit, "min" in given, tuple(providers), given.get("of"), given["device"])


def figure(row: Row, metric: str) -> float | None:
    """A field of the row, or what follows from some; None where it was not measured or the row is wrong."""
    if row["error"]:
        return None
    if metric == "over_copy_us":
        device, copy = row["device_us"], row["copy_us"]
        return None if device is None or copy is None else device - copy
    value: Any = row.get(metric)
    return float(value) if isinstance(value, (int, float)) else None


def judge(target: Target, results: Iterable[Results]) -> Verdict:
    """The best of the target's providers; what was not measured is missed. A provider's newest row counts.

    Light runs, which repeat less, count only for what no other run measured.
    """
    here = [r for r in results if r["header"]["device"] == target.device and not r["header"]["quick"]]
    runs = [[r for r in here if bool(r["header"].get("light")) == light] for light in (True, False)]
    rows = latest(runs[0]) | latest(runs[1])

    def value(key: tuple[Any, ...]) -> float | None:
        return figure(rows[key], target.metric) if key in rows else None

    found: list[tuple[float, str]] = []
    for provider in target.providers:
        own = value(target.key(provider))
        other = value(target.key(provider, target.of)) if target.of else 1.0
        if own is not None and other:
            found.append((own / other, provider))
    best = max if target.least else min
    measured, name = best(found, default=(None, None))
    return Verdict(target, measured, name)


def wrong_rows(results: Iterable[Results]) -> list[Row]:
    """Rows of this package that failed: a fast wrong answer meets no target."""
    return [row for row in latest(results).values() if row["provider"].startswith("ours") and row["error"]]


def main(argv: Sequence[str] | None = None, log: Callable[[str], None] = print) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.check", description=__doc__)
    parser.add_argument("results", nargs="+", type=Path)
    parser.add_argument("--targets", type=Path, default=TARGETS)
    args = parser.parse_args(argv)
    results = load(args.results)
    verdicts = [judge(target, results) for target in load_targets(args.targets)]
    log(f"{'target':72} {'bound':>9} {'measured':>9} {'ratio':>6}")
    for v in verdicts:
        bound = f"{'>=' if v.target.least else '<='} {v.target.limit:g}"
        measured, ratio = ("none", "")
        if v.measured is not None:
            measured, ratio = f"{v.measured:.4g}", f"{v.measured / v.target.limit:.2f}"
        verdict = f"{'met' if v.met else 'MISSED'}  {v.provider or ''}".rstrip()
        log(f"{v.target.label:72} {bound:>9} {measured:>9} {ratio:>6}  {verdict}")
    log(f"{sum(v.met for v in verdicts)} of {len(verdicts)} targets met")
    wrong = wrong_rows(results)
    for row in wrong:
        log(f"FAILED ROW {' '.join(str(x) for x in key_of(row))}: {row['error']}")
    return 0 if all(v.met for v in verdicts) and not wrong else 1


if __name__ == "__main__":
    raise SystemExit(main())

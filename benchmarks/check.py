"""Compares results with targets.json and fails on a miss: `python -m benchmarks.check results/<device>/*.json`."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from .rows import KEY, Results, Row, key_of, latest, load

TARGETS = Path(__file__).parent / "targets.json"


class Verdict(NamedTuple):
    target: str
    limit: float
    measured: float | None
    provider: str | None

    @property
    def met(self) -> bool:
        return self.measured is not None and self.measured <= self.limit


def load_targets(path: Path = TARGETS) -> list[dict[str, Any]]:
    content = json.loads(path.read_text())
    return [content["defaults"] | target for target in content["targets"]]


def judge(target: dict[str, Any], results: Iterable[Results]) -> Verdict:
    """The best of the target's providers; what was not measured is missed. A provider's newest row counts.

    Light runs do not: they hold no marginal_us.
    """
    rows = latest(r for r in results if r["header"]["device"] == target["device"] and not r["header"].get("light"))
    label = f"{target['op']} {target['layout']} {target['T']}x{target['N']} {target['metric']}"
    found: list[tuple[float, str]] = []
    for provider in target["providers"]:
        key = tuple(provider if name == "provider" else target.get(name) for name in KEY)
        value = rows[key].get(target["metric"]) if key in rows else None
        if isinstance(value, (int, float)):
            found.append((value, provider))
    measured, provider = min(found, default=(None, None))
    return Verdict(label, target["max"], measured, provider)


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
    log(f"{'target':44} {'at most':>8} {'measured':>9} {'ratio':>6}")
    for v in verdicts:
        measured, ratio = ("none", "") if v.measured is None else (f"{v.measured:.4g}", f"{v.measured / v.limit:.2f}")
        verdict = f"{'met' if v.met else 'MISSED'}  {v.provider or ''}".rstrip()
        log(f"{v.target:44} {v.limit:8g} {measured:>9} {ratio:>6}  {verdict}")
    wrong = wrong_rows(results)
    for row in wrong:
        log(f"FAILED ROW {' '.join(str(x) for x in key_of(row))}: {row['error']}")
    return 0 if all(v.met for v in verdicts) and not wrong else 1


if __name__ == "__main__":
    raise SystemExit(main())

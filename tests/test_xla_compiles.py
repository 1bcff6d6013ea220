"""XLA's own compiler takes every kernel on the route "xla-triton", without a GPU: one launch, nothing around it, no spills.

Needs the plugin of the package jax-cuda13-pjrt, in a place where JAX does not take it for a backend: `make test` puts it into
`pjrt` beside the interpreter's packages.
"""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import jax
import pytest

from benchmarks.absent_gpu import PLUGIN

if importlib.util.find_spec("triton") is None:
    pytest.skip("no triton", allow_module_level=True)

REPOSITORY = Path(__file__).parents[1]
LAUNCHES = {"gae, normalized": 2, "gae, normalized under a mask": 2, "gae, last values, long": 2}


pytestmark = [
    pytest.mark.skipif(not PLUGIN.exists(), reason="no jax-cuda13-pjrt beside the environment"),
    pytest.mark.skipif(jax.default_backend() != "cpu", reason="there is a GPU: tests/gpu runs them"),
]


def run(*arguments: str) -> str:
    """In a process that has not imported JAX; the project's folder is where `benchmarks` is found."""
    done = subprocess.run(
        [sys.executable, *arguments],
        capture_output=True,
        text=True,
        timeout=400,
        check=False,
        cwd=REPOSITORY,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(REPOSITORY), os.environ.get("PYTHONPATH", "")])},
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


def test_xla_compiles_every_call_to_its_launches_alone() -> None:
    rows = [json.loads(line) for line in run("tests/xla_compiles.py", str(PLUGIN)).splitlines()]
    assert len(rows) > 55
    for row in rows:
        name = row["call"].rpartition(", axis")[0]
        if row["call"] == "gae, gradient":
            assert row["ours"] == 2  # there and back; what the loss itself takes is XLA's
        else:
            assert row["ours"] == row["all"] == LAUNCHES.get(name, 1), row


def test_compile_times(tmp_path: Path) -> None:
    """Many calls in one jit are one kernel to compile."""
    out = tmp_path / "r.json"
    run(
        "-m",
        "benchmarks.compile_time",
        "--calls",
        "1,8",
        "--providers",
        "ours_xla_triton,lax_scan_1",
        "--out",
        str(out),
    )
    rows = json.loads(out.read_text())["rows"]
    assert [(row["provider"], row["calls"]) for row in rows] == [
        (name, calls) for name in ("ours_xla_triton", "lax_scan_1") for calls in (1, 8)
    ]
    assert all(row["compile_s"] > 0 for row in rows)

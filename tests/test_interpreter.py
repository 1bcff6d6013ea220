"""The real kernels on a CPU, through Triton's interpreter, in a process of their own (the choice is made at import)."""

from __future__ import annotations

import importlib.util
import json
import math
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="no triton")


SHARDS = 4  # processes, so that the suite's workers share them


def check(script: str, *arguments: str) -> int:
    """Runs a script of cases; how many there were."""
    command = [sys.executable, "-W", "ignore", str(Path(__file__).parent / script), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    results = [json.loads(line) for line in done.stdout.splitlines()]
    wrong = [r for r in results if math.isnan(r["error"]) or r["error"] > 1e-5]
    assert not wrong
    return len(results)


@pytest.mark.parametrize("shard", range(SHARDS))
def test_kernels_against_the_oracle(shard: int) -> None:
    assert check("interpreter_cases.py", str(shard), str(SHARDS)) > 50  # about 230 in all


@pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="no torch")
def test_launch_machinery_against_the_oracle() -> None:
    assert check("interpreter_launches.py") > 50

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


def test_kernels_against_the_oracle() -> None:
    script = Path(__file__).parent / "interpreter_cases.py"
    done = subprocess.run([sys.executable, "-W", "ignore", str(script)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    results = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(results) > 100
    wrong = [r for r in results if math.isnan(r["error"]) or r["error"] > 1e-5]
    assert not wrong

"""XLA's own compiler takes every kernel on the route "xla-triton", without a GPU: one launch, nothing around it, no spills.

Needs the plugin of the package jax-cuda13-pjrt, in a place where JAX does not take it for a backend: `make test` puts it into
`pjrt` beside the interpreter's packages.
"""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import jax
import pytest

if importlib.util.find_spec("triton") is None:
    pytest.skip("no triton", allow_module_level=True)

PLUGIN = Path(sys.prefix) / "pjrt" / "jax_plugins" / "xla_cuda13" / "xla_cuda_plugin.so"
LAUNCHES = {"gae, normalized": 2, "gae, normalized under a mask": 2, "gae, last values, long": 2}


@pytest.mark.skipif(not PLUGIN.exists(), reason="no jax-cuda13-pjrt beside the environment")
@pytest.mark.skipif(jax.default_backend() != "cpu", reason="there is a GPU: tests/gpu runs them")
def test_xla_compiles_every_call_to_its_launches_alone() -> None:
    done = subprocess.run(
        [sys.executable, str(Path(__file__).with_name("xla_compiles.py")), str(PLUGIN)],
        capture_output=True,
        text=True,
        timeout=400,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(rows) > 55
    for row in rows:
        name = row["call"].rpartition(", axis")[0]
        if row["call"] == "gae, gradient":
            assert row["ours"] == 2  # there and back; what the loss itself takes is XLA's
        else:
            assert row["ours"] == row["all"] == LAUNCHES.get(name, 1), row

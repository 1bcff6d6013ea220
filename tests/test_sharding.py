"""Arrays spread over devices: right numbers, and nothing exchanged that need not be. Virtual CPU devices, in other processes."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).parent
SHARDS = 2


def environment() -> dict[str, str]:
    return {k: x for k, x in os.environ.items() if k not in ("XLA_FLAGS", "JAX_ENABLE_X64")}


@pytest.mark.parametrize("shard", range(SHARDS))
def test_spread_over_devices(shard: int) -> None:
    command = [sys.executable, "-W", "ignore", str(HERE / "sharding_cases.py"), str(shard), str(SHARDS)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment())
    assert done.returncode == 0, done.stderr[-3000:]
    results: list[dict[str, Any]] = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(results) > 20
    assert not [r for r in results if not r["error"] <= 1e-5]
    for result in results:
        label, found = result["case"], [(kind, size) for kind, size in result["collectives"]]
        if label.startswith(("batch", "explicit (None")):
            # Standardising needs the sums of all devices, a few numbers; nothing else is exchanged.
            allowed = {"all-reduce"} if "normalized" in label else set()
            assert {kind for kind, _ in found} <= allowed, result
            assert all(size <= 1 for _, size in found), result
        elif label.startswith("time and batch") and not label.split(": ")[1].startswith("n_step"):
            # A row of the columns held, for each of the two devices along time: never the steps.
            assert found
            assert all(size <= 2 * 2 for _, size in found), result


def test_two_processes() -> None:
    with socket.socket() as probe:
        probe.bind(("localhost", 0))
        port = probe.getsockname()[1]
    command = [sys.executable, "-W", "ignore", str(HERE / "process_of_two.py")]
    both = [
        subprocess.Popen(
            [*command, str(k), str(port)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment()
        )
        for k in range(2)
    ]
    for process in both:
        out, err = process.communicate(timeout=120)
        assert out.endswith("right\n"), err[-2000:]

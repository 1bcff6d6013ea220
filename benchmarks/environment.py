"""Where a run took place: versions, device, commit."""

from __future__ import annotations

import datetime
import importlib.metadata
import os
import platform
import subprocess
from typing import Any


def _version(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def _output(*command: str) -> str | None:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()


def git_commit() -> str | None:
    """BENCHMARK_COMMIT names it where the checkout's history is not at hand; "+" marks uncommitted changes."""
    named = os.environ.get("BENCHMARK_COMMIT")
    if named:
        return named
    commit = _output("git", "rev-parse", "HEAD")
    return f"{commit}+" if commit and _output("git", "status", "--porcelain", "--untracked-files=no") else commit


def device_name() -> str:
    try:
        import torch

        if torch.cuda.is_available():
            return torch.cuda.get_device_name(0)
    except ImportError:
        pass
    import jax

    device = jax.devices()[0]
    return device.device_kind if device.platform != "cpu" else f"cpu {platform.machine()}"


def memory_bytes() -> int | None:
    """Free memory of the device that is measured (of the host where that is the CPU)."""
    try:
        import torch

        if torch.cuda.is_available():
            return int(torch.cuda.mem_get_info()[0])
    except ImportError:
        pass
    try:
        return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (ValueError, OSError):
        return None


def describe() -> dict[str, Any]:
    driver = _output("nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader")
    return {
        "device": device_name(),
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "commit": git_commit(),
        "versions": {
            "python": platform.python_version(),
            **{name: _version(name) for name in ("jax", "jaxlib", "jax-triton", "triton", "torch", "numpy")},
            "driver": driver.splitlines()[0] if driver else None,
        },
    }

"""What no kernel beats: the time to copy as many bytes, and the cost of a kernel that does nothing."""

from __future__ import annotations

import functools
import math

import numpy as np

from .measure import Effort, device_time, graph_time, rotating, why_no_cupti

MOST_SETS = 64


@functools.cache
def l2_bytes() -> int | None:
    if why_no_cupti():
        return None
    import torch

    return int(getattr(torch.cuda.get_device_properties(0), "L2_cache_size", 0)) or None


def sets_to_rotate(bytes_touched: int, cache: int | None = None) -> int:
    """How many sets of buffers make a turn over more than twice the L2; 1 where one does, or far too many."""
    cache = cache or l2_bytes()
    sets = 2 * cache // max(bytes_touched, 1) + 1 if cache else 1
    return sets if sets <= MOST_SETS else 1


class Floors:
    """Copies measured in this run, remembered by size; coarse ones are measured at powers of sqrt 2 and interpolated."""

    def __init__(self, effort: Effort, coarse: bool = False) -> None:
        self._effort = effort
        self._coarse = coarse
        self._known: dict[tuple[int, int], float] = {}

    def copy_us(self, bytes_moved: int, sets: int = 1) -> float:
        """Of reading half of the bytes and writing the other half, over some sets of buffers in turn.

        The better of the driver's copy and an elementwise kernel.
        """
        if self._coarse:
            power = math.floor(2 * math.log2(max(bytes_moved, 1)))
            below, above = (round(2 ** (p / 2)) for p in (power, power + 1))
            share = (bytes_moved - below) / (above - below)
            return (1 - share) * self._measured(below, sets) + share * self._measured(above, sets)
        return self._measured(bytes_moved, sets)

    def _measured(self, bytes_moved: int, sets: int) -> float:
        key = (bytes_moved, sets)
        if key not in self._known:
            self._known[key] = self._host(bytes_moved) if why_no_cupti() else self._device(bytes_moved, sets)
        return self._known[key]

    def _device(self, bytes_moved: int, sets: int) -> float:
        import torch

        words = max(bytes_moved // 8, 1)
        pairs = [
            (
                torch.randint(1 << 30, (words,), dtype=torch.int32, device="cuda"),
                torch.empty(words, dtype=torch.int32, device="cuda"),
            )
            for _ in range(sets)
        ]
        ways = (lambda src, dst: dst.copy_(src), lambda src, dst: torch.add(src, 1, out=dst))
        calls = [rotating(way, pairs) for way in ways]
        return min(device_time(call, lambda _: torch.cuda.synchronize(), self._effort).us for call in calls)

    def _host(self, bytes_moved: int) -> float:
        src = np.ones(max(bytes_moved // 8, 1), np.int32)
        dst = np.empty_like(src)
        return device_time(lambda: np.copyto(dst, src), lambda _: None, self._effort).us

    def bandwidth(self, bytes_moved: int) -> float:
        """GB/s of a copy, bytes read plus bytes written."""
        return bytes_moved / self.copy_us(bytes_moved) / 1e3

    def empty_kernel_us(self) -> float | None:
        """A one-element kernel replayed in a CUDA graph."""
        if why_no_cupti():
            return None
        import torch

        x = torch.ones(1, device="cuda")
        return graph_time(lambda: x.add_(1))

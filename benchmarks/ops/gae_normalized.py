"""GAE with standardised advantages. A kernel that holds not everything on chip reads more than the bytes counted here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ..problem import Inputs, Problem
from .gae import Gae


class GaeNormalized(Gae):
    name = "gae_normalized"
    function = "gae"
    variants = ("plain", "truncation")

    def reference(self, problem: Problem, inputs: Mapping[str, np.ndarray]) -> list[np.ndarray]:
        advantages, returns = super().reference(problem, inputs)
        return [(advantages - advantages.mean()) / (advantages.std() + 1e-8), returns]

    def options(self, problem: Problem) -> dict[str, Any]:
        return {**super().options(problem), "normalize": True}

    def finish(self, xp: Any, problem: Problem, y: Any, inputs: Inputs) -> Sequence[Any]:
        centred = y - y.mean()
        return [centred / (xp.sqrt((centred * centred).mean()) + 1e-8), y + inputs["values"]]


OP = GaeNormalized()

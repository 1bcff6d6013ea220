"""Retrace(lambda), c clipped at 1, the expectation over the next actions folded in."""

from __future__ import annotations

from typing import Any

from ..problem import Problem, arrays
from ..transitions import OffPolicy, clipped_ratio


class Retrace(OffPolicy):
    name = "retrace"
    inputs = arrays(
        rewards="normal",
        q_values="normal",
        terminated="flag",
        next_q_values="actions",
        next_target_probs="probs",
        log_rhos="normal",
    )

    def trace(self, xp: Any, problem: Problem, inputs: Any) -> Any:
        return problem.lambda_ * clipped_ratio(xp, inputs)


OP = Retrace()

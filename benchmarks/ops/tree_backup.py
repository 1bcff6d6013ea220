"""Tree-backup(lambda), the expectation over the next actions folded in."""

from __future__ import annotations

from typing import Any

from ..problem import Problem, arrays
from ..transitions import OffPolicy


class TreeBackup(OffPolicy):
    name = "tree_backup"
    inputs = arrays(
        rewards="normal",
        q_values="normal",
        terminated="flag",
        next_q_values="actions",
        next_target_probs="probs",
        target_probs="unit",
    )

    def trace(self, xp: Any, problem: Problem, inputs: Any) -> Any:
        return problem.lambda_ * inputs["target_probs"]


OP = TreeBackup()

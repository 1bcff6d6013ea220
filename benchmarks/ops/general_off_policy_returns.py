"""The general off-policy return, from expected action values and trace coefficients."""

from __future__ import annotations

from typing import Any

from ..problem import Problem, arrays
from ..transitions import OffPolicy


class GeneralOffPolicyReturns(OffPolicy):
    name = "general_off_policy_returns"
    inputs = arrays(
        rewards="normal", q_values="normal", terminated="flag", next_expected_q="normal", coefficients="unit"
    )
    constants = ("gamma",)

    def trace(self, xp: Any, problem: Problem, inputs: Any) -> Any:
        return inputs["coefficients"]


OP = GeneralOffPolicyReturns()

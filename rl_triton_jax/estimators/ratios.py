"""Importance ratios: one check of how they are given, for every off-policy estimator."""

from __future__ import annotations

from typing import Any


def check_ratios(name: str, log_rhos: Any, *parts: tuple[str, Any]) -> None:
    """Either `log_rhos` or all of `parts`, not both. Raises ValueError otherwise."""
    both = " and ".join(f"`{label}`" for label, _ in parts)
    given = [label for label, x in parts if x is not None]
    if (log_rhos is None and len(given) < len(parts)) or (log_rhos is None and not parts):
        missing = " and ".join(f"`{label}`" for label, x in parts if x is None)
        raise ValueError(
            f"{name}: no importance ratios: pass `log_rhos`" + (f", or {both} ({missing} is missing)" if parts else "")
        )
    if log_rhos is not None and given:
        raise ValueError(f"{name}: `log_rhos` and `{given[0]}` both give the importance ratios: keep one form")


def log_ratio(x: Any) -> Any:
    """log rho_t of the operands."""
    return x["target_log_probs"] - x["behavior_log_probs"] if x["log_rhos"] is None else x["log_rhos"]

"""The value of the next state: one rule, and one check of where it comes from, for every estimator that bootstraps.

V'(t) = 0                  where terminated[t]
      = final_values[t]    where truncated[t]   (or next_values[t], if that was given)
      = last_values        at t = T-1           (or next_values[T-1])
      = next_values[t]     if next_values was given
      = values[t+1]        otherwise
"""

from __future__ import annotations

from typing import Any

from ..problem import is_array

WAYS = (
    "pass `last_values` (V of the state after the last step), `values` with one more step (its last row is V(s_T)), "
    "or `next_values` (V(s_{t+1}) for every step)"
)


def check_sources(
    name: str,
    *,
    rewards: Any,
    values: Any,
    truncated: Any,
    last_values: Any,
    next_values: Any,
    final_values: Any,
    axis: int,
) -> None:
    """Exactly one source of V(s_T), and a source of final values iff there are truncations. Raises ValueError otherwise."""
    longer = False
    if is_array(values) and is_array(rewards) and len(values.shape) == len(rewards.shape) and isinstance(axis, int):
        rank = len(rewards.shape)
        if rank and -rank <= axis < rank:
            longer = values.shape[axis] == rewards.shape[axis] + 1
    sources = [
        text
        for text, given in (
            ("`values` with one more step than `rewards`", longer),
            ("`last_values`", last_values is not None),
            ("`next_values`", next_values is not None),
        )
        if given
    ]
    if not sources:
        raise ValueError(f"{name}: no value for the state after the last step: {WAYS}")
    if len(sources) > 1:
        raise ValueError(f"{name}: V(s_T) is given twice, by {' and '.join(sources)}: keep one")
    if final_values is not None and next_values is not None:
        raise ValueError(f"{name}: `final_values` and `next_values` both say what follows a truncated step: keep one")
    if final_values is not None and truncated is None:
        raise ValueError(f"{name}: `final_values` is read only where `truncated` is set, but `truncated` was not given")
    if truncated is not None and final_values is None and next_values is None:
        raise ValueError(
            f"{name}: `truncated` needs the value of the state in which the episode was cut off: pass "
            f"`final_values` (read only where truncated) or `next_values`"
        )


def next_value(xp: Any, x: Any, near: Any) -> Any:
    """V'(t); `near` is V(s_{t+1}) of an ordinary step.

    Selects, never multiplies: a NaN in a dead place stays there, in derivatives too.
    """
    value = near if x["next_values"] is None else x["next_values"]
    if x.get("final_values") is not None:
        value = xp.where(x["truncated"], x["final_values"], value)
    if x["terminated"] is not None:
        value = xp.where(x["terminated"], 0, value)
    return value

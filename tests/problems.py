"""Random problems for every estimator but gae and linear_recurrence (those are in `oracle`), with NaN wherever the result
does not depend on what is there."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
from oracle import SOURCES, random_flags

MASKED = ("lambda_returns", "discounted_returns", "n_step_returns", "vtrace")

# The ways to give an estimator what it needs (`problem`); gae and gae_packed have generators of their own.
_Q_WAYS = ("expected", "actions")
WAYS: dict[str, tuple[str, ...]] = {
    "lambda_returns": (*SOURCES, "values and next_values"),
    "discounted_returns": ("last_values", "no last_values"),
    "n_step_returns": (*SOURCES, "values and next_values"),
    "vtrace": (*SOURCES, "log_probs"),
    "retrace": (*_Q_WAYS, "probs"),
    "tree_backup": _Q_WAYS,
    "general_off_policy_returns": ("expected",),
    "q_lambda": ("actions",),
    "upgo": SOURCES,
    "puffer_advantage": SOURCES,
    "eligibility_traces": ("initial", "no initial"),
    "episodic_cumsum": ("after", "before", "no initial"),
}
ACTIONS = 4


def _dead_rows(flagged: np.ndarray, real: np.ndarray, axis: int) -> tuple[np.ndarray, np.ndarray]:
    """(real rows that no earlier step continues into; columns whose last real step is flagged, or that have none)."""
    flagged, real = np.moveaxis(flagged, axis, 0), np.moveaxis(real, axis, 0)
    starts = np.zeros(flagged.shape, bool)
    after_flag = np.ones(flagged.shape[1:], bool)
    for t in range(len(flagged)):
        starts[t] = real[t] & after_flag
        after_flag = np.where(real[t], flagged[t], after_flag)
    return np.moveaxis(starts, 0, axis), after_flag


def problem(
    name: str,
    seed: int,
    shape: tuple[int, ...],
    axis: int = 0,
    *,
    way: str | None = None,
    flags: str = "both",
    dtype: Any = np.float32,
    rate: float = 0.25,
    decays: str = "numbers",
    masked: bool = False,
) -> dict[str, Any]:
    """Keyword arguments of a call of any estimator of `WAYS`, in one of its ways, with NaN at every place that the result does
    not depend on: behind a mask, at terminated steps, where an episode starts, after the buffer where its end is flagged."""
    rng = np.random.default_rng([seed, *map(ord, name)])
    way = WAYS[name][0] if way is None else way
    assert way in WAYS[name], (name, way)
    axis %= len(shape)
    batch = tuple(n for i, n in enumerate(shape) if i != axis)
    real = rng.random(shape) > 0.3 if masked else np.ones(shape, bool)

    def normal(*dims: int, dead: Any = False) -> np.ndarray:
        return np.where(dead, np.nan, rng.standard_normal(dims)).astype(dtype)

    def uniform(low: float, high: float, dims: tuple[int, ...], dead: Any = False) -> np.ndarray:
        return np.where(dead, np.nan, rng.uniform(low, high, dims)).astype(dtype)

    if name == "episodic_cumsum":
        done = {} if flags == "neither" else {"done": rng.random(shape) < rate}
        out: dict[str, Any] = {"inputs": normal(*shape)} | done
        if way != "no initial":
            # With "before", a first step that is done starts afresh.
            first_is_done = np.moveaxis(done.get("done", np.zeros(shape, bool)), axis, 0)[:1].any(0)
            out |= {"initial": normal(*batch, dead=first_is_done & (way == "before")), "resets": way}
        return out | ({"axis": axis} if axis else {})

    given = random_flags(rng, shape, flags, rate)
    given = {key: x & real for key, x in given.items()}
    never = np.zeros(shape, bool)
    terminated, truncated = given.get("terminated", never), given.get("truncated", never)
    starts, no_last = _dead_rows(terminated | truncated, real, axis)

    def value_sources() -> dict[str, Any]:
        unread = starts if name in ("lambda_returns", "n_step_returns", "upgo") else never
        out: dict[str, Any] = {}
        if name != "discounted_returns":
            out["values"] = normal(*shape, dead=unread)
        if way == "longer_values":
            out["values"] = np.concatenate([out["values"], np.expand_dims(normal(*batch, dead=no_last), axis)], axis)
        if way == "next_values" and unread is starts and name != "upgo":
            del out["values"]
        if way == "values and next_values":
            out["values"] = normal(*shape, dead=True)
        if way in ("next_values", "values and next_values"):
            out["next_values"] = normal(*shape, dead=terminated)
            return out
        if way in ("last_values", "log_probs"):
            out["last_values"] = normal(*batch, dead=no_last)
        if "truncated" in given:
            out["final_values"] = normal(*shape, dead=terminated | ~truncated)
        return out

    out = {"inputs" if name == "eligibility_traces" else "rewards": normal(*shape)} | given
    if name in ("lambda_returns", "discounted_returns", "n_step_returns", "vtrace", "upgo", "puffer_advantage"):
        out |= value_sources()
    if way == "log_probs":
        out |= {key: normal(*shape) - 1 for key in ("target_log_probs", "behavior_log_probs")}
    elif name in ("vtrace", "puffer_advantage"):
        out["log_rhos"] = normal(*shape) * dtype(0.5)
    if name in ("retrace", "tree_backup", "general_off_policy_returns"):
        out["q_values"] = normal(*shape)
        if way == "actions":
            out["next_q_values"] = normal(*shape, ACTIONS, dead=terminated[..., None])
            probs = rng.uniform(0.1, 1, (*shape, ACTIONS))
            probs /= probs.sum(-1, keepdims=True)
            out["next_target_probs"] = np.where(terminated[..., None], np.nan, probs).astype(dtype)
        else:
            out["next_expected_q"] = normal(*shape, dead=terminated)
    if name == "q_lambda":
        out["next_q_values"] = normal(*shape, ACTIONS, dead=terminated[..., None])
    if name == "general_off_policy_returns":
        out["coefficients"] = normal(*shape, dead=starts)
    if name == "tree_backup" or way == "probs":
        out["target_probs"] = uniform(0.1, 1, shape, dead=starts)
    if way == "probs":
        out["behavior_probs"] = uniform(0.1, 1, shape, dead=starts)
    elif name == "retrace":
        out["log_rhos"] = uniform(-1, 1, shape, dead=starts)
    if name == "n_step_returns":
        out["n"] = 3
    if way == "initial":
        out["initial"] = normal(*batch)
    out |= decays_of(name, rng, shape, axis, decays, dtype)
    if name == "eligibility_traces" and decays == "[T,N]":
        # The decay of the step that a flag starts afresh; at t = 0, `initial` always enters.
        fresh = starts & (np.moveaxis(np.broadcast_to(np.arange(shape[axis]), (*batch, shape[axis])), -1, axis) > 0)
        out |= {key: np.where(fresh, np.nan, out[key]).astype(dtype) for key in ("gamma", "lambda_")}
    if masked:
        out = hide(out, real, axis, rng)
    return out | ({"axis": axis} if axis else {})


def decays_of(
    name: str, rng: np.random.Generator, shape: tuple[int, ...], axis: int, form: str, dtype: Any
) -> dict[str, Any]:
    """gamma, and lambda_ where `name` takes it, as numbers, 0-d arrays, per step, per environment or both."""
    without_lambda = ("discounted_returns", "n_step_returns", "upgo", "general_off_policy_returns")
    names = ("gamma",) if name in without_lambda else ("gamma", "lambda_")
    if form == "numbers":
        return {"gamma": 0.9, "lambda_": 0.8} if len(names) == 2 else {"gamma": 0.9}
    kept = {
        "0-d": (),
        "[T,1]": tuple(n if i == axis else 1 for i, n in enumerate(shape)),
        "[1,N]": tuple(1 if i == axis else n for i, n in enumerate(shape)),
        "[T,N]": shape,
    }[form]
    return {key: np.asarray(rng.uniform(0.5, 1, kept), dtype) for key in names}


def hide(arguments: dict[str, Any], real: np.ndarray, axis: int, rng: np.random.Generator) -> dict[str, Any]:
    """With `real` as the mask: NaN in every float of a masked row, flags that mean nothing there."""
    out: dict[str, Any] = {}
    for key, x in arguments.items():
        rows = real
        if isinstance(x, np.ndarray) and x.ndim == real.ndim and x.shape[axis] == real.shape[axis] + 1:
            rows = np.concatenate(
                [real, np.ones([1 if i == axis else n for i, n in enumerate(real.shape)], bool)], axis
            )
        if not isinstance(x, np.ndarray) or x.shape != rows.shape:
            out[key] = x
        elif x.dtype == bool:
            out[key] = np.where(rows, x, rng.random(x.shape) < 0.5)
        else:
            out[key] = np.where(rows, x, np.nan).astype(x.dtype)
    return out | {"mask": real}


def packed_problem(
    seed: int, lengths: tuple[int, ...] = (3, 0, 1, 7, 2, 0), *, dtype: Any = np.float32, masked: bool = False
) -> dict[str, Any]:
    """Keyword arguments of a `gae_packed` call; NaN behind the mask and after sequences without a real step."""
    rng = np.random.default_rng(seed)
    total = sum(lengths)
    offsets = np.cumsum([0, *lengths])
    real = rng.random(total) > 0.3 if masked else np.ones(total, bool)
    empty = np.array([not real[a:b].any() for a, b in itertools.pairwise(offsets)], bool)
    out: dict[str, Any] = {key: rng.standard_normal(total).astype(dtype) for key in ("rewards", "values")}
    if masked:
        out = hide(out, real, 0, rng)
    return out | {
        "cu_seqlens": offsets.astype(np.int32),
        "last_values": np.where(empty, np.nan, rng.standard_normal(len(lengths))).astype(dtype),
        "gamma": 0.9,
        "lambda_": 0.8,
    }

"""What the estimators mean, as plain float64 loops, and random problems to try them on.

Nothing here is vectorised over time and nothing is shared with the library: one Python loop per column, flags as
`if`, a mask by literally cutting rows out, running, and scattering back.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

SOURCES = ("last_values", "longer_values", "next_values")
FLAGS = ("neither", "terminated", "truncated", "both")


def to_numpy(x: Any, dtype: Any = np.float64) -> np.ndarray:
    """Any array of any framework as NumPy (bfloat16 included)."""
    if hasattr(x, "detach"):
        x = x.detach().cpu()
        x = (x.double() if x.is_floating_point() else x).numpy()
    return np.asarray(x).astype(dtype)


def _by_column(x: Any, shape: tuple[int, ...], axis: int) -> np.ndarray:
    """Broadcast to `shape`, the time axis first, every batch axis flattened: [T, columns]."""
    full = np.moveaxis(np.broadcast_to(to_numpy(x), shape), axis, 0)
    return full.reshape(full.shape[0], math.prod(full.shape[1:]))


def _from_columns(x: np.ndarray, shape: tuple[int, ...], axis: int) -> np.ndarray:
    moved = (shape[axis], *(n for i, n in enumerate(shape) if i != axis % len(shape)))
    return np.moveaxis(x.reshape(moved), 0, axis)


def _edge(x: Any, shape: tuple[int, ...], axis: int) -> np.ndarray:
    """A value per column, given as a number or with the time axis left out."""
    batch = tuple(n for i, n in enumerate(shape) if i != axis % len(shape))
    return np.broadcast_to(to_numpy(x), batch).reshape(math.prod(batch))


def _gae_column(
    r: list,
    v: list,
    term: list,
    trunc: list,
    last: float | None,
    nxt: list | None,
    fin: list | None,
    gamma: list,
    lam: list,
) -> list:
    steps = len(r)
    out = [0.0] * steps
    later = 0.0
    for t in range(steps - 1, -1, -1):
        if term[t]:
            v_next = 0.0
        elif trunc[t]:
            if fin is not None:
                v_next = fin[t]
            else:
                assert nxt is not None
                v_next = nxt[t]
        elif nxt is not None:
            v_next = nxt[t]
        elif t == steps - 1:
            assert last is not None
            v_next = last
        else:
            v_next = v[t + 1]
        delta = r[t] + gamma[t] * v_next - v[t]
        if term[t] or trunc[t]:
            out[t] = delta
        else:
            out[t] = delta + gamma[t] * lam[t] * later
        later = out[t]
    return out


def gae(
    rewards: Any,
    values: Any,
    terminated: Any = None,
    truncated: Any = None,
    *,
    last_values: Any = None,
    next_values: Any = None,
    final_values: Any = None,
    gamma: Any = 0.99,
    lambda_: Any = 0.95,
    mask: Any = None,
    normalize: Any = False,
    with_returns: Any = True,
    axis: Any = 0,
) -> tuple[np.ndarray, np.ndarray]:
    """(advantages, returns) in float64."""
    del with_returns
    shape = np.shape(rewards)
    steps = shape[axis]
    values = to_numpy(values)
    if values.shape[axis] == steps + 1:
        assert last_values is None
        assert next_values is None
        last_values = np.take(values, steps, axis)
        values = np.take(values, np.arange(steps), axis)

    def columns(x: Any) -> np.ndarray:
        return _by_column(x, shape, axis)

    r, v, g, lam = columns(rewards), columns(values), columns(gamma), columns(lambda_)
    term = columns(0 if terminated is None else terminated) != 0
    trunc = columns(0 if truncated is None else truncated) != 0
    nxt = None if next_values is None else columns(next_values)
    fin = None if final_values is None else columns(final_values)
    last = None if last_values is None else _edge(last_values, shape, axis)
    real = columns(1 if mask is None else mask) != 0

    advantages, returns = np.zeros_like(r), np.zeros_like(r)
    for n in range(r.shape[1]):
        rows = [t for t in range(steps) if real[t, n]]

        def cut(x: Any, rows: list = rows, n: int = n) -> Any:
            return None if x is None else x[rows, n].tolist()

        column = _gae_column(
            cut(r),
            cut(v),
            cut(term),
            cut(trunc),
            None if last is None else float(last[n]),
            cut(nxt),
            cut(fin),
            cut(g),
            cut(lam),
        )
        for t, a in zip(rows, column, strict=True):
            advantages[t, n], returns[t, n] = a, a + v[t, n]
    if normalize:
        entries = advantages[real].tolist()
        if entries:
            mean = math.fsum(entries) / len(entries)
            std = math.sqrt(math.fsum((x - mean) ** 2 for x in entries) / len(entries))
            advantages = np.where(real, (advantages - mean) / (std + 1e-8), 0.0)
    return _from_columns(advantages, shape, axis), _from_columns(returns, shape, axis)


def linear_recurrence(
    a: Any, b: Any, *, initial: Any = None, reset: Any = None, reverse: Any = False, axis: Any = 0
) -> np.ndarray:
    """y in float64."""
    shape = np.shape(b)
    steps = shape[axis]
    a_, b_ = _by_column(a, shape, axis), _by_column(b, shape, axis)
    starts = _by_column(0 if reset is None else reset, shape, axis) != 0
    carry = _edge(0 if initial is None else initial, shape, axis)
    y = np.zeros_like(b_)
    for n in range(b_.shape[1]):
        near = float(carry[n])
        for t in reversed(range(steps)) if reverse else range(steps):
            near = float(b_[t, n]) if starts[t, n] else float(a_[t, n]) * near + float(b_[t, n])
            y[t, n] = near
    return _from_columns(y, shape, axis)


def discounted_sum(rewards: np.ndarray, gamma: float, last: Any) -> np.ndarray:
    """G_t = sum_k gamma^k r_{t+k} + gamma^(T-t) V(s_T), each row summed from its definition, not by a recurrence."""
    steps = rewards.shape[0]
    out = np.zeros(rewards.shape)
    for t in range(steps):
        for k in range(steps - t):
            out[t] += gamma**k * rewards[t + k]
        out[t] += gamma ** (steps - t) * last
    return out


def retrace(
    rewards: np.ndarray,
    q_values: np.ndarray,
    next_expected_q: np.ndarray,
    ratios: np.ndarray,
    gamma: np.ndarray,
    lambda_: float,
) -> np.ndarray:
    """Retrace targets of [T, N] without flags; ratios[t] belongs to the action of step t."""
    targets = np.zeros(rewards.shape)
    for n in range(rewards.shape[1]):
        later = 0.0
        for t in reversed(range(rewards.shape[0])):
            trace = lambda_ * min(1.0, ratios[t + 1, n]) if t + 1 < rewards.shape[0] else 0.0
            later = rewards[t, n] + gamma[t, n] * (next_expected_q[t, n] + trace * later) - q_values[t, n]
            targets[t, n] = q_values[t, n] + later
    return targets


def assert_close(actual: Any, expected: Any, rtol: float = 1e-5, scale: float | None = None, dtype: Any = None) -> None:
    """Same shape; every difference within `rtol` of the largest expected value (at least 1, as test inputs are)."""
    expected = to_numpy(expected)
    if dtype is not None:
        assert str(actual.dtype).removeprefix("torch.") == dtype, f"dtype {actual.dtype}, expected {dtype}"
    got = to_numpy(actual)
    assert got.shape == expected.shape, f"shape {got.shape}, expected {expected.shape}"
    assert np.array_equal(np.isnan(got), np.isnan(expected)), f"NaN at other places:\n{got}\nexpected\n{expected}"
    infinite = np.isinf(expected)
    assert np.array_equal(got[infinite], expected[infinite])
    finite = np.isfinite(expected)
    if not finite.any():
        return
    largest = max(1.0, float(np.abs(expected[finite]).max())) if scale is None else scale
    error = float(np.abs(got[finite] - expected[finite]).max())
    assert error <= rtol * largest, (
        f"largest error {error:.3g}, allowed {rtol * largest:.3g}\n{got}\nexpected\n{expected}"
    )


def bits(x: Any) -> np.ndarray:
    """The raw bytes of each number, to compare exactly (NaN equals itself, -0.0 differs from 0.0)."""
    x = np.ascontiguousarray(np.asarray(x))
    return x.view(np.dtype(f"u{x.dtype.itemsize}"))


def random_flags(
    rng: np.random.Generator, shape: tuple[int, ...], kind: str, rate: float = 0.25
) -> dict[str, np.ndarray]:
    """`terminated` and `truncated` as `kind` asks; "both" also sets the two together somewhere."""
    flags = {}
    if kind in ("terminated", "both"):
        flags["terminated"] = rng.random(shape) < rate
    if kind in ("truncated", "both"):
        flags["truncated"] = rng.random(shape) < rate
    if kind == "both" and math.prod(shape) > 0:
        flags["truncated"] |= flags["terminated"] & (rng.random(shape) < 0.5)
    return flags


def gae_problem(
    seed: int,
    shape: tuple[int, ...],
    axis: int = 0,
    *,
    source: str = "last_values",
    flags: str = "both",
    dtype: Any = np.float32,
    rate: float = 0.25,
) -> dict[str, Any]:
    """Keyword arguments of a `gae` call with NaN at every place that must not be read."""
    rng = np.random.default_rng(seed)
    axis %= len(shape)

    def normal(*dims: int) -> np.ndarray:
        return rng.standard_normal(dims).astype(dtype)

    longer = tuple(n + (i == axis and source == "longer_values") for i, n in enumerate(shape))
    problem: dict[str, Any] = {"rewards": normal(*shape), "values": normal(*longer)}
    problem |= random_flags(rng, shape, flags, rate)
    never = np.zeros(shape, bool)
    terminated, truncated = problem.get("terminated", never), problem.get("truncated", never)
    if source == "last_values":
        problem["last_values"] = normal(*(n for i, n in enumerate(shape) if i != axis))
    if source == "next_values":
        problem["next_values"] = np.where(terminated, np.nan, normal(*shape)).astype(dtype)
    elif "truncated" in problem:
        problem["final_values"] = np.where(truncated & ~terminated, normal(*shape), np.nan).astype(dtype)
    if axis != 0:
        problem["axis"] = axis
    return problem


def recurrence_problem(
    seed: int, shape: tuple[int, ...], axis: int = 0, *, dtype: Any = np.float32, rate: float = 0.2, spread: float = 1.0
) -> dict[str, Any]:
    """Keyword arguments of a `linear_recurrence` call: `a` of either sign, some resets, an initial value."""
    rng = np.random.default_rng(seed)
    axis %= len(shape)
    batch = tuple(n for i, n in enumerate(shape) if i != axis)
    problem: dict[str, Any] = {
        "a": rng.uniform(-spread, spread, shape).astype(dtype),
        "b": rng.standard_normal(shape).astype(dtype),
        "initial": rng.standard_normal(batch).astype(dtype),
        "reset": rng.random(shape) < rate,
    }
    if axis != 0:
        problem["axis"] = axis
    return problem

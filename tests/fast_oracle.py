"""The estimators as float64 loops over time, all columns of a step at once: for sizes where `oracle.py` would take minutes.

Each function takes the keyword arguments of the public one, arrays of any layout, and gives a tuple of results. Written from the
definitions and not from the library: dead places are skipped by selection, masked rows leave the state as it is.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from oracle import to_numpy


class _Rows:
    """The arguments of a call, time first, in float64."""

    def __init__(self, shape: tuple[int, ...], axis: int, arguments: dict[str, Any]) -> None:
        self.shape, self.axis, self.arguments = shape, axis, arguments
        self.T = shape[axis]
        self.batch = tuple(n for i, n in enumerate(shape) if i != axis)

    def __call__(self, name: str, default: Any = None) -> Any:
        x = self.arguments.get(name)
        x = default if x is None else x
        return None if x is None else np.moveaxis(np.broadcast_to(to_numpy(x), self.shape), self.axis, 0)

    def flag(self, name: str) -> np.ndarray:
        x = self.arguments.get(name)
        if x is not None and np.ndim(x) < len(self.shape):  # features lack flags of their own
            x = np.reshape(x, np.shape(x) + (1,) * (len(self.shape) - np.ndim(x)))
        x = 0 if x is None else x
        return np.moveaxis(np.broadcast_to(to_numpy(x), self.shape), self.axis, 0) != 0

    def edge(self, name: str) -> np.ndarray | None:
        x = self.arguments.get(name)
        return None if x is None else np.broadcast_to(to_numpy(x), self.batch)

    def back(self, x: np.ndarray) -> np.ndarray:
        return np.moveaxis(x, 0, self.axis)

    @property
    def real(self) -> np.ndarray:
        return self.flag("mask") if self.arguments.get("mask") is not None else np.ones((self.T, *self.batch), bool)

    def values(self) -> tuple[np.ndarray | None, np.ndarray | None]:
        """(V of T rows, V(s_T))."""
        x = self.arguments.get("values")
        last = self.edge("last_values")
        if x is None:
            return None, last
        x = np.moveaxis(to_numpy(x), self.axis, 0)
        return (x[:-1], x[-1]) if len(x) == self.T + 1 else (x, last)

    def next_values(self) -> np.ndarray:
        """V'(t) for every real step."""
        v, last = self.values()
        nxt, fin = self("next_values"), self("final_values")
        if self.arguments.get("next_q_values") is not None:
            nxt = np.moveaxis(to_numpy(self.arguments["next_q_values"]).max(-1), self.axis, 0)
        term, trunc, real = self.flag("terminated"), self.flag("truncated"), self.real
        out = np.zeros((self.T, *self.batch))
        later = np.zeros(self.batch) if last is None else last
        for t in reversed(range(self.T)):
            out[t] = later if nxt is None else nxt[t]
            if fin is not None:
                out[t] = np.where(trunc[t], fin[t], out[t])
            out[t] = np.where(term[t], 0, out[t])
            if v is not None:
                later = np.where(real[t], v[t], later)
        return out


def _backward(rows: _Rows, step: Callable[..., tuple[np.ndarray, ...]], states: int) -> list[np.ndarray]:
    """`step(t, seen, *later) -> states at t`, whose first is written out; `seen`: whether a real step came before in the walk."""
    later = [np.zeros(rows.batch) for _ in range(states)]
    seen = np.zeros(rows.batch, bool)
    out = [np.zeros((rows.T, *rows.batch)) for _ in range(states)]
    real = rows.real
    for t in reversed(range(rows.T)):
        now = step(t, seen, *later)
        for k in range(states):
            out[k][t] = np.where(real[t], now[k], 0)
            later[k] = np.where(real[t], now[k], later[k])
        seen = seen | real[t]
    return out


def lambda_returns(
    rewards: Any, *, gamma: Any = 0.99, lambda_: Any = 0.95, axis: int = 0, **rest: Any
) -> tuple[np.ndarray]:
    rows = _Rows(np.shape(rewards), axis, dict(rest, gamma=gamma, lambda_=lambda_))
    r = np.moveaxis(to_numpy(rewards), axis, 0)
    g, lam, v_next = rows("gamma"), rows("lambda_"), rows.next_values()
    flag = rows.flag("terminated") | rows.flag("truncated")

    def step(t: int, seen: Any, later: Any) -> Any:
        mixed = (1 - lam[t]) * v_next[t] + lam[t] * later
        return (r[t] + g[t] * np.where(flag[t] | ~seen, v_next[t], mixed),)

    return (rows.back(_backward(rows, step, 1)[0]),)


def q_lambda(rewards: Any, next_q_values: Any, **rest: Any) -> tuple[np.ndarray]:
    return lambda_returns(rewards, next_q_values=next_q_values, **rest)


def discounted_returns(rewards: Any, *, gamma: Any = 0.99, axis: int = 0, **rest: Any) -> tuple[np.ndarray]:
    rest.setdefault("last_values", 0.0)
    return lambda_returns(rewards, gamma=gamma, lambda_=1.0, axis=axis, **rest)


def gae(
    rewards: Any, *, gamma: Any = 0.99, lambda_: Any = 0.95, axis: int = 0, normalize: bool = False, **rest: Any
) -> tuple[np.ndarray, ...]:
    rows = _Rows(np.shape(rewards), axis, dict(rest, gamma=gamma, lambda_=lambda_))
    r = np.moveaxis(to_numpy(rewards), axis, 0)
    g, lam, v_next, (v, _) = rows("gamma"), rows("lambda_"), rows.next_values(), rows.values()
    assert v is not None
    flag = rows.flag("terminated") | rows.flag("truncated")

    def step(t: int, seen: Any, later: Any, _: Any) -> Any:
        a = r[t] + g[t] * v_next[t] - v[t] + np.where(flag[t], 0, g[t] * lam[t] * later)
        return a, a + v[t]

    advantages, returns = (rows.back(x) for x in _backward(rows, step, 2))
    if normalize:
        real = np.broadcast_to(True if rest.get("mask") is None else np.asarray(rest["mask"]) != 0, advantages.shape)
        if real.any():
            advantages = (advantages - advantages[real].mean()) / (advantages[real].std() + 1e-8)
        advantages = np.where(real, advantages, 0)
    return advantages, returns


def vtrace(
    rewards: Any,
    *,
    log_rhos: Any = None,
    target_log_probs: Any = None,
    behavior_log_probs: Any = None,
    gamma: Any = 0.99,
    lambda_: Any = 1.0,
    clip_rho_threshold: Any = 1.0,
    clip_c_threshold: Any = 1.0,
    clip_pg_rho_threshold: Any = 1.0,
    axis: int = 0,
    **rest: Any,
) -> tuple[np.ndarray, ...]:
    """(vs, pg_advantages, D)."""
    rows = _Rows(np.shape(rewards), axis, dict(rest, gamma=gamma, lambda_=lambda_))
    r = np.moveaxis(to_numpy(rewards), axis, 0)
    log_w = to_numpy(log_rhos) if log_rhos is not None else to_numpy(target_log_probs) - to_numpy(behavior_log_probs)
    w = np.moveaxis(np.exp(log_w), axis, 0)
    rho, c, pg_rho = (
        w if x is None else np.minimum(w, x) for x in (clip_rho_threshold, clip_c_threshold, clip_pg_rho_threshold)
    )
    g, lam, v_next, (v, _) = rows("gamma"), rows("lambda_"), rows.next_values(), rows.values()
    assert v is not None
    flag = rows.flag("terminated") | rows.flag("truncated")

    def step(t: int, seen: Any, later: Any, _: Any, vs_later: Any) -> Any:
        d = rho[t] * (r[t] + g[t] * v_next[t] - v[t]) + np.where(flag[t], 0, g[t] * lam[t] * c[t] * later)
        target = np.where(flag[t] | ~seen, v_next[t], vs_later)
        return d, pg_rho[t] * (r[t] + g[t] * target - v[t]), v[t] + d

    d, pg, vs = (rows.back(x) for x in _backward(rows, step, 3))
    return vs, pg, d


def puffer_advantage(rewards: Any, *, lambda_: Any = 0.95, **rest: Any) -> tuple[np.ndarray]:
    return (vtrace(rewards, lambda_=lambda_, **rest)[2],)


def general_off_policy_returns(
    rewards: Any,
    q_values: Any,
    *,
    next_expected_q: Any,
    coefficients: Any,
    gamma: Any = 0.99,
    axis: int = 0,
    **rest: Any,
) -> tuple[np.ndarray, ...]:
    rows = _Rows(
        np.shape(rewards), axis, dict(rest, gamma=gamma, e=next_expected_q, k=coefficients, q=q_values, r=rewards)
    )
    r, q, e, k, g = (rows(name) for name in ("r", "q", "e", "k", "gamma"))
    term, trunc = rows.flag("terminated"), rows.flag("truncated")

    def step(t: int, seen: Any, later: Any, _: Any) -> Any:
        d = r[t] + g[t] * np.where(term[t], 0, e[t]) - q[t]
        if t + 1 < rows.T:
            d = d + np.where(term[t] | trunc[t], 0, g[t] * k[t + 1] * later)
        return d, q[t] + d

    d, targets = (rows.back(x) for x in _backward(rows, step, 2))
    return targets, d


def _next_lambda(lambda_: Any, ratio: np.ndarray, axis: int) -> np.ndarray:
    """lambda_t * ratio_{t+1}, at row t+1."""
    lam = np.moveaxis(np.broadcast_to(to_numpy(lambda_), ratio.shape), axis, 0)
    return np.moveaxis(np.concatenate([lam[:1], lam[:-1]]), 0, axis) * ratio


def _expected(next_expected_q: Any, next_q_values: Any, next_target_probs: Any) -> np.ndarray:
    if next_expected_q is not None:
        return to_numpy(next_expected_q)
    return (to_numpy(next_q_values) * to_numpy(next_target_probs)).sum(-1)


def retrace(
    rewards: Any,
    q_values: Any,
    *,
    next_expected_q: Any = None,
    next_q_values: Any = None,
    next_target_probs: Any = None,
    log_rhos: Any = None,
    target_probs: Any = None,
    behavior_probs: Any = None,
    lambda_: Any = 1.0,
    clip_c_threshold: Any = 1.0,
    axis: int = 0,
    **rest: Any,
) -> tuple[np.ndarray, ...]:
    rho = np.exp(to_numpy(log_rhos)) if log_rhos is not None else to_numpy(target_probs) / to_numpy(behavior_probs)
    k = _next_lambda(lambda_, rho if clip_c_threshold is None else np.minimum(rho, clip_c_threshold), axis)
    e = _expected(next_expected_q, next_q_values, next_target_probs)
    return general_off_policy_returns(rewards, q_values, next_expected_q=e, coefficients=k, axis=axis, **rest)


def tree_backup(
    rewards: Any,
    q_values: Any,
    *,
    next_expected_q: Any = None,
    next_q_values: Any = None,
    next_target_probs: Any = None,
    target_probs: Any,
    lambda_: Any = 1.0,
    axis: int = 0,
    **rest: Any,
) -> tuple[np.ndarray, ...]:
    k = _next_lambda(lambda_, to_numpy(target_probs), axis)
    e = _expected(next_expected_q, next_q_values, next_target_probs)
    return general_off_policy_returns(rewards, q_values, next_expected_q=e, coefficients=k, axis=axis, **rest)


def upgo(rewards: Any, values: Any, *, gamma: Any = 1.0, axis: int = 0, **rest: Any) -> tuple[np.ndarray]:
    rows = _Rows(np.shape(rewards), axis, dict(rest, gamma=gamma, values=values, r=rewards))
    r, g, v_next, (v, _) = rows("r"), rows("gamma"), rows.next_values(), rows.values()
    assert v is not None
    flag = rows.flag("terminated") | rows.flag("truncated")
    out = np.zeros((rows.T, *rows.batch))
    for t in reversed(range(rows.T)):
        follow = np.zeros(rows.batch, bool)
        if t + 1 < rows.T:
            follow = ~flag[t] & (r[t + 1] + g[t + 1] * v_next[t + 1] >= v[t + 1])
        out[t] = r[t] + g[t] * np.where(follow, out[min(t + 1, rows.T - 1)], v_next[t])
    return (rows.back(out),)


def n_step_returns(rewards: Any, *, n: int, gamma: Any = 0.99, axis: int = 0, **rest: Any) -> tuple[np.ndarray]:
    """Without a mask."""
    rows = _Rows(np.shape(rewards), axis, dict(rest, gamma=gamma, r=rewards))
    r, g, v_next = rows("r"), rows("gamma"), rows.next_values()
    ends = rows.flag("terminated") | rows.flag("truncated")
    ends[-1] = True
    out = np.zeros((rows.T, *rows.batch))
    for t in range(rows.T):
        going, discount = np.ones(rows.batch, bool), np.ones(rows.batch)
        for i in range(min(n, rows.T - t)):
            out[t] += np.where(going, discount * r[t + i], 0)
            discount = np.where(going, discount * g[t + i], 0)
            stops = going & (ends[t + i] | (i == n - 1))
            out[t] += np.where(stops, discount * v_next[t + i], 0)
            going &= ~stops
    return (rows.back(out),)


def eligibility_traces(
    inputs: Any, *, initial: Any = None, gamma: Any = 0.99, lambda_: Any = 0.95, axis: int = 0, **rest: Any
) -> tuple[np.ndarray]:
    rows = _Rows(np.shape(inputs), axis, dict(rest, gamma=gamma, lambda_=lambda_, x=inputs, initial=initial))
    x, g, lam = rows("x"), rows("gamma"), rows("lambda_")
    done = rows.flag("terminated") | rows.flag("truncated")
    edge = rows.edge("initial")
    z = np.zeros(rows.batch) if edge is None else edge
    out = np.zeros((rows.T, *rows.batch))
    for t in range(rows.T):
        out[t] = x[t] + np.where(t > 0 and done[t - 1], 0, g[t] * lam[t] * z) if t else x[t] + g[t] * lam[t] * z
        z = out[t]
    return (rows.back(out),)


def episodic_cumsum(
    inputs: Any, done: Any = None, *, initial: Any = None, resets: str = "after", axis: int = 0
) -> tuple[np.ndarray]:
    """In float64, or exactly where the inputs are integers."""
    dtype = np.int64 if np.asarray(inputs).dtype.kind in "iub" else np.float64
    x = np.moveaxis(np.asarray(inputs).astype(dtype), axis, 0)
    rows = _Rows(np.shape(inputs), axis, {"done": done})
    flag = rows.flag("done")
    total = (
        np.zeros(x.shape[1:], dtype)
        if initial is None
        else np.broadcast_to(np.asarray(initial).astype(dtype), x.shape[1:])
    )
    out = np.zeros_like(x)
    for t in range(len(x)):
        restart = flag[t] if resets == "before" else flag[t - 1] if t else np.zeros(x.shape[1:], bool)
        out[t] = x[t] + np.where(restart, 0, total)
        total = out[t]
    return (np.moveaxis(out, 0, axis),)

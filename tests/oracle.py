"""What the estimators mean, as plain float64 loops, and random problems to try them on.

Nothing here is vectorised over time and nothing is shared with the library: one Python loop per column, flags as
`if`, a mask by literally cutting rows out, running, and scattering back. Each estimator takes the keyword arguments of the
public function of its name. Papers: IMPALA (1802.01561) for V-trace, Retrace (1606.02647), Precup, Sutton & Singh 2000 for
tree-backup, Peng & Williams 1996 for Q(lambda), AlphaStar (Vinyals et al. 2019) for UPGO, Sutton & Barto for the rest.
"""

from __future__ import annotations

import math
from collections.abc import Callable
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


def _by_column(x: Any, shape: tuple[int, ...], axis: int, dtype: Any = np.float64) -> np.ndarray:
    """Broadcast to `shape`, the time axis first, every batch axis flattened: [T, columns]."""
    full = np.moveaxis(np.broadcast_to(to_numpy(x, dtype), shape), axis, 0)
    return full.reshape(full.shape[0], math.prod(full.shape[1:]))


def _from_columns(x: np.ndarray, shape: tuple[int, ...], axis: int) -> np.ndarray:
    moved = (shape[axis], *(n for i, n in enumerate(shape) if i != axis % len(shape)))
    return np.moveaxis(x.reshape(moved), 0, axis)


def _edge(x: Any, shape: tuple[int, ...], axis: int, dtype: Any = np.float64) -> np.ndarray:
    """A value per column, given as a number or with the time axis left out."""
    batch = tuple(n for i, n in enumerate(shape) if i != axis % len(shape))
    return np.broadcast_to(to_numpy(x, dtype), batch).reshape(math.prod(batch))


def _run(
    column: Callable[..., tuple[list, ...]],
    shape: tuple[int, ...],
    axis: int,
    per_step: dict[str, Any],
    edges: dict[str, Any],
    *,
    mask: Any = None,
    outputs: int = 1,
    dtype: Any = np.float64,
) -> tuple[np.ndarray, ...]:
    """`column` on the real rows of each column as lists of Python numbers; None stays None; 0 at masked rows."""
    steps = {key: None if x is None else _by_column(x, shape, axis, dtype) for key, x in per_step.items()}
    ends = {key: None if x is None else _edge(x, shape, axis, dtype) for key, x in edges.items()}
    real = _by_column(1 if mask is None else mask, shape, axis) != 0
    out = [np.zeros(real.shape, dtype) for _ in range(outputs)]
    for n in range(real.shape[1]):
        rows = np.flatnonzero(real[:, n])
        short = column(
            **{key: None if x is None else x[rows, n].tolist() for key, x in steps.items()},
            **{key: None if x is None else x[n].item() for key, x in ends.items()},
        )
        for whole, x in zip(out, short, strict=True):
            whole[rows, n] = x
    return tuple(_from_columns(x, shape, axis) for x in out)


def _flags(terminated: Any, truncated: Any) -> dict[str, Any]:
    return {"term": 0 if terminated is None else terminated, "trunc": 0 if truncated is None else truncated}


def _sources(
    shape: tuple[int, ...], axis: int, values: Any, last_values: Any, next_values: Any, final_values: Any
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Arguments of `_next_values` per step and at the edge; T+1 rows of values are taken apart."""
    steps = shape[axis]
    if values is not None and (values := to_numpy(values)).shape[axis] == steps + 1:
        assert last_values is None
        assert next_values is None
        last_values = np.take(values, steps, axis)
        values = np.take(values, np.arange(steps), axis)
    assert (last_values is None) != (next_values is None)
    return {"v": values, "nxt": next_values, "fin": final_values}, {"last": last_values}


def _next_values(
    term: list, trunc: list, v: list | None, nxt: list | None, fin: list | None, last: float | None
) -> list[float]:
    """V'(t): the value of the state after step t."""
    out = []
    for t in range(len(term)):
        if term[t]:
            out.append(0.0)
        elif trunc[t] and fin is not None:
            out.append(fin[t])
        elif nxt is not None:
            out.append(nxt[t])
        elif t == len(term) - 1:
            out.append(last)
        else:
            assert v is not None
            out.append(v[t + 1])
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
    per_step, edges = _sources(shape, axis, values, last_values, next_values, final_values)

    def column(r: list, term: list, trunc: list, gamma: list, lam: list, **sources: Any) -> tuple[list, list]:
        v, v_next = sources["v"], _next_values(term, trunc, **sources)
        out = [0.0] * len(r)
        for t in reversed(range(len(r))):
            out[t] = r[t] + gamma[t] * v_next[t] - v[t]
            if not term[t] and not trunc[t] and t < len(r) - 1:
                out[t] += gamma[t] * lam[t] * out[t + 1]
        return out, [x + now for x, now in zip(out, v, strict=True)]

    per_step |= {"r": rewards, "gamma": gamma, "lam": lambda_} | _flags(terminated, truncated)
    advantages, returns = _run(column, shape, axis, per_step, edges, mask=mask, outputs=2)
    if normalize:
        real = np.broadcast_to(to_numpy(1 if mask is None else mask) != 0, shape)
        entries = advantages[real].tolist()
        if entries:
            mean = math.fsum(entries) / len(entries)
            std = math.sqrt(math.fsum((x - mean) ** 2 for x in entries) / len(entries))
            advantages = np.where(real, (advantages - mean) / (std + 1e-8), 0.0)
    return advantages, returns


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


def lambda_returns(
    rewards: Any,
    values: Any = None,
    terminated: Any = None,
    truncated: Any = None,
    *,
    last_values: Any = None,
    next_values: Any = None,
    final_values: Any = None,
    gamma: Any = 0.99,
    lambda_: Any = 0.95,
    mask: Any = None,
    axis: int = 0,
) -> np.ndarray:
    shape = np.shape(rewards)
    per_step, edges = _sources(shape, axis, values, last_values, next_values, final_values)

    def column(r: list, term: list, trunc: list, gamma: list, lam: list, **sources: Any) -> tuple[list]:
        v_next = _next_values(term, trunc, **sources)
        out = [0.0] * len(r)
        for t in reversed(range(len(r))):
            if term[t] or trunc[t] or t == len(r) - 1:
                out[t] = r[t] + gamma[t] * v_next[t]
            else:
                out[t] = r[t] + gamma[t] * ((1 - lam[t]) * v_next[t] + lam[t] * out[t + 1])
        return (out,)

    per_step |= {"r": rewards, "gamma": gamma, "lam": lambda_} | _flags(terminated, truncated)
    return _run(column, shape, axis, per_step, edges, mask=mask)[0]


def discounted_returns(
    rewards: Any,
    terminated: Any = None,
    truncated: Any = None,
    *,
    last_values: Any = 0.0,
    final_values: Any = None,
    gamma: Any = 0.99,
    mask: Any = None,
    axis: int = 0,
) -> np.ndarray:
    def column(r: list, term: list, trunc: list, fin: list | None, gamma: list, last: float) -> tuple[list]:
        out = [0.0] * len(r)
        after = last
        for t in reversed(range(len(r))):
            if term[t]:
                after = 0.0
            elif trunc[t]:
                assert fin is not None
                after = fin[t]
            after = out[t] = r[t] + gamma[t] * after
        return (out,)

    per_step = {"r": rewards, "fin": final_values, "gamma": gamma} | _flags(terminated, truncated)
    return _run(column, np.shape(rewards), axis, per_step, {"last": last_values}, mask=mask)[0]


def n_step_returns(
    rewards: Any,
    values: Any = None,
    terminated: Any = None,
    truncated: Any = None,
    *,
    n: int,
    last_values: Any = None,
    next_values: Any = None,
    final_values: Any = None,
    gamma: Any = 0.99,
    mask: Any = None,
    axis: int = 0,
) -> np.ndarray:
    shape = np.shape(rewards)
    per_step, edges = _sources(shape, axis, values, last_values, next_values, final_values)

    def column(r: list, term: list, trunc: list, gamma: list, **sources: Any) -> tuple[list]:
        v_next = _next_values(term, trunc, **sources)
        out = []
        for start in range(len(r)):
            total, discount = 0.0, 1.0
            for t in range(start, min(start + n, len(r))):
                total += discount * r[t]
                discount *= gamma[t]
                if term[t] or trunc[t] or t == len(r) - 1 or t == start + n - 1:
                    total += discount * v_next[t]
                    break
            out.append(total)
        return (out,)

    per_step |= {"r": rewards, "gamma": gamma} | _flags(terminated, truncated)
    return _run(column, shape, axis, per_step, edges, mask=mask)[0]


def _clip(x: float, threshold: float | None) -> float:
    return x if threshold is None else min(x, float(threshold))


def vtrace(
    rewards: Any,
    values: Any,
    terminated: Any = None,
    truncated: Any = None,
    *,
    log_rhos: Any = None,
    target_log_probs: Any = None,
    behavior_log_probs: Any = None,
    last_values: Any = None,
    next_values: Any = None,
    final_values: Any = None,
    gamma: Any = 0.99,
    lambda_: Any = 1.0,
    clip_rho_threshold: Any = 1.0,
    clip_c_threshold: Any = 1.0,
    clip_pg_rho_threshold: Any = 1.0,
    mask: Any = None,
    axis: int = 0,
) -> tuple[np.ndarray, np.ndarray]:
    """(vs, pg_advantages)."""
    shape = np.shape(rewards)
    per_step, edges = _sources(shape, axis, values, last_values, next_values, final_values)
    if log_rhos is None:
        log_rhos = to_numpy(target_log_probs) - to_numpy(behavior_log_probs)

    def column(r: list, term: list, trunc: list, log_rho: list, gamma: list, lam: list, **sources: Any) -> tuple:
        v, v_next = sources["v"], _next_values(term, trunc, **sources)
        vs, advantages = [0.0] * len(r), [0.0] * len(r)
        for t in reversed(range(len(r))):
            ratio = math.exp(log_rho[t])
            vs[t] = v[t] + _clip(ratio, clip_rho_threshold) * (r[t] + gamma[t] * v_next[t] - v[t])
            after = v_next[t]
            if not term[t] and not trunc[t] and t < len(r) - 1:
                vs[t] += gamma[t] * lam[t] * _clip(ratio, clip_c_threshold) * (vs[t + 1] - v[t + 1])
                after = vs[t + 1]
            advantages[t] = _clip(ratio, clip_pg_rho_threshold) * (r[t] + gamma[t] * after - v[t])
        return vs, advantages

    per_step |= {"r": rewards, "log_rho": log_rhos, "gamma": gamma, "lam": lambda_} | _flags(terminated, truncated)
    vs, advantages = _run(column, shape, axis, per_step, edges, mask=mask, outputs=2)
    return vs, advantages


def puffer_advantage(rewards: Any, values: Any, *flags: Any, lambda_: Any = 0.95, **arguments: Any) -> np.ndarray:
    """What V-trace adds to the values."""
    vs, _ = vtrace(rewards, values, *flags, lambda_=lambda_, **arguments)
    values = to_numpy(values)
    axis = arguments.get("axis", 0)
    return vs - np.take(values, np.arange(np.shape(rewards)[axis]), axis)


def general_off_policy_returns(
    rewards: Any,
    q_values: Any,
    terminated: Any = None,
    truncated: Any = None,
    *,
    next_expected_q: Any,
    coefficients: Any,
    gamma: Any = 0.99,
    axis: int = 0,
    decay: Any = 1.0,
) -> tuple[np.ndarray, np.ndarray]:
    """(targets, td_errors); `decay[t]` multiplies coefficients[t+1]."""

    def column(r: list, q: list, term: list, trunc: list, e: list, c: list, gamma: list, lam: list) -> tuple:
        targets = [0.0] * len(r)
        for t in reversed(range(len(r))):
            targets[t] = r[t]
            if not term[t]:
                targets[t] += gamma[t] * e[t]
            if not term[t] and not trunc[t] and t < len(r) - 1:
                targets[t] += gamma[t] * lam[t] * c[t + 1] * (targets[t + 1] - q[t + 1])
        return targets, [target - now for target, now in zip(targets, q, strict=True)]

    per_step = {"r": rewards, "q": q_values, "e": next_expected_q, "c": coefficients, "gamma": gamma, "lam": decay}
    per_step |= _flags(terminated, truncated)
    targets, errors = _run(column, np.shape(rewards), axis, per_step, {}, outputs=2)
    return targets, errors


def _expectation(next_expected_q: Any, next_q_values: Any, next_target_probs: Any) -> Any:
    if next_expected_q is not None:
        assert next_q_values is None
        assert next_target_probs is None
        return next_expected_q
    q, p = to_numpy(next_q_values), to_numpy(next_target_probs)
    assert q.shape == p.shape
    out = np.zeros(q.shape[:-1])
    for a in range(q.shape[-1]):
        out += p[..., a] * q[..., a]
    return out


def retrace(
    rewards: Any,
    q_values: Any,
    terminated: Any = None,
    truncated: Any = None,
    *,
    next_expected_q: Any = None,
    next_q_values: Any = None,
    next_target_probs: Any = None,
    log_rhos: Any = None,
    target_probs: Any = None,
    behavior_probs: Any = None,
    gamma: Any = 0.99,
    lambda_: Any = 1.0,
    clip_c_threshold: Any = 1.0,
    axis: int = 0,
) -> tuple[np.ndarray, np.ndarray]:
    """(targets, td_errors). The ratio at row t belongs to the action of step t: the trace from t+1 into t takes row t+1."""
    ratios = np.exp(to_numpy(log_rhos)) if log_rhos is not None else to_numpy(target_probs) / to_numpy(behavior_probs)
    return general_off_policy_returns(
        rewards,
        q_values,
        terminated,
        truncated,
        next_expected_q=_expectation(next_expected_q, next_q_values, next_target_probs),
        coefficients=ratios if clip_c_threshold is None else np.minimum(ratios, clip_c_threshold),
        gamma=gamma,
        axis=axis,
        decay=lambda_,
    )


def tree_backup(
    rewards: Any,
    q_values: Any,
    terminated: Any = None,
    truncated: Any = None,
    *,
    next_expected_q: Any = None,
    next_q_values: Any = None,
    next_target_probs: Any = None,
    target_probs: Any,
    gamma: Any = 0.99,
    lambda_: Any = 1.0,
    axis: int = 0,
) -> tuple[np.ndarray, np.ndarray]:
    """(targets, td_errors)."""
    return general_off_policy_returns(
        rewards,
        q_values,
        terminated,
        truncated,
        next_expected_q=_expectation(next_expected_q, next_q_values, next_target_probs),
        coefficients=target_probs,
        gamma=gamma,
        axis=axis,
        decay=lambda_,
    )


def q_lambda(
    rewards: Any,
    next_q_values: Any,
    terminated: Any = None,
    truncated: Any = None,
    *,
    gamma: Any = 0.99,
    lambda_: Any = 0.95,
    axis: int = 0,
) -> np.ndarray:
    best = to_numpy(next_q_values)[..., 0]
    for a in range(1, np.shape(next_q_values)[-1]):
        best = np.maximum(best, to_numpy(next_q_values)[..., a])
    return lambda_returns(
        rewards, None, terminated, truncated, next_values=best, gamma=gamma, lambda_=lambda_, axis=axis
    )


def upgo(
    rewards: Any,
    values: Any,
    terminated: Any = None,
    truncated: Any = None,
    *,
    last_values: Any = None,
    next_values: Any = None,
    final_values: Any = None,
    gamma: Any = 1.0,
    axis: int = 0,
) -> np.ndarray:
    shape = np.shape(rewards)
    per_step, edges = _sources(shape, axis, values, last_values, next_values, final_values)

    def column(r: list, term: list, trunc: list, gamma: list, **sources: Any) -> tuple[list]:
        v, v_next = sources["v"], _next_values(term, trunc, **sources)
        out = [0.0] * len(r)
        for t in reversed(range(len(r))):
            after = v_next[t]
            if not term[t] and not trunc[t] and t < len(r) - 1:
                expected_next = r[t + 1] + gamma[t + 1] * v_next[t + 1]
                if expected_next >= v[t + 1]:
                    after = out[t + 1]
            out[t] = r[t] + gamma[t] * after
        return (out,)

    per_step |= {"r": rewards, "gamma": gamma} | _flags(terminated, truncated)
    return _run(column, shape, axis, per_step, edges)[0]


def eligibility_traces(
    inputs: Any,
    terminated: Any = None,
    truncated: Any = None,
    *,
    initial: Any = None,
    gamma: Any = 0.99,
    lambda_: Any = 0.95,
    axis: int = 0,
) -> np.ndarray:
    """Forward; flags without the trailing axes of `inputs` hold for all of them."""
    shape = np.shape(inputs)

    def with_features(flag: Any) -> Any:
        return None if flag is None else np.reshape(flag, np.shape(flag) + (1,) * (len(shape) - np.ndim(flag)))

    def column(x: list, term: list, trunc: list, gamma: list, lam: list, before: float) -> tuple[list]:
        out = []
        for t in range(len(x)):
            if t > 0 and (term[t - 1] or trunc[t - 1]):
                out.append(x[t])
            else:
                out.append(x[t] + gamma[t] * lam[t] * before)
            before = out[t]
        return (out,)

    per_step = {"x": inputs, "gamma": gamma, "lam": lambda_}
    per_step |= _flags(with_features(terminated), with_features(truncated))
    return _run(column, shape, axis, per_step, {"before": 0.0 if initial is None else initial})[0]


def episodic_cumsum(
    inputs: Any, done: Any = None, *, initial: Any = None, resets: str = "after", axis: int = 0
) -> np.ndarray:
    """Forward; in Python's integers where `inputs` are integers."""
    integral = "float" not in str(inputs.dtype)
    assert resets in ("after", "before")

    def column(x: list, done: list, before: Any) -> tuple[list]:
        out = []
        for t in range(len(x)):
            restarts = done[t] if resets == "before" else t > 0 and done[t - 1]
            before = x[t] if restarts else before + x[t]
            out.append(before)
        return (out,)

    per_step = {"x": inputs, "done": to_numpy(0 if done is None else done) != 0}
    edges = {"before": 0 if initial is None else initial}
    return _run(column, np.shape(inputs), axis, per_step, edges, dtype=np.int64 if integral else np.float64)[0]


def gae_packed(
    rewards: Any,
    values: Any,
    cu_seqlens: Any,
    *,
    last_values: Any,
    gamma: Any = 0.99,
    lambda_: Any = 0.95,
    mask: Any = None,
) -> tuple[np.ndarray, np.ndarray]:
    """(advantages, returns): `gae` on each sequence by itself."""
    offsets = to_numpy(cu_seqlens, np.int64).tolist()
    total = np.shape(rewards)[0]
    assert offsets[0] == 0
    assert offsets[-1] == total
    last = np.broadcast_to(to_numpy(last_values), len(offsets) - 1)
    g, lam, real = (np.broadcast_to(to_numpy(x), total) for x in (gamma, lambda_, 1 if mask is None else mask))
    advantages, returns = np.zeros(total), np.zeros(total)
    for s in range(len(offsets) - 1):
        rows = slice(offsets[s], offsets[s + 1])
        advantages[rows], returns[rows] = gae(
            to_numpy(rewards)[rows],
            to_numpy(values)[rows],
            last_values=last[s],
            gamma=g[rows],
            lambda_=lam[rows],
            mask=real[rows],
        )
    return advantages, returns


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

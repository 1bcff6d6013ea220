"""Identities that hold whatever the input: hypothesis draws shapes, axes, flags, sources and dtypes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import hypothesis.strategies as st
import jax
import jax.numpy as jnp
import numpy as np
import oracle
from conftest import to_jax
from hypothesis import given, settings

Call = Callable[..., Any]

# Few sizes, so that compiled programs are met again; each of them odd in its own way.
time_sizes = st.sampled_from([1, 2, 5, 17])
batches = st.sampled_from([(), (1,), (3,), (2, 3)])
seeds = st.integers(0, 2**16)
sources = st.sampled_from(oracle.SOURCES)
flag_kinds = st.sampled_from(oracle.FLAGS)
decays = st.sampled_from([0.0, 0.5, 0.9, 0.99, 1.0])


@st.composite
def layouts(draw: st.DrawFn) -> tuple[tuple[int, ...], int]:
    batch = draw(batches)
    axis = draw(st.integers(0, len(batch)))
    return (*batch[:axis], draw(time_sizes), *batch[axis:]), axis


@settings(max_examples=25)
@given(
    layout=layouts(),
    seed=seeds,
    source=sources,
    flags=flag_kinds,
    gamma=decays,
    lambda_=decays,
    masked=st.booleans(),
    dtype=st.sampled_from(["float32", "bfloat16", "float16"]),
    flag_dtype=st.sampled_from(["bool", "uint8", "int32", "float32"]),
)
def test_gae_is_the_loop(
    gae: Call,
    layout: tuple[tuple[int, ...], int],
    seed: int,
    source: str,
    flags: str,
    gamma: float,
    lambda_: float,
    masked: bool,
    dtype: str,
    flag_dtype: str,
) -> None:
    shape, axis = layout
    drawn = oracle.gae_problem(seed, shape, axis, source=source, flags=flags) | {"gamma": gamma, "lambda_": lambda_}
    problem: dict[str, Any] = {
        key: np.asarray(jnp.asarray(x).astype(dtype)) if getattr(x, "dtype", None) == np.float32 else x
        for key, x in drawn.items()
    }
    if masked:
        problem["mask"] = np.random.default_rng(seed).random(shape) > 0.3
    advantages, returns = oracle.gae(**problem)
    cast = {key: problem[key].astype(flag_dtype) for key in ("terminated", "truncated") if key in problem}
    result = gae(**problem | cast)
    rtol = {"float32": 1e-5, "float16": 2.0**-10, "bfloat16": 2.0**-7}[dtype]
    oracle.assert_close(result.advantages, advantages, rtol, dtype=dtype)
    oracle.assert_close(result.returns, returns, rtol, dtype=dtype)


@settings(max_examples=20)
@given(layout=layouts(), seed=seeds, reverse=st.booleans(), resets=st.booleans(), initial=st.booleans())
def test_linear_recurrence_is_the_loop(
    linear_recurrence: Call, layout: tuple[tuple[int, ...], int], seed: int, reverse: bool, resets: bool, initial: bool
) -> None:
    shape, axis = layout
    problem = oracle.recurrence_problem(seed, shape, axis)
    if not resets:
        del problem["reset"]
    if not initial:
        del problem["initial"]
    oracle.assert_close(
        linear_recurrence(**problem, reverse=reverse), oracle.linear_recurrence(**problem, reverse=reverse)
    )


@given(
    seed=seeds,
    cut=st.sampled_from([1, 7, 16]),
    flag=st.sampled_from(["terminated", "truncated"]),
    flags=st.sampled_from(["neither", "both"]),
    lambda_=decays,
)
def test_episodes_side_by_side_equal_each_alone(
    gae: Call, seed: int, cut: int, flag: str, flags: str, lambda_: float
) -> None:
    whole = oracle.gae_problem(seed, (17, 3), flags=flags)
    never = np.zeros((17, 3), bool)
    terminated, truncated = whole.pop("terminated", never).copy(), whole.pop("truncated", never).copy()
    terminated[cut - 1], truncated[cut - 1] = flag == "terminated", flag == "truncated"
    final = np.random.default_rng(seed + 1).standard_normal((17, 3)).astype(np.float32)
    rows = {
        "rewards": whole["rewards"],
        "values": whole["values"],
        "terminated": terminated,
        "truncated": truncated,
        "final_values": final,
    }
    both = gae(**rows, last_values=whole["last_values"], lambda_=lambda_)
    # The first episode needs no last value: its last step is flagged.
    first = gae(**{key: x[:cut] for key, x in rows.items()}, last_values=np.float32(np.nan), lambda_=lambda_)
    second = gae(**{key: x[cut:] for key, x in rows.items()}, last_values=whole["last_values"], lambda_=lambda_)
    for i in range(2):
        oracle.assert_close(both[i], np.concatenate([first[i], second[i]]), 1e-6)


@given(seed=seeds, gamma=decays, flags=flag_kinds)
def test_without_trace_decay_the_advantage_is_the_return_minus_the_value(
    gae: Call, seed: int, gamma: float, flags: str
) -> None:
    problem = oracle.gae_problem(seed, (17, 2), flags=flags)
    result = gae(**problem, gamma=gamma, lambda_=1.0)
    never = np.zeros((17, 2), bool)
    terminated, truncated = problem.get("terminated", never), problem.get("truncated", never)
    returns = np.zeros((17, 2))
    for n in range(2):
        # Each episode on its own, by the definition of a discounted sum.
        begin = 0
        for t in range(17):
            if terminated[t, n] or truncated[t, n] or t == 16:
                last = (
                    0.0
                    if terminated[t, n]
                    else problem["final_values"][t, n]
                    if truncated[t, n]
                    else problem["last_values"][n]
                )
                rewards = problem["rewards"][begin : t + 1, n].astype(np.float64)
                returns[begin : t + 1, n] = oracle.discounted_sum(rewards, gamma, np.float64(last))
                begin = t + 1
    oracle.assert_close(result.returns, returns)
    oracle.assert_close(result.advantages, returns - problem["values"])


@given(seed=seeds, gamma=decays)
def test_with_full_trace_decay_the_advantage_is_the_error(gae: Call, seed: int, gamma: float) -> None:
    problem = oracle.gae_problem(seed, (17, 3), source="next_values")
    following = np.where(problem["terminated"], 0, problem["next_values"]).astype(np.float64)
    errors = problem["rewards"] + gamma * following - problem["values"]
    oracle.assert_close(gae(**problem, gamma=gamma, lambda_=0.0).advantages, errors)


@given(seed=seeds, source=sources)
def test_masked_is_compressed(gae: Call, seed: int, source: str) -> None:
    # 17 rows of which 12 are real, wherever they lie.
    keep = np.sort(np.random.default_rng(seed).permutation(17)[:12])
    problem = oracle.gae_problem(seed, (17, 3), source=source)
    masked = gae(**problem, mask=np.isin(np.arange(17), keep)[:, None])
    rows = {17: keep, 18: np.append(keep, 17)}
    short = gae(**{key: x[rows[len(x)]] if x.ndim == 2 else x for key, x in problem.items()})
    for whole, part in zip(masked, short, strict=True):
        oracle.assert_close(whole[keep], part, 1e-6)
        assert np.count_nonzero(whole) <= part.size


@settings(max_examples=8)
@given(seed=seeds, order=st.permutations([0, 1, 2]), negative=st.booleans())
def test_any_axis_is_the_same(gae: Call, linear_recurrence: Call, seed: int, order: list[int], negative: bool) -> None:
    axis = order.index(0) - (3 if negative else 0)

    def turn(x: Any) -> Any:
        if not isinstance(x, np.ndarray):
            return x
        return np.transpose(x, order) if x.ndim == 3 else x if order.index(1) < order.index(2) else x.T

    problem = oracle.gae_problem(seed, (17, 2, 3))
    straight = gae(**problem)
    turned = gae(**{key: turn(x) for key, x in problem.items()}, axis=axis)
    for x, y in zip(straight, turned, strict=True):
        oracle.assert_close(y, np.transpose(np.asarray(x), order), 1e-6)
    recurrence = oracle.recurrence_problem(seed, (17, 2, 3))
    y = linear_recurrence(**{key: turn(x) for key, x in recurrence.items()}, axis=axis)
    oracle.assert_close(y, np.transpose(np.asarray(linear_recurrence(**recurrence)), order), 1e-6)


@settings(max_examples=6)
@given(seed=seeds, flags=flag_kinds)
def test_vmap_is_the_loop(gae: Call, seed: int, flags: str) -> None:
    problems = [oracle.gae_problem(seed + i, (17, 3), flags=flags) for i in range(3)]
    stacked = {key: np.stack([p[key] for p in problems]) for key in problems[0]}
    together = jax.vmap(lambda p: gae(**p))(to_jax(stacked))
    for i, problem in enumerate(problems):
        for whole, alone in zip(together, gae(**problem), strict=True):
            oracle.assert_close(whole[i], alone, 1e-6)


@given(seed=seeds, flags=flag_kinds)
def test_float32_is_float64_rounded(gae: Call, seed: int, flags: str) -> None:
    problem = oracle.gae_problem(seed, (129, 2), flags=flags, rate=0.05)
    oracle.assert_close(
        gae(**problem, gamma=1.0, lambda_=1.0).advantages, oracle.gae(**problem, gamma=1.0, lambda_=1.0)[0]
    )


@given(seed=seeds, scale=st.sampled_from([1e-6, 0.1, 8.0, 1e6]))
def test_linear_in_rewards_and_values_together(gae: Call, seed: int, scale: float) -> None:
    problem = oracle.gae_problem(seed, (17, 3))
    scaled = {key: x * np.float32(scale) if x.dtype == np.float32 else x for key, x in problem.items()}
    expected = np.asarray(gae(**problem).advantages, np.float64) * scale
    oracle.assert_close(gae(**scaled).advantages, expected, 1e-5, scale=float(np.abs(expected).max()))


@given(seed=seeds, reverse=st.booleans())
def test_the_recurrence_is_linear_in_b_and_initial(linear_recurrence: Call, seed: int, reverse: bool) -> None:
    first, second = (oracle.recurrence_problem(seed + i, (17, 3)) for i in range(2))
    shared = {"a": first["a"], "reset": first["reset"], "reverse": reverse}
    y = [linear_recurrence(b=p["b"], initial=p["initial"], **shared) for p in (first, second)]
    total = linear_recurrence(
        b=first["b"] - 2 * second["b"], initial=first["initial"] - 2 * second["initial"], **shared
    )
    oracle.assert_close(total, np.asarray(y[0]) - 2 * np.asarray(y[1]))


@given(seed=seeds, reverse=st.booleans())
def test_a_walk_may_be_cut_anywhere_and_carried_on(linear_recurrence: Call, seed: int, reverse: bool) -> None:
    problem = oracle.recurrence_problem(seed, (17, 3))
    whole = np.asarray(linear_recurrence(**problem, reverse=reverse))
    early, late = slice(0, 7), slice(7, 17)
    first, second = (late, early) if reverse else (early, late)
    parts = {name: problem[name] for name in ("a", "b", "reset")}
    y1 = np.asarray(
        linear_recurrence(**{k: x[first] for k, x in parts.items()}, initial=problem["initial"], reverse=reverse)
    )
    y2 = np.asarray(
        linear_recurrence(**{k: x[second] for k, x in parts.items()}, initial=y1[0 if reverse else -1], reverse=reverse)
    )
    oracle.assert_close(whole, np.concatenate([y2, y1] if reverse else [y1, y2]), 1e-6)


@given(seed=seeds, flags=flag_kinds)
def test_gae_is_a_reverse_recurrence_over_the_errors(gae: Call, linear_recurrence: Call, seed: int, flags: str) -> None:
    problem = oracle.gae_problem(seed, (17, 3), source="next_values", flags=flags)
    errors = np.asarray(gae(**problem, lambda_=0.0).advantages)
    stops = problem.get("terminated", np.zeros((17, 3), bool)) | problem.get("truncated", np.zeros((17, 3), bool))
    decay = np.full((1, 1), 0.99 * 0.95, np.float32)
    oracle.assert_close(linear_recurrence(decay, errors, reset=stops, reverse=True), gae(**problem).advantages, 1e-6)

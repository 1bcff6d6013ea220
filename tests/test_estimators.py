"""Every estimator beyond `gae` and `linear_recurrence` against one-column-at-a-time float64 loops, and the identities that tie
them to each other and to the papers. `pytest tests -k vtrace` (or any name) runs the tests of one."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import jax
import jax.numpy as jnp
import numpy as np
import oracle
import problems
import pytest
from conftest import to_jax
from hypothesis import given, settings
from jax.test_util import check_grads
from test_dtypes import as_float64, assert_rounded_once
from test_errors import assert_message

import rl_triton_jax

Call = Callable[..., Any]
Arrays = dict[str, Any]
T, N = 9, 3
NAMES = list(problems.WAYS)
ALL_WAYS = [(name, way) for name, ways in problems.WAYS.items() for way in ways]
FLOATING = [name for name in NAMES if name != "episodic_cumsum"]
GOLDEN = {case["name"]: case for case in json.loads((Path(__file__).parent / "golden.json").read_text())["cases"]}


def offered(package: Any, name: str) -> Callable[..., Any]:
    if not hasattr(package, name):
        pytest.skip(f"{name} is not offered yet")
    return getattr(package, name)


@pytest.fixture(scope="session")
def call(implementation: str) -> Call:
    """`call(name, ...)` on one implementation; NumPy arguments become JAX arrays."""

    def run(name: str, *args: Any, **kwargs: Any) -> Any:
        fn = offered(rl_triton_jax, name)
        return fn(*to_jax(args), **to_jax(kwargs), implementation=implementation)

    return run


def results(x: Any) -> tuple[Any, ...]:
    return tuple(x) if isinstance(x, tuple) else (x,)


def expected(name: str, problem: Arrays) -> tuple[np.ndarray, ...]:
    return results(getattr(oracle, name)(**problem))


def check(call: Call, name: str, problem: Arrays, rtol: float = 1e-5, dtype: str = "float32") -> tuple[Any, ...]:
    got = results(call(name, **problem))
    for x, right in zip(got, expected(name, problem), strict=True):
        oracle.assert_close(x, right, rtol, dtype=dtype)
    return got


def float_names(problem: Arrays) -> list[str]:
    return [key for key, x in problem.items() if isinstance(x, np.ndarray) and np.issubdtype(x.dtype, np.floating)]


def filled(problem: Arrays, value: float = 0.5) -> Arrays:
    """Another number where nothing may be read."""
    floats = float_names(problem)
    return {key: np.where(np.isnan(x), value, x).astype(x.dtype) if key in floats else x for key, x in problem.items()}


def assert_same_bits(got: Any, clean: Any, where: Any = ...) -> None:
    for x, y in zip(results(got), results(clean), strict=True):
        np.testing.assert_array_equal(oracle.bits(x)[where], oracle.bits(y)[where])


# ---------------------------------------------------------------------------------------------------------------- the contract

RETURNED = {
    "vtrace": ("vs", "pg_advantages"),
    "retrace": ("targets", "td_errors"),
    "tree_backup": ("targets", "td_errors"),
    "general_off_policy_returns": ("targets", "td_errors"),
    "gae_packed": ("advantages", "returns"),
}
FLAGS = "terminated truncated"
SOURCES = "last_values next_values final_values"
NEXT_Q = "next_expected_q next_q_values next_target_probs"
# Positional parameters, keyword-only ones; api.md, section 3.
SIGNATURES = {
    "lambda_returns": (f"rewards values {FLAGS}", f"{SOURCES} gamma lambda_ mask axis"),
    "discounted_returns": (f"rewards {FLAGS}", "last_values final_values gamma mask axis"),
    "n_step_returns": (f"rewards values {FLAGS}", f"n {SOURCES} gamma mask axis"),
    "vtrace": (
        f"rewards values {FLAGS}",
        f"log_rhos target_log_probs behavior_log_probs {SOURCES} gamma lambda_ "
        "clip_rho_threshold clip_c_threshold clip_pg_rho_threshold mask axis",
    ),
    "retrace": (
        f"rewards q_values {FLAGS}",
        f"{NEXT_Q} log_rhos target_probs behavior_probs gamma lambda_ clip_c_threshold axis",
    ),
    "tree_backup": (f"rewards q_values {FLAGS}", f"{NEXT_Q} target_probs gamma lambda_ axis"),
    "general_off_policy_returns": (f"rewards q_values {FLAGS}", "next_expected_q coefficients gamma axis"),
    "q_lambda": (f"rewards next_q_values {FLAGS}", "gamma lambda_ axis"),
    "upgo": (f"rewards values {FLAGS}", f"{SOURCES} gamma axis"),
    "puffer_advantage": (
        f"rewards values {FLAGS}",
        f"log_rhos {SOURCES} gamma lambda_ clip_rho_threshold clip_c_threshold axis",
    ),
    "eligibility_traces": (f"inputs {FLAGS}", "initial gamma lambda_ axis"),
    "episodic_cumsum": ("inputs done", "initial resets axis"),
    "gae_packed": ("rewards values cu_seqlens", "last_values gamma lambda_ mask"),
}
DEFAULTS = {
    "discounted_returns": {"last_values": 0},
    "vtrace": {"lambda_": 1.0, "clip_rho_threshold": 1.0, "clip_c_threshold": 1.0, "clip_pg_rho_threshold": 1.0},
    "retrace": {"lambda_": 1.0, "clip_c_threshold": 1.0},
    "upgo": {"gamma": 1.0},
    "puffer_advantage": {"clip_rho_threshold": 1.0, "clip_c_threshold": 1.0},
    "episodic_cumsum": {"resets": "after", "initial": None},
    "eligibility_traces": {"initial": None},
}


@pytest.mark.parametrize("name", SIGNATURES)
def test_the_signature_is_as_published(name: str) -> None:
    parameters = inspect.signature(offered(rl_triton_jax, name)).parameters
    positional, keywords = (words.split() for words in SIGNATURES[name])
    assert list(parameters) == [*positional, *keywords, "implementation"]
    for key in keywords:
        assert parameters[key].kind is inspect.Parameter.KEYWORD_ONLY, key
    for key, value in DEFAULTS.get(name, {}).items():
        assert parameters[key].default == value, key
    for key in (*FLAGS.split(), "done"):
        if key in parameters and name != "episodic_cumsum":
            assert parameters[key].default is None


@pytest.mark.parametrize("name", [*NAMES, "gae_packed"])
def test_the_results_have_their_names(call: Call, name: str) -> None:
    problem = problems.packed_problem(0) if name == "gae_packed" else problems.problem(name, 0, (T, N))
    got = jax.eval_shape(lambda: call(name, **problem))
    assert getattr(got, "_fields", None) == RETURNED.get(name)
    assert all(
        x.shape == (len(problem["rewards"]),) if name == "gae_packed" else x.shape == (T, N) for x in results(got)
    )


# -------------------------------------------------------------------------------------------------------------------- the values


@pytest.mark.parametrize(("name", "way"), ALL_WAYS)
def test_every_way_to_call(call: Call, name: str, way: str) -> None:
    for seed in range(3):
        check(call, name, problems.problem(name, seed, (T, N), way=way))
    for rate in (0.0, 1.0):
        check(call, name, problems.problem(name, 3, (T, N), way=way, rate=rate))


@pytest.mark.parametrize("flags", ["neither", "terminated", "truncated"])
@pytest.mark.parametrize("name", NAMES)
def test_flags_that_are_not_given(call: Call, name: str, flags: str) -> None:
    if flags == "terminated" and name not in ("vtrace", "lambda_returns", "retrace", "eligibility_traces"):
        pytest.skip("one kind of flag alone: truncated is the harder")
    check(call, name, problems.problem(name, 4, (T, N), flags=flags))


LAYOUTS = {
    "batch-major": ((3, 7), 1, "[T,1]"),
    "in the middle": ((2, 5, 3), 1, "[1,N]"),
    "one dimension": ((9,), 0, "[T,N]"),
    "one step": ((1, 4), 0, "0-d"),
}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("name", NAMES)
def test_layouts_with_every_form_of_decay(call: Call, name: str, layout: str) -> None:
    shape, axis, decays = LAYOUTS[layout]
    problem = problems.problem(name, 5, shape, axis, way=problems.WAYS[name][-1], decays=decays)
    check(call, name, problem)
    if axis == 1:  # the same, counted from behind
        got = call(name, **problem | {"axis": axis - len(shape)})
        assert_same_bits(got, call(name, **problem))


@pytest.mark.parametrize("shape", [(0, 3), (3, 0), (0,)], ids=str)
@pytest.mark.parametrize("name", NAMES)
def test_nothing_at_all(call: Call, name: str, shape: tuple[int, ...]) -> None:
    check(call, name, problems.problem(name, 6, shape))


@pytest.mark.parametrize("name", FLOATING)
def test_numbers_may_be_traced_and_recompile_nothing(call: Call, name: str) -> None:
    problem = problems.problem(name, 7, (T, N))
    numbers = {key: problem.pop(key) for key in ("gamma", "lambda_") if key in problem}
    arrays = {key: problem.pop(key) for key in list(problem) if isinstance(problem[key], np.ndarray)}
    traces = []

    @jax.jit
    def jitted(arrays: Arrays, numbers: Arrays) -> Any:
        traces.append(name)
        return call(name, **arrays, **numbers, **problem)

    for change in (1.0, 0.5, 0.0):
        now = {key: x * change for key, x in numbers.items()}
        got = results(jitted(arrays, now))
        for x, right in zip(got, expected(name, arrays | problem | now), strict=True):
            oracle.assert_close(x, right)
    assert len(traces) == 1


def test_vtrace_thresholds(call: Call) -> None:
    problem = problems.problem("vtrace", 8, (T, N))
    names = ("clip_rho_threshold", "clip_c_threshold", "clip_pg_rho_threshold")
    for values in ((0.7, 1.3, 2.0), (1.2, 0.5, 0.9), (None, 1.0, 1.0), (1.0, None, None), (None, None, None)):
        check(call, "vtrace", problem | dict(zip(names, values, strict=True)))


def test_puffer_advantage_thresholds(call: Call) -> None:
    problem = problems.problem("puffer_advantage", 8, (T, N))
    for rho, c in ((0.7, 1.3), (2.0, 0.5), (None, None)):
        check(call, "puffer_advantage", problem | {"clip_rho_threshold": rho, "clip_c_threshold": c})


def test_retrace_thresholds(call: Call) -> None:
    problem = problems.problem("retrace", 8, (T, N))
    for threshold in (0.5, 2.0, None):
        check(call, "retrace", problem | {"clip_c_threshold": threshold})


@pytest.mark.parametrize("n", [1, 2, 5, 9, 100])
def test_n_step_returns_of_every_length(call: Call, n: int) -> None:
    check(call, "n_step_returns", problems.problem("n_step_returns", 9, (T, N)) | {"n": n})


def test_eligibility_traces_of_features(call: Call) -> None:
    """The flags' shape is exactly the leading axes of `inputs`; every feature has the same flags."""
    rng = np.random.default_rng(10)
    for shape, features, axis in (((7, 3), (4,), 0), ((3, 7), (2, 2), 1), ((7,), (4,), 0)):
        problem: Arrays = {
            "inputs": rng.standard_normal((*shape, *features)).astype(np.float32),
            "terminated": rng.random(shape) < 0.2,
            "truncated": rng.random(shape) < 0.2,
            "gamma": rng.uniform(0.5, 1, (*shape, *(1 for _ in features))).astype(np.float32),
            "lambda_": 0.9,
            "axis": axis,
        }
        check(call, "eligibility_traces", problem)
        batch = tuple(n for i, n in enumerate(shape) if i != axis)
        problem["initial"] = rng.standard_normal((*batch, *features)).astype(np.float32)
        check(call, "eligibility_traces", problem | {"truncated": None})


def test_eligibility_traces_initial_always_enters(call: Call) -> None:
    """m_0 = 1, also where the first step is flagged itself."""
    flag = np.array([True, False, False])
    for kind in ("terminated", "truncated"):
        z = call("eligibility_traces", np.ones(3, np.float32), initial=2.0, gamma=0.5, lambda_=0.5, **{kind: flag})
        assert z.tolist() == [1.5, 1.0, 1.25]


def test_gamma_zero_is_arithmetic_and_not_a_flag(call: Call) -> None:
    """A γ of 0 hides finite numbers, as it multiplies them; a NaN it does not contain."""
    rewards = np.array([1, 2, 3], np.float32)
    gamma = np.array([1, 0, 1], np.float32)
    got = call("discounted_returns", rewards, last_values=4.0, gamma=gamma)
    assert got.tolist() == [3.0, 2.0, 7.0]
    rewards[2] = np.nan
    assert np.isnan(np.asarray(call("discounted_returns", rewards, last_values=4.0, gamma=gamma))).all()


# ---------------------------------------------------------------------------------------------------------------------- the mask


@pytest.mark.parametrize(("name", "way"), [(name, way) for name, way in ALL_WAYS if name in problems.MASKED])
def test_masked_is_compressed(call: Call, name: str, way: str) -> None:
    """The loop cuts the rows out; here they hold NaN and flags that mean nothing."""
    for seed in range(2):
        problem = problems.problem(name, seed, (T, N), way=way, decays="[T,N]", masked=True)
        problem["mask"][:, 2] &= seed == 0  # a column without a real step
        for x in check(call, name, problem):
            assert not np.asarray(x)[~problem["mask"]].any()
    nowhere = problem | {"mask": np.zeros((T, N), bool)}
    assert not any(np.asarray(x).any() for x in results(call(name, **nowhere)))
    everywhere = filled(problem) | {"mask": np.ones((T, N), bool)}
    check(call, name, everywhere)


@pytest.mark.parametrize("name", problems.MASKED)
def test_a_mask_of_whole_rows_along_another_axis(call: Call, name: str) -> None:
    problem = problems.problem(name, 11, (N, T), 1, flags="terminated")
    problem["mask"] = np.array([0, 1, 1, 0, 0, 1, 1, 1, 0], bool)[None]
    check(call, name, filled(problem))


def test_n_step_returns_counts_real_steps(call: Call) -> None:
    got = call(
        "n_step_returns",
        np.array([1, np.nan, 10, np.nan, 100, 1000], np.float32),
        np.array([np.nan, np.nan, 2, np.nan, 3, 4], np.float32),
        n=2,
        last_values=5.0,
        gamma=0.5,
        mask=np.array([1, 0, 1, 0, 1, 1], bool),
    )
    assert got.tolist() == [6.75, 0.0, 61.0, 0.0, 601.25, 1002.5]


# ------------------------------------------------------------------------------------------------------------------------ dtypes


def cast(problem: Arrays, dtype: Any) -> Arrays:
    floats = float_names(problem)
    return {key: jnp.asarray(x).astype(dtype) if key in floats else x for key, x in problem.items()}


@pytest.mark.parametrize("name", NAMES)
def test_16_bit_data_are_computed_in_float32_and_rounded_once(call: Call, name: str) -> None:
    for dtype in ("bfloat16", "float16") if name in ("vtrace", "retrace", "episodic_cumsum") else ("bfloat16",):
        problem = cast(problems.problem(name, 12, (T, N), way=problems.WAYS[name][-1]), dtype)
        for x, right in zip(results(call(name, **problem)), expected(name, as_float64(problem)), strict=True):
            assert_rounded_once(x, right, dtype)


@pytest.mark.parametrize("name", NAMES)
def test_float64(call: Call, name: str, x64: None) -> None:
    check(call, name, problems.problem(name, 13, (T, N), dtype=np.float64), 1e-13, "float64")


@pytest.mark.parametrize("name", NAMES)
def test_the_dtype_of_the_result(call: Call, name: str, x64: None) -> None:
    """The widest of the floating data; integers, flags and decays never promote. Shapes only: nothing is compiled."""
    for way in problems.WAYS[name]:
        problem = problems.problem(name, 14, (T, N), way=way, decays="0-d")
        floats = [key for key in float_names(problem) if key not in ("gamma", "lambda_")]
        low = problem | cast({key: problem[key] for key in floats}, jnp.bfloat16)

        def dtypes(problem: Arrays) -> set[str]:
            return {str(x.dtype) for x in results(jax.eval_shape(lambda: call(name, **problem)))}

        assert dtypes(problem) == {"float32"}
        assert dtypes(low) == {"bfloat16"}
        assert dtypes(
            low | {key: problem[key].astype(np.float64) for key in ("gamma", "lambda_") if key in problem}
        ) == {"bfloat16"}
        for key in set(floats) - {"initial"}:
            assert dtypes(low | {key: problem[key]}) == {"float32"}, key
        first = "inputs" if "inputs" in problem else "rewards"
        if name not in ("episodic_cumsum", "eligibility_traces", "discounted_returns"):
            assert dtypes(low | {first: np.ones((T, N), np.int32)}) == {"bfloat16"}
        if name != "episodic_cumsum":
            integers = {key: np.ones(problem[key].shape, np.int32) for key in floats}
            assert dtypes(problem | integers) == {"float32"}


@pytest.mark.parametrize("name", NAMES)
def test_flags_of_any_dtype(call: Call, name: str) -> None:
    problem = problems.problem(name, 15, (T, N))
    clean = call(name, **problem)
    for dtype, true in (("uint8", 255), ("float32", -0.5)):
        flags = {
            key: np.where(x, true, 0).astype(dtype)
            for key, x in problem.items()
            if isinstance(x, np.ndarray) and x.dtype == bool
        }
        assert_same_bits(call(name, **problem | flags), clean)


@pytest.mark.parametrize(
    ("dtype", "out"),
    [
        ("bool", "int32"),
        ("uint8", "int32"),
        ("int8", "int32"),
        ("int16", "int32"),
        ("int32", "int32"),
        ("int64", "int64"),
    ],
)
@pytest.mark.parametrize("resets", ["after", "before"])
def test_episodic_cumsum_of_integers_is_exact(call: Call, dtype: str, out: str, resets: str, x64: None) -> None:
    rng = np.random.default_rng(16)
    largest = {"bool": 1, "uint8": 255, "int8": 127, "int16": 2**15 - 1, "int32": 2**27 + 1, "int64": 2**59 + 1}[dtype]
    inputs = np.full((T, N), largest).astype(dtype)
    inputs[:, 1] = (rng.integers(-largest, largest, T) if largest > 255 else rng.integers(0, 2, T)).astype(dtype)
    problem: dict[str, Any] = {"inputs": inputs, "done": rng.random((T, N)) < 0.2, "resets": resets}
    for arguments in (problem, {**problem, "initial": np.array([1, 2, 3], out)}):
        got = call("episodic_cumsum", **arguments)
        assert str(got.dtype) == out
        np.testing.assert_array_equal(np.asarray(got), oracle.episodic_cumsum(**arguments))


def test_integer_rewards_give_float_returns(call: Call) -> None:
    ones = np.ones(3, np.int32)
    for name, arguments in (
        ("discounted_returns", {}),
        ("lambda_returns", {"values": ones * 0, "last_values": 0, "lambda_": 1.0}),
        ("n_step_returns", {"values": ones * 0, "last_values": 0, "n": 3}),
    ):
        assert call(name, ones, **arguments, gamma=0.5).tolist() == [1.75, 1.5, 1.0]


# ------------------------------------------------------------------------------------------------------------------- containment

POISONS = [np.nan, np.inf, -np.inf, 3e38]


def rows_poisoned(problem: Arrays, owned: np.ndarray, value: float) -> Arrays:
    """`value` at the rows `owned` of every float that has a row per step."""
    dirty = dict(problem)
    for key in float_names(problem):
        x = problem[key].copy()
        if x.shape[: owned.ndim] == owned.shape:
            x[owned] = value
        elif x.ndim == owned.ndim and len(x) == len(owned) + 1:
            x[:-1][owned] = value
        dirty[key] = x
    return dirty


def three_episodes(name: str, way: str) -> Arrays:
    """Rows 0..2, 3..5, 6..8, cut by a flag of another kind in each column; what does not follow from the rows is finite."""
    problem = filled(problems.problem(name, 17, (T, N), way=way, decays="[T,N]", rate=0.0))
    if name == "episodic_cumsum":
        done = np.zeros((T, N), bool)
        done[[2, 5] if way != "before" else [3, 6]] = True
        return problem | {"done": done}
    terminated, truncated = np.zeros((T, N), bool), np.zeros((T, N), bool)
    terminated[[2, 5], 0] = truncated[[2, 5], 1] = terminated[[2, 5], 2] = truncated[[2, 5], 2] = True
    return problem | {"terminated": terminated, "truncated": truncated}


CONTAINED = [(name, way) for name, ways in problems.WAYS.items() for way in {ways[0], ways[-1]}]


@pytest.mark.parametrize(("name", "way"), sorted(CONTAINED))
def test_no_episode_or_environment_reaches_another(call: Call, name: str, way: str) -> None:
    problem = three_episodes(name, way)
    clean = call(name, **problem)
    for rows, columns in ((slice(3, 6), slice(None)), (slice(None), slice(1, 2))):
        owned = np.zeros((T, N), bool)
        owned[rows, columns] = True
        for value in POISONS:
            dirty = rows_poisoned(problem, owned, value)
            if rows == slice(None):
                for key in ("last_values", "initial"):
                    if key in dirty:
                        dirty[key] = np.where(owned.all(0), value, dirty[key]).astype(np.float32)
            assert_same_bits(call(name, **dirty), clean, ~owned)


@pytest.mark.parametrize(("name", "way"), sorted(CONTAINED))
def test_places_that_nothing_depends_on(call: Call, name: str, way: str) -> None:
    """Next values of terminated steps, final values of steps that were not truncated, ratios and values of first steps that
    nothing continues into, the state after a flagged end, ..."""
    problem = problems.problem(name, 18, (T, N), way=way, decays="[T,N]")
    assert name == "episodic_cumsum" or any(np.isnan(problem[key]).any() for key in float_names(problem))
    clean = call(name, **filled(problem, 0.0))
    for value in POISONS:
        assert_same_bits(call(name, **filled(problem, value)), clean)


# ---------------------------------------------------------------------------------------------------------------------- gradients


@pytest.mark.parametrize("name", NAMES)
def test_derivatives_by_every_float_operand(call: Call, name: str, x64: None) -> None:
    """Reverse mode against differences of the loops, forward mode against reverse mode, with NaN in the dead places."""
    rng = np.random.default_rng(19)
    steps, columns = 5, 2
    problem = problems.problem(name, 19, (steps, columns), dtype=np.float64, decays="[T,1]")
    names = float_names(problem)
    floats = {key: problem.pop(key) for key in names}
    weights = [rng.standard_normal((steps, columns)) for _ in RETURNED.get(name, "1")]
    directions = {key: rng.standard_normal(x.shape) for key, x in floats.items()}

    def weighted(outputs: Any) -> Any:
        return sum((w * x).sum() for w, x in zip(weights, results(outputs), strict=True))

    def loss(floats: Arrays) -> Any:
        return weighted(call(name, **floats, **problem))

    @jax.jit
    def derivatives(floats: Arrays, directions: Arrays) -> Any:
        return jax.grad(loss)(floats), jax.jvp(loss, (floats,), (directions,))[1]

    gradient, slope = derivatives(to_jax(floats), to_jax(directions))
    point = filled(floats)
    eps = 1e-6
    for key in names:
        differences = np.zeros(point[key].shape)
        for i in np.ndindex(point[key].shape):
            either = []
            for sign in (1, -1):
                moved = point[key].copy()
                moved[i] += sign * eps
                either.append(weighted(getattr(oracle, name)(**point | {key: moved}, **problem)))
            differences[i] = (either[0] - either[1]) / (2 * eps)
        np.testing.assert_allclose(gradient[key], differences, rtol=1e-7, atol=1e-7, err_msg=key)
        assert not np.asarray(gradient[key])[np.isnan(floats[key])].any(), f"{key}: dead places have no gradient"
    np.testing.assert_allclose(slope, sum((gradient[k] * directions[k]).sum() for k in names), rtol=1e-10)


@pytest.mark.parametrize("name", ["lambda_returns", "retrace"])
def test_second_derivatives(call: Call, name: str, x64: None) -> None:
    problem = filled(problems.problem(name, 20, (4, 2), dtype=np.float64, decays="0-d"))
    floats = {key: problem.pop(key) for key in float_names(problem)}
    check_grads(
        jax.jit(lambda f: results(call(name, **f, **problem))),
        (to_jax(floats),),
        order=2,
        modes=("rev",),
        atol=1e-5,
        rtol=1e-5,
    )


# ----------------------------------------------------------------------------------------------------------------------- batching


@pytest.mark.parametrize("name", NAMES)
def test_vmap_is_a_loop(call: Call, name: str) -> None:
    """Each operand batched along another of its axes, numbers shared."""
    each = [problems.problem(name, seed, (4, 3)) for seed in (21, 22)]
    arrays = [{key: x for key, x in p.items() if isinstance(x, np.ndarray)} for p in each]
    shared = {key: x for key, x in each[0].items() if key not in arrays[0]}
    axes = {key: i % (x.ndim + 1) for i, (key, x) in enumerate(arrays[0].items())}
    stacked = {key: np.stack([a[key] for a in arrays], axis) for key, axis in axes.items()}
    got = jax.vmap(lambda a: results(call(name, **a, **shared)), in_axes=(axes,))(to_jax(stacked))
    for i, problem in enumerate(each):
        for x, right in zip(got, expected(name, problem), strict=True):
            oracle.assert_close(x[i], right)


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=5)
@given(data=st.data())
def test_any_problem_is_the_loop(call: Call, name: str, data: st.DataObject) -> None:
    # Structures that other tests have compiled already, so that the examples cost little.
    way = data.draw(st.sampled_from(problems.WAYS[name]))
    layout, decays = data.draw(
        st.sampled_from([(((T, N), 0), "numbers"), (((T, N), 0), "[T,N]")])
        if way != problems.WAYS[name][-1]
        else st.sampled_from([(x[:2], x[2]) for x in LAYOUTS.values()])
    )
    seed, rate = data.draw(st.integers(0, 2**16)), data.draw(st.sampled_from([0.0, 0.1, 0.5, 0.9]))
    check(call, name, problems.problem(name, seed, *layout, way=way, decays=decays, rate=rate))


# --------------------------------------------------------------------------------------------------------------------- identities


def draw(seed: int, *names: str, shape: tuple[int, ...] = (T, N)) -> Arrays:
    rng = np.random.default_rng(seed)
    return {name: rng.standard_normal(shape).astype(np.float32) for name in names}


def valued(seed: int, source: str = "last_values") -> Arrays:
    """A gae problem with finite numbers everywhere: arguments of everything that takes the sources of the next value. Next
    values are those of the following row where an episode goes on, as a buffer of whole transitions holds them."""
    problem = filled(oracle.gae_problem(seed, (T, N), source=source))
    if source == "next_values":
        goes_on = ~(problem["terminated"] | problem["truncated"])[:-1]
        problem["next_values"][:-1] = np.where(goes_on, problem["values"][1:], problem["next_values"][:-1])
    return problem


@pytest.mark.parametrize("source", oracle.SOURCES)
def test_vtrace_and_puffer_advantage_on_policy_are_gae(call: Call, source: str) -> None:
    problem = valued(23, source) | {"gamma": 0.9, "lambda_": 0.8}
    advantages, returns = call("gae", **problem)
    on_policy = problem | {"log_rhos": np.zeros((T, N), np.float32)}
    oracle.assert_close(call("vtrace", **on_policy).vs, returns, 1e-6)
    oracle.assert_close(call("puffer_advantage", **on_policy), advantages, 1e-6)
    whole = {"lambda_": 1.0}  # then the policy gradient's advantage is the same too
    oracle.assert_close(call("vtrace", **on_policy | whole).pg_advantages, call("gae", **problem | whole)[0], 1e-6)


def test_vtrace_gives_the_numbers_of_brax(call: Call) -> None:
    """Brax's (vs, advantages) are those of V-trace on policy, for any lambda, where nothing is truncated."""
    for name in ("brax compute_gae none vs", "brax compute_gae term@1 vs"):
        inputs, right = GOLDEN[name]["inputs"], GOLDEN[name]["expected"]
        got = call(
            "vtrace",
            np.array(inputs["rewards"], np.float32),
            np.array(inputs["values"], np.float32),
            np.array(inputs["termination"]) != 0,
            log_rhos=np.zeros(4, np.float32),
            last_values=inputs["bootstrap_value"],
            gamma=inputs["discount"],
            lambda_=inputs["lambda_"],
        )
        oracle.assert_close(got.vs, np.reshape(right["vs"], 4), 1e-6)
        oracle.assert_close(got.pg_advantages, np.reshape(right["advantages"], 4), 1e-6)


def test_puffer_advantage_gives_the_numbers_of_pufferlib(call: Call) -> None:
    """PufferLib's rewards and dones of a row belong to the step before; its last column stays 0."""
    case = GOLDEN["puff_advantage rho=1"]
    inputs = {key: np.array(x, np.float32) for key, x in case["inputs"].items()}
    got = call(
        "puffer_advantage",
        inputs["rewards"][1:],
        inputs["values"],
        inputs["dones"][1:] != 0,
        log_rhos=np.log(inputs["importance"][:-1]),
        gamma=case["inputs"]["gamma"],
        lambda_=case["inputs"]["gae_lambda"],
        clip_rho_threshold=case["inputs"]["rho_clip"],
        clip_c_threshold=case["inputs"]["c_clip"],
    )
    oracle.assert_close(got, np.array(case["expected"]["advantages"])[:-1], 1e-6)


def test_vtrace_is_the_sum_of_the_paper(call: Call) -> None:
    """IMPALA, equation 1: vs = V + sum_t gamma^(t-s) (prod_{i<t} c_i) rho_t delta_t, written out."""
    x = draw(24, "rewards", "values", "log_rhos")
    gamma, last = 0.9, 0.7
    rho = np.minimum(1.2, np.exp(x["log_rhos"].astype(np.float64)))
    c = np.minimum(0.8, np.exp(x["log_rhos"].astype(np.float64)))
    following = np.concatenate([x["values"][1:], np.full((1, N), last)])
    delta = rho * (x["rewards"] + gamma * following - x["values"])
    vs = x["values"].astype(np.float64)
    for s in range(T):
        for t in range(s, T):
            vs[s] += gamma ** (t - s) * c[s:t].prod(0) * delta[t]
    got = call("vtrace", **x, last_values=last, gamma=gamma, clip_rho_threshold=1.2, clip_c_threshold=0.8)
    oracle.assert_close(got.vs, vs)


def test_vtrace_pg_advantages_look_one_step_ahead_whatever_lambda_is(call: Call) -> None:
    """vs'(t) is vs_{t+1} also where lambda is 0, and V of the true next state at a flag."""
    problem: dict[str, Any] = {**valued(25), **draw(25, "log_rhos"), "gamma": 0.9}
    stops = problem["terminated"] | problem["truncated"] | (np.arange(T) == T - 1)[:, None]
    for lambda_ in (0.0, 0.5, 1.0):
        vs, pg = call("vtrace", **problem, lambda_=lambda_)
        after = np.concatenate([np.asarray(vs)[1:], np.zeros((1, N))])
        w = np.minimum(1, np.exp(problem["log_rhos"]))
        followed = w * (problem["rewards"] + 0.9 * after - problem["values"])
        oracle.assert_close(np.asarray(pg)[~stops], followed[~stops])


@pytest.mark.parametrize("source", oracle.SOURCES)
def test_lambda_returns_are_the_returns_of_gae(call: Call, source: str) -> None:
    problem = valued(26, source) | {"gamma": 0.9, "lambda_": 0.8}
    oracle.assert_close(call("lambda_returns", **problem), call("gae", **problem).returns, 1e-6)


def test_lambda_returns_at_the_ends_of_lambda(call: Call) -> None:
    """lambda = 1: discounted_returns; lambda = 0: the TD target, which is n_step_returns of one step."""
    problem = valued(27) | {"gamma": 0.9}
    one_step = call("n_step_returns", **problem, n=1)
    oracle.assert_close(call("lambda_returns", **problem, lambda_=0.0), one_step, 1e-6)
    monte_carlo = {key: x for key, x in problem.items() if key != "values"}
    discounted = call("discounted_returns", **monte_carlo)
    oracle.assert_close(call("lambda_returns", **problem, lambda_=1.0), discounted, 1e-6)
    oracle.assert_close(call("n_step_returns", **problem, n=T), discounted, 1e-6)
    oracle.assert_close(call("n_step_returns", **problem, n=T + 100), discounted, 1e-6)
    oracle.assert_close(
        call("lambda_returns", **problem, lambda_=1.0), call("gae", **problem, lambda_=1.0).returns, 1e-6
    )


def test_discounted_returns_are_their_definition(call: Call) -> None:
    rewards = draw(28, "rewards")["rewards"]
    for last in (0.0, 1.5):
        got = call("discounted_returns", rewards, last_values=last, gamma=0.9)
        oracle.assert_close(got, oracle.discounted_sum(rewards.astype(np.float64), 0.9, last))
    oracle.assert_close(
        call("discounted_returns", rewards, gamma=0.9), oracle.discounted_sum(rewards.astype(np.float64), 0.9, 0.0)
    )


def test_lambda_returns_average_n_step_returns(call: Call) -> None:
    """Sutton & Barto 12.3: G = (1 - lambda) sum_n lambda^(n-1) G^(n) + lambda^(T-t-1) G^(T-t)."""
    steps, lambda_ = 4, 0.6
    x = {**draw(29, "rewards", "values", shape=(steps, N)), "last_values": 0.3, "gamma": 0.9}
    returns = [np.asarray(call("n_step_returns", **x, n=n)) for n in range(1, steps + 1)]
    got = np.asarray(call("lambda_returns", **x, lambda_=lambda_))
    for t in range(steps):
        left = steps - t
        average = sum((1 - lambda_) * lambda_ ** (n - 1) * returns[n - 1][t] for n in range(1, left))
        oracle.assert_close(got[t], average + lambda_ ** (left - 1) * returns[left - 1][t])


def test_q_lambda_is_lambda_returns_of_the_maximum(call: Call) -> None:
    problem = filled(problems.problem("q_lambda", 30, (T, N)))
    best = problem["next_q_values"].max(-1)
    rest = {key: x for key, x in problem.items() if key != "next_q_values"}
    oracle.assert_close(call("q_lambda", **problem), call("lambda_returns", **rest, next_values=best), 1e-6)


class Chain:
    """A small deterministic world: `follow[s, a]` is the next state, `reward[s, a]` what it pays; the last state is terminal."""

    states, actions, gamma = 5, 3, 0.9

    def __init__(self, seed: int) -> None:
        rng = np.random.default_rng(seed)
        self.follow = rng.integers(0, self.states, (self.states, self.actions))
        self.reward = rng.standard_normal((self.states, self.actions))
        self.target, self.behavior = (rng.dirichlet(np.ones(self.actions), self.states) for _ in range(2))
        self.rng = rng

    def exact_q(self, greedy: bool = False) -> np.ndarray:
        """Q of the target policy, or of the best one."""
        q = np.zeros((self.states, self.actions))
        for _ in range(2000):
            v = q.max(-1) if greedy else (self.target * q).sum(-1)
            v[-1] = 0.0
            q = self.reward + self.gamma * v[self.follow]
        return q

    def walk(self, choose: Callable[[int], int], steps: int = T, columns: int = N) -> Arrays:
        """States, actions and true next states of `columns` walks of several episodes, cut off at random now and then."""
        out = {key: np.zeros((steps, columns), int) for key in ("state", "action", "after")}
        out |= {key: np.zeros((steps, columns), bool) for key in ("terminated", "truncated")}
        for n in range(columns):
            s = int(self.rng.integers(self.states - 1))
            for t in range(steps):
                a = choose(s)
                after = int(self.follow[s, a])
                ended, cut = after == self.states - 1, bool(self.rng.random() < 0.2)
                for key, x in zip(out, (s, a, after, ended, cut), strict=True):
                    out[key][t, n] = x
                s = int(self.rng.integers(self.states - 1)) if ended or cut else after
        return out


def off_policy_call(chain: Chain, q: np.ndarray) -> tuple[Arrays, Arrays, Arrays]:
    """A walk of the behaviour policy as arguments of retrace: (common, ratios, what belongs to the true next state)."""
    walk = chain.walk(lambda s: int(chain.rng.choice(chain.actions, p=chain.behavior[s])))
    at = walk["state"], walk["action"]
    common = {
        "rewards": chain.reward[at].astype(np.float32),
        "q_values": q[at].astype(np.float32),
        "terminated": walk["terminated"],
        "truncated": walk["truncated"],
        "gamma": chain.gamma,
        "lambda_": 0.9,
    }
    probs = {
        "target_probs": chain.target[at].astype(np.float32),
        "behavior_probs": chain.behavior[at].astype(np.float32),
    }
    # A terminal state has no actions: NaN.
    dead = walk["terminated"][..., None]
    return (
        common,
        probs,
        {
            "next_q_values": np.where(dead, np.nan, q[walk["after"]]).astype(np.float32),
            "next_target_probs": np.where(dead, np.nan, chain.target[walk["after"]]).astype(np.float32),
        },
    )


@pytest.mark.parametrize("name", ["retrace", "tree_backup", "general_off_policy_returns"])
def test_an_exact_q_has_no_td_errors(call: Call, name: str) -> None:
    """Whatever the behaviour, the trace and the way episodes end; a wrong policy in the expectation leaves an error."""
    for seed in range(3):
        chain = Chain(seed)
        common, probs, after = off_policy_call(chain, chain.exact_q())
        assert common["terminated"].any() or common["truncated"].any()
        if name == "retrace":
            arguments = common | probs | after
        elif name == "tree_backup":
            arguments = common | {"target_probs": probs["target_probs"]} | after
        else:
            arguments = {key: x for key, x in common.items() if key != "lambda_"}
            arguments["next_expected_q"] = (after["next_q_values"] * after["next_target_probs"]).sum(-1)
            arguments["coefficients"] = draw(seed, "c")["c"]
        targets, errors = call(name, **arguments)
        oracle.assert_close(errors, np.zeros((T, N)), 1e-5)
        oracle.assert_close(targets, common["q_values"], 1e-5)
        if name != "general_off_policy_returns":
            wrong = arguments | {"next_target_probs": np.roll(after["next_target_probs"], 1, -1)}
            assert np.abs(call(name, **wrong).td_errors).max() > 1e-2


def test_q_lambda_of_the_best_policy_is_the_best_q(call: Call) -> None:
    for seed in range(3):
        chain = Chain(seed)
        best = chain.exact_q(greedy=True)
        walk = chain.walk(lambda s, best=best: int(best[s].argmax()))
        got = call(
            "q_lambda",
            chain.reward[walk["state"], walk["action"]].astype(np.float32),
            np.where(walk["terminated"][..., None], np.nan, best[walk["after"]]).astype(np.float32),
            walk["terminated"],
            walk["truncated"],
            gamma=chain.gamma,
            lambda_=0.8,
        )
        oracle.assert_close(got, best[walk["state"], walk["action"]])


def test_tree_backup_is_the_tree_of_the_paper(call: Call) -> None:
    """Precup 2000, lambda = 1: G = r + gamma [sum of pi(a) Q(s', a) over the actions not taken + pi(a') G']."""
    for seed in range(2):
        chain = Chain(seed)
        q = chain.rng.standard_normal((chain.states, chain.actions))
        walk = chain.walk(lambda s, chain=chain: int(chain.rng.integers(chain.actions)))
        right = np.zeros((T, N))
        for n in range(N):
            for t in reversed(range(T)):
                right[t, n] = chain.reward[walk["state"][t, n], walk["action"][t, n]]
                after = walk["after"][t, n]
                if walk["terminated"][t, n]:
                    continue
                follows = t + 1 < T and not walk["truncated"][t, n]
                for a in range(chain.actions):
                    taken = follows and a == walk["action"][t + 1, n]
                    right[t, n] += chain.gamma * chain.target[after, a] * (right[t + 1, n] if taken else q[after, a])
        at = walk["state"], walk["action"]
        got = call(
            "tree_backup",
            chain.reward[at].astype(np.float32),
            q[at].astype(np.float32),
            walk["terminated"],
            walk["truncated"],
            next_q_values=q[walk["after"]].astype(np.float32),
            next_target_probs=chain.target[walk["after"]].astype(np.float32),
            target_probs=chain.target[at].astype(np.float32),
            gamma=chain.gamma,
        )
        oracle.assert_close(got.targets, right)


def test_general_off_policy_returns_hold_the_others(call: Call) -> None:
    """Retrace's, tree-backup's and SARSA(lambda)'s coefficients give their targets."""
    problem = filled(problems.problem("retrace", 31, (T, N)))
    lambda_, log_rhos = problem.pop("lambda_"), problem.pop("log_rhos")
    clipped = lambda_ * np.minimum(1, np.exp(log_rhos))
    general = call("general_off_policy_returns", **problem, coefficients=clipped)
    for x, y in zip(call("retrace", **problem, lambda_=lambda_, log_rhos=log_rhos), general, strict=True):
        oracle.assert_close(x, y, 1e-6)
    for x, y in zip(call("tree_backup", **problem, lambda_=0.5, target_probs=2 * clipped), general, strict=True):
        oracle.assert_close(x, y, 1e-6)
    # SARSA: the value of the next state is Q of the action that was taken there.
    q = problem["q_values"]
    problem["next_expected_q"] = np.concatenate([q[1:], np.full((1, N), 0.4, np.float32)])
    sarsa = {key: x for key, x in problem.items() if key not in ("q_values", "next_expected_q")}
    oracle.assert_close(
        call("general_off_policy_returns", **problem, coefficients=np.full((T, N), 0.7, np.float32)).targets,
        call("lambda_returns", **sarsa, next_values=problem["next_expected_q"], lambda_=0.7),
        2e-6,
    )


def test_retrace_takes_the_ratio_of_the_next_action(call: Call) -> None:
    """By hand: D_1 = 1, D_0 = 1 + gamma lambda min(1, rho_1) D_1; rho_0 is nowhere."""
    for first in (np.nan, np.inf, 0.0):
        got = call(
            "retrace",
            np.ones(2, np.float32),
            np.zeros(2, np.float32),
            next_expected_q=np.zeros(2, np.float32),
            log_rhos=np.log(np.array([first, 0.25], np.float32)),
            gamma=0.5,
            lambda_=0.5,
        )
        assert got.td_errors.tolist() == [1.0625, 1.0]


def test_upgo_between_its_ends(call: Call) -> None:
    """Values far too low: always better than expected, the discounted return. Far too high: the TD target."""
    rewards = draw(32, "rewards")["rewards"]
    for value in (-100.0, 100.0):
        problem = {"rewards": rewards, "values": np.full((T, N), value, np.float32), "last_values": value, "gamma": 0.9}
        if value > 0:  # r + 0.9 V < V
            right = rewards + 0.9 * value
        else:  # r + 0.9 V > V
            right = oracle.discounted_sum(rewards.astype(np.float64), 0.9, value)
        oracle.assert_close(call("upgo", **problem), right)


def test_upgo_by_hand(call: Call) -> None:
    # Step 2 is as good as expected (2 + 1 >= 3, a tie counts), step 1 is worse (1 + 3 < 5).
    rewards, values = np.array([1, 1, 2], np.float32), np.array([np.nan, 5, 3], np.float32)
    assert call("upgo", rewards, values, last_values=1.0).tolist() == [6.0, 4.0, 3.0]
    # Cut off after step 1: V of the final observation, and nothing of the next episode.
    cut = np.array([False, True, False])
    final = np.array([np.nan, 7, np.nan], np.float32)
    got = call("upgo", rewards, values, truncated=cut, final_values=final, last_values=1.0)
    assert got.tolist() == [9.0, 8.0, 3.0]


def test_eligibility_traces_are_the_adjoint_of_gae(call: Call) -> None:
    """Forward view and backward view: sum_t delta_t z_t = sum_t x_t A_t, in every environment by itself."""
    problem = valued(33) | {"gamma": 0.9, "lambda_": 0.8}
    x = draw(33, "x")["x"]
    flags = {key: problem[key] for key in ("terminated", "truncated")}
    z = np.asarray(call("eligibility_traces", x, **flags, gamma=0.9, lambda_=0.8), np.float64)
    delta = np.asarray(call("gae", **problem | {"lambda_": 0.0}).advantages, np.float64)
    advantages = np.asarray(call("gae", **problem).advantages, np.float64)
    oracle.assert_close((delta * z).sum(0), (x * advantages).sum(0))


def test_eligibility_traces_without_decay_are_episodic_cumsum(call: Call) -> None:
    x = draw(34, "x")["x"]
    done = np.random.default_rng(34).random((T, N)) < 0.3
    traces = call("eligibility_traces", x, done, gamma=1.0, lambda_=1.0, initial=2.0)
    oracle.assert_close(traces, call("episodic_cumsum", x, done, initial=2.0), 1e-6)


def test_episodic_cumsum_after_is_before_one_step_later(call: Call) -> None:
    x = draw(35, "x")["x"]
    done = np.random.default_rng(35).random((T, N)) < 0.3
    shifted = np.concatenate([np.zeros((1, N), bool), done[:-1]])
    for start in ({}, {"initial": 1.5}):
        after = call("episodic_cumsum", x, done, **start)
        assert_same_bits(call("episodic_cumsum", x, shifted, resets="before", **start), after)
    plain = np.cumsum(x.astype(np.float64), 0)
    oracle.assert_close(call("episodic_cumsum", x, np.zeros((T, N), bool)), plain)
    # A first step that is done leaves `initial` out, where done steps are first steps.
    assert call("episodic_cumsum", np.ones(2, np.float32), np.array([1, 0], bool), initial=5.0).tolist() == [6.0, 1.0]
    got = call("episodic_cumsum", np.ones(2, np.float32), np.array([1, 0], bool), initial=5.0, resets="before")
    assert got.tolist() == [1.0, 2.0]


# ------------------------------------------------------------------------------------------- the loops, against each other


@pytest.mark.parametrize(("name", "way"), ALL_WAYS)
def test_the_loops_know_that_episodes_in_a_row_are_episodes_apart(name: str, way: str) -> None:
    """No library here: cut where every environment has a flag, each part alone gives its part of the whole."""
    problem = problems.problem(name, 36, (T, N), way=way, dtype=np.float64, decays="[T,N]")
    cut = 4
    if name == "episodic_cumsum":
        problem["done"][cut if way == "before" else cut - 1] = True
    else:
        problem["truncated"][cut - 1] = ~problem["terminated"][cut - 1]
    problem = filled(problem)
    whole = expected(name, problem)
    for rows in (slice(0, cut), slice(cut, T)):
        part = {key: x[rows] if isinstance(x, np.ndarray) and len(x) in (T, T + 1) else x for key, x in problem.items()}
        if way == "longer_values":
            part["values"] = problem["values"][rows.start : rows.stop + 1]
        if name == "eligibility_traces" and rows.start:
            part.pop("initial", None)
        if name == "episodic_cumsum" and rows.start:
            part.pop("initial", None)
        for x, y in zip(whole, expected(name, part), strict=True):
            oracle.assert_close(y, x[rows], 1e-13)


@pytest.mark.parametrize(
    ("name", "way"), [(name, way) for name, way in ALL_WAYS if name in problems.MASKED and way != "longer_values"]
)
def test_the_loops_know_that_masked_is_compressed(name: str, way: str) -> None:
    kept = np.array([0, 1, 1, 0, 1, 1, 0, 1, 0], bool)
    problem = filled(problems.problem(name, 37, (T, N), way=way, dtype=np.float64, decays="[T,N]"))
    short = {key: x[kept] if isinstance(x, np.ndarray) and x.shape == (T, N) else x for key, x in problem.items()}
    for x, y in zip(expected(name, problem | {"mask": kept[:, None]}), expected(name, short), strict=True):
        oracle.assert_close(x[kept], y, 1e-13)
        assert not x[~kept].any()


# --------------------------------------------------------------------------------------------------------------------- gae_packed


@pytest.mark.parametrize("masked", [False, True])
def test_gae_packed_is_gae_of_each_sequence(call: Call, masked: bool) -> None:
    for seed, lengths in enumerate([(3, 0, 1, 7, 2, 0), (0, 0, 5, 5, 0, 3), (13, 0, 0, 0, 0, 0)]):
        got = check(call, "gae_packed", problems.packed_problem(seed, lengths, masked=masked))
        assert np.isfinite(np.asarray(got)).all()


def test_gae_packed_of_nothing_and_of_one_sequence(call: Call) -> None:
    check(call, "gae_packed", problems.packed_problem(1, (9,)))
    check(call, "gae_packed", problems.packed_problem(1, (0, 0)))
    alone = problems.packed_problem(2, (9,))
    gae = call("gae", alone["rewards"], alone["values"], last_values=alone["last_values"][0], gamma=0.9, lambda_=0.8)
    del alone["gamma"], alone["lambda_"]
    for x, y in zip(call("gae_packed", **alone, gamma=0.9, lambda_=0.8), gae, strict=True):
        oracle.assert_close(x, y, 1e-6)


def test_gae_packed_under_jit_with_offsets_and_decays_traced(call: Call) -> None:
    jitted = jax.jit(lambda arguments: call("gae_packed", **arguments))
    for seed, lengths in enumerate([(3, 0, 1, 7, 2, 0), (1, 4, 4, 4, 0, 0)]):
        problem = problems.packed_problem(seed, lengths)
        for per_token in (False, True):
            if per_token:
                problem |= {"gamma": np.linspace(0.5, 1, 13, dtype=np.float32)}
            got = jitted(to_jax(problem))
            for x, right in zip(got, expected("gae_packed", problem), strict=True):
                oracle.assert_close(x, right)


def test_gae_packed_keeps_sequences_apart(call: Call) -> None:
    problem = problems.packed_problem(3)
    clean = call("gae_packed", **problem)
    owned = np.zeros(13, bool)
    owned[4:11] = True
    for value in POISONS:
        dirty = problem | {key: np.where(owned, value, problem[key]) for key in ("rewards", "values")}
        dirty["last_values"] = np.where(np.arange(6) == 3, value, problem["last_values"])
        dirty = {key: x.astype(np.float32) if key in float_names(dirty) else x for key, x in dirty.items()}
        assert_same_bits(call("gae_packed", **dirty), clean, ~owned)


def test_gae_packed_dtypes(call: Call) -> None:
    problem = cast(problems.packed_problem(4), jnp.bfloat16)
    for x, right in zip(call("gae_packed", **problem), expected("gae_packed", as_float64(problem)), strict=True):
        assert_rounded_once(x, right, "bfloat16")


def test_gae_packed_derivatives(call: Call, x64: None) -> None:
    problem = problems.packed_problem(5, (2, 0, 3), dtype=np.float64) | {
        "gamma": np.float64(0.9),
        "lambda_": np.float64(0.8),
    }
    names = ("rewards", "values", "last_values", "gamma", "lambda_")
    weights = np.random.default_rng(5).standard_normal((2, 5))

    def loss(floats: Arrays) -> Any:
        return (weights[0] * (out := call("gae_packed", **problem | floats))[0]).sum() + (weights[1] * out[1]).sum()

    gradient = jax.jit(jax.grad(loss))({key: jnp.asarray(problem[key]) for key in names})
    point = {key: np.nan_to_num(problem[key], nan=0.5) for key in names}

    def loops(floats: Arrays) -> float:
        return float((weights * np.array(oracle.gae_packed(**problem | floats))).sum())

    for key in names:
        for i in np.ndindex(np.shape(point[key])):
            step = np.zeros(np.shape(point[key]))
            step[i] = 1e-6
            slope = (loops(point | {key: point[key] + step}) - loops(point | {key: point[key] - step})) / 2e-6
            np.testing.assert_allclose(gradient[key][i], slope, rtol=1e-7, atol=1e-7)


# ----------------------------------------------------------------------------------------------------------------------- errors


def ones(*shape: int) -> np.ndarray:
    return np.ones(shape, np.float32)


def never(*shape: int) -> np.ndarray:
    return np.zeros(shape, bool)


ET, EN, EA = 5, 3, 4
VALUED = {"rewards": ones(ET, EN), "values": ones(ET, EN), "last_values": ones(EN)}
RATIOS = {"log_rhos": ones(ET, EN)}
Q = {"rewards": ones(ET, EN), "q_values": ones(ET, EN)}
EXPECTED = {"next_expected_q": ones(ET, EN)}
ACTIONS = {"next_q_values": ones(ET, EN, EA), "next_target_probs": ones(ET, EN, EA)}
GOOD: dict[str, Arrays] = {
    "lambda_returns": VALUED,
    "discounted_returns": {"rewards": ones(ET, EN), "last_values": ones(EN)},
    "n_step_returns": VALUED | {"n": 2},
    "vtrace": VALUED | RATIOS,
    "retrace": Q | EXPECTED | RATIOS,
    "tree_backup": Q | EXPECTED | {"target_probs": ones(ET, EN)},
    "general_off_policy_returns": Q | EXPECTED | {"coefficients": ones(ET, EN)},
    "q_lambda": {"rewards": ones(ET, EN), "next_q_values": ones(ET, EN, EA)},
    "upgo": VALUED,
    "puffer_advantage": VALUED | RATIOS,
    "eligibility_traces": {"inputs": ones(ET, EN), "initial": ones(EN)},
    "episodic_cumsum": {"inputs": ones(ET, EN), "done": never(ET, EN), "initial": ones(EN)},
    "gae_packed": {
        "rewards": ones(6),
        "values": ones(6),
        "cu_seqlens": np.array([0, 2, 6], np.int32),
        "last_values": ones(2),
    },
}
GONE = object()
Bad = tuple[str, str, Arrays, list[str]]


def bad_for_all() -> list[Bad]:
    """What is wrong for whoever has the argument."""
    out: list[Bad] = []
    for name, good in GOOD.items():
        if name == "gae_packed":
            continue
        taken = " ".join(SIGNATURES[name]).split()
        first = "inputs" if "inputs" in good else "rewards"
        out += [
            (name, "axis too large", {"axis": 2}, ["axis", "2"]),
            (name, "axis not an integer", {"axis": 0.5}, ["axis"]),
            (name, "unknown implementation", {"implementation": "cuda"}, ["implementation", "cuda"]),
            (name, f"complex {first}", {first: ones(ET, EN).astype(np.complex64)}, [first, "complex64"]),
            (name, f"{first} a string", {first: "reward"}, [first]),
            (name, f"no {first}", {first: None}, [first]),
        ]
        for key in ("gamma", "lambda_"):
            if key in taken:
                out.append((name, f"{key} of a lower rank", {key: ones(ET)}, [key, "(5,)"]))
                out.append((name, f"{key} of another size", {key: ones(ET + 1, EN)}, [key, "(6, 3)"]))
                out.append((name, f"{key} a string", {key: "0.9"}, [key]))
        if "terminated" in taken:
            out.append(
                (name, "terminated of another size", {"terminated": never(ET + 1, EN)}, ["terminated", "(6, 3)"])
            )
        if "terminated" in taken and name != "eligibility_traces":
            out.append((name, "terminated of a lower rank", {"terminated": never(ET)}, ["terminated", "(5,)"]))
        if "mask" in taken:
            out.append((name, "mask of a lower rank", {"mask": never(ET)}, ["mask", "(5,)"]))
            out.append((name, "mask of another size", {"mask": never(ET, EN + 1)}, ["mask", "(5, 4)"]))
        for key, x in good.items():
            if key in ("rewards", "inputs", "n", "done", "next_q_values"):
                continue
            longer = tuple(n + 2 * (i == x.ndim - 1) for i, n in enumerate(x.shape))
            words = [key, str(longer)]
            out.append((name, f"{key} of another size", {key: ones(*longer)}, words))
            out.append((name, f"{key} of a higher rank", {key: ones(*x.shape, 1)}, [key]))
        if "values" in good:
            two = VALUED | {"next_values": ones(ET, EN)}
            cut = {"truncated": never(ET, EN)}
            final = {"final_values": ones(ET, EN)}
            following = {"last_values": GONE, "next_values": ones(ET, EN)}
            longer = {"last_values": GONE, "values": ones(ET + 1, EN)}
            out += [
                (name, "no source of the last value", {"last_values": GONE}, ["last_values", "next_values"]),
                (name, "last and next values", two, ["last_values", "next_values"]),
                (name, "T+1 values and last values", {"values": ones(ET + 1, EN)}, ["values", "last_values"]),
                (name, "T+1 values and next values", longer | {"next_values": ones(ET, EN)}, ["values", "next_values"]),
                (name, "truncated without final values", cut, ["truncated", "final_values"]),
                (name, "truncated, T+1 values, no final ones", longer | cut, ["truncated", "final_values"]),
                (name, "final with next values", following | cut | final, ["final_values", "next_values"]),
                (name, "final values without truncated", final, ["final_values", "truncated"]),
                (name, "values two rows longer", {"values": ones(ET + 2, EN)}, ["values", "(7, 3)"]),
            ]
    return out


def ratios_bad_for(name: str) -> list[Bad]:
    """Of retrace and tree_backup: the next expectation, given twice, by halves or not at all."""
    return [
        (name, "no next expectation", {"next_expected_q": GONE}, ["next_expected_q", "next_q_values"]),
        (name, "two next expectations", ACTIONS, ["next_expected_q", "next_q_values"]),
        (
            name,
            "action values alone",
            {**ACTIONS, "next_expected_q": GONE, "next_target_probs": GONE},
            ["next_target_probs"],
        ),
        (name, "their policy alone", {**ACTIONS, "next_expected_q": GONE, "next_q_values": GONE}, ["next_q_values"]),
        (
            name,
            "other actions in the policy",
            {**ACTIONS, "next_expected_q": GONE, "next_target_probs": ones(ET, EN, EA + 1)},
            ["next_target_probs", "next_q_values", "5", "4"],
        ),
        (
            name,
            "action values without actions",
            {**ACTIONS, "next_expected_q": GONE, "next_q_values": ones(ET, EN)},
            ["next_q_values", "(5, 3)"],
        ),
        (
            name,
            "action values of other steps",
            {**ACTIONS, "next_expected_q": GONE, "next_q_values": ones(ET + 1, EN, EA)},
            ["next_q_values", "(6, 3, 4)"],
        ),
    ]


BAD: list[Bad] = [
    *bad_for_all(),
    *ratios_bad_for("retrace"),
    *ratios_bad_for("tree_backup"),
    (
        "lambda_returns",
        "neither values nor next values",
        {"values": GONE, "last_values": GONE},
        ["values", "next_values"],
    ),
    ("lambda_returns", "last values without values", {"values": GONE}, ["values"]),
    (
        "n_step_returns",
        "neither values nor next values",
        {"values": GONE, "last_values": GONE},
        ["values", "next_values"],
    ),
    ("n_step_returns", "last values without values", {"values": GONE}, ["values"]),
    *(("n_step_returns", f"n = {n!r}", {"n": n}, ["n"]) for n in (0, -1, 2.5, "3", None)),
    ("n_step_returns", "no n", {"n": GONE}, ["n"]),
    (
        "discounted_returns",
        "truncated without final values",
        {"truncated": never(ET, EN)},
        ["truncated", "final_values"],
    ),
    ("discounted_returns", "final values alone", {"final_values": ones(ET, EN)}, ["final_values", "truncated"]),
    ("discounted_returns", "values", {"values": ones(ET, EN)}, ["values"]),
    ("vtrace", "no ratio", {"log_rhos": GONE}, ["log_rhos", "target_log_probs"]),
    (
        "vtrace",
        "two ratios",
        {"target_log_probs": ones(ET, EN), "behavior_log_probs": ones(ET, EN)},
        ["log_rhos", "target_log_probs"],
    ),
    ("vtrace", "half a ratio", {"log_rhos": GONE, "target_log_probs": ones(ET, EN)}, ["behavior_log_probs"]),
    ("vtrace", "the other half", {"log_rhos": GONE, "behavior_log_probs": ones(ET, EN)}, ["target_log_probs"]),
    ("vtrace", "a ratio and a half", {"behavior_log_probs": ones(ET, EN)}, ["log_rhos", "behavior_log_probs"]),
    *(
        ("vtrace", f"{key} a string", {key: "1"}, [key])
        for key in ("clip_rho_threshold", "clip_c_threshold", "clip_pg_rho_threshold")
    ),
    ("puffer_advantage", "no ratio", {"log_rhos": GONE}, ["log_rhos"]),
    ("puffer_advantage", "ratio None", {"log_rhos": None}, ["log_rhos"]),
    ("retrace", "no ratio", {"log_rhos": GONE}, ["log_rhos", "target_probs"]),
    (
        "retrace",
        "two ratios",
        {"target_probs": ones(ET, EN), "behavior_probs": ones(ET, EN)},
        ["log_rhos", "target_probs"],
    ),
    ("retrace", "half a ratio", {"log_rhos": GONE, "target_probs": ones(ET, EN)}, ["behavior_probs"]),
    ("retrace", "the other half", {"log_rhos": GONE, "behavior_probs": ones(ET, EN)}, ["target_probs"]),
    ("retrace", "clip_c_threshold a string", {"clip_c_threshold": "1"}, ["clip_c_threshold"]),
    ("retrace", "no Q", {"q_values": None}, ["q_values"]),
    ("tree_backup", "no probabilities", {"target_probs": GONE}, ["target_probs"]),
    ("tree_backup", "ratios", {"log_rhos": ones(ET, EN)}, ["log_rhos"]),
    ("general_off_policy_returns", "no coefficients", {"coefficients": GONE}, ["coefficients"]),
    ("general_off_policy_returns", "no next expectation", {"next_expected_q": GONE}, ["next_expected_q"]),
    ("general_off_policy_returns", "lambda_", {"lambda_": 0.9}, ["lambda_"]),
    ("q_lambda", "no actions", {"next_q_values": ones(ET, EN)}, ["next_q_values", "(5, 3)"]),
    ("q_lambda", "other steps", {"next_q_values": ones(ET + 1, EN, EA)}, ["next_q_values", "(6, 3, 4)"]),
    ("q_lambda", "no next values", {"next_q_values": None}, ["next_q_values"]),
    ("eligibility_traces", "flags of trailing axes", {"terminated": never(EN)}, ["terminated", "(3,)"]),
    ("eligibility_traces", "flags of a higher rank", {"terminated": never(ET, EN, 1)}, ["terminated"]),
    *(("episodic_cumsum", f"resets = {x!r}", {"resets": x}, ["resets"]) for x in ("at", None, True)),
    ("episodic_cumsum", "done of another size", {"done": never(ET + 1, EN)}, ["done", "(6, 3)"]),
    ("gae_packed", "rewards of rank 2", {"rewards": ones(6, 1), "values": ones(6, 1)}, ["rewards"]),
    ("gae_packed", "values of another size", {"values": ones(7)}, ["values", "(7,)"]),
    ("gae_packed", "offsets of rank 2", {"cu_seqlens": np.array([[0, 6]], np.int32)}, ["cu_seqlens"]),
    ("gae_packed", "offsets that are no integers", {"cu_seqlens": np.array([0, 2, 6], np.float32)}, ["cu_seqlens"]),
    ("gae_packed", "last values per token", {"last_values": ones(6)}, ["last_values", "(6,)"]),
    ("gae_packed", "no last values", {"last_values": GONE}, ["last_values"]),
    ("gae_packed", "mask of another size", {"mask": never(5)}, ["mask", "(5,)"]),
    ("gae_packed", "gamma of another size", {"gamma": ones(5)}, ["gamma", "(5,)"]),
    *((name, "misspelt", {"lam": 0.9}, ["lam"]) for name in GOOD),
]


def bad_call(name: str, change: Arrays) -> Arrays:
    return {key: x for key, x in (GOOD[name] | change).items() if x is not GONE}


@pytest.mark.parametrize("name", GOOD)
def test_errors_start_from_what_works(name: str) -> None:
    jax.eval_shape(lambda: offered(rl_triton_jax, name)(**to_jax(GOOD[name])))


@pytest.mark.parametrize(
    ("name", "change", "words"), [(b[0], *b[2:]) for b in BAD], ids=[f"{b[0]}: {b[1]}" for b in BAD]
)
def test_errors(name: str, change: Arrays, words: list[str]) -> None:
    fn = offered(rl_triton_jax, name)
    with pytest.raises((TypeError, ValueError)) as error:
        fn(**to_jax(bad_call(name, change)))
    assert_message(str(error.value), words)


@pytest.mark.parametrize("name", GOOD)
def test_errors_come_at_trace_time(name: str) -> None:
    fn = offered(rl_triton_jax, name)
    for _, _, change, words in [b for b in BAD if b[0] == name]:
        arguments = to_jax(bad_call(name, change))
        arrays = {key: x for key, x in arguments.items() if isinstance(x, jax.Array)}
        static = {key: x for key, x in arguments.items() if key not in arrays}
        with pytest.raises((TypeError, ValueError)) as error:
            jax.eval_shape(lambda a, static=static: fn(**a, **static), arrays)
        assert_message(str(error.value), words)

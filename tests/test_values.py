"""Numbers: computed by hand, against the float64 loops on odd sizes, and the accuracy that is promised."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np
import oracle
import pytest
from conftest import gpu_present, to_jax

Call = Callable[..., Any]
SIZES = [(1,), (17,), (1, 1), (2, 3), (3, 2), (5, 17), (17, 5), (63, 1), (1, 63), (100, 3), (129, 2), (2, 129)]
EMPTY = [(0,), (0, 3), (3, 0), (0, 0), (2, 0, 3)]

# Four steps, worked out by hand; V of the true final observation is 1.2 where a flag asks for it.
REWARDS = np.array([1, 2, 3, 4], np.float32)
VALUES = np.array([0.5, 1, 1.5, 2], np.float32)
FINAL = np.full(4, 1.2, np.float32)


def at(*steps: int) -> np.ndarray:
    return np.isin(np.arange(4), steps)


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        ({}, [10.62814, 9.716258, 7.68874, 4.475]),
        ({"terminated": at(1)}, [2.4305, 1, 7.68874, 4.475]),
        ({"truncated": at(1), "final_values": FINAL}, [3.547814, 2.188, 7.68874, 4.475]),
        (
            {"terminated": at(1), "truncated": at(1), "final_values": np.full(4, np.nan, np.float32)},
            [2.4305, 1, 7.68874, 4.475],
        ),
        ({"truncated": at(3), "final_values": FINAL}, [9.557472, 8.577854, 6.478314, 3.188]),
        ({"terminated": at(3)}, [8.56916278, 7.5270205, 5.361, 2.0]),
    ],
    ids=[
        "no flags",
        "terminated",
        "truncated",
        "both: terminated wins",
        "truncated last step ignores last_values",
        "terminated last step ignores last_values",
    ],
)
def test_four_steps_by_hand(gae: Call, flags: dict[str, Any], expected: list[float]) -> None:
    result = gae(REWARDS, VALUES, **flags, last_values=2.5)
    np.testing.assert_allclose(result.advantages, expected, rtol=2e-6)
    np.testing.assert_allclose(result.returns, expected + VALUES, rtol=2e-6)


@pytest.mark.parametrize(("flag", "expected"), [("truncated", -0.1), ("terminated", -1.0)])
def test_truncation_keeps_the_next_value_and_termination_drops_it(gae: Call, flag: str, expected: float) -> None:
    ones = np.ones(5, np.float32)
    flags = {flag: np.arange(5) == 2} | ({"final_values": ones} if flag == "truncated" else {})
    result = gae(np.zeros(5, np.float32), ones, **flags, last_values=1.0, gamma=0.9, lambda_=1.0)
    np.testing.assert_allclose(result.advantages[2], expected, rtol=1e-6)


def test_the_bootstrap_enters_once(gae: Call) -> None:
    # gamma = lambda = 1, no rewards, no values: only V(s_T) is left, and every step sees it exactly once.
    zeros = np.zeros((6, 1), np.float32)
    assert gae(zeros, zeros, last_values=3.0, gamma=1.0, lambda_=1.0).advantages.tolist() == [[3.0]] * 6


def test_the_defaults_are_point_99_and_point_95(gae: Call) -> None:
    result = gae(np.array([0.0, 1.0], np.float32), np.zeros(2, np.float32), last_values=1.0)
    np.testing.assert_allclose(result.advantages, [0.99 * 0.95 * 1.99, 1.99], rtol=1e-6)


@pytest.mark.parametrize("flags", oracle.FLAGS)
@pytest.mark.parametrize("source", oracle.SOURCES)
def test_every_source_of_the_next_value(gae: Call, source: str, flags: str) -> None:
    for seed, shape in enumerate([(17, 5), (3,)]):
        problem = oracle.gae_problem(seed, shape, source=source, flags=flags)
        advantages, returns = oracle.gae(**problem)
        result = gae(**problem)
        oracle.assert_close(result.advantages, advantages, dtype="float32")
        oracle.assert_close(result.returns, returns, dtype="float32")


@pytest.mark.parametrize("shape", SIZES, ids=str)
def test_odd_sizes(gae: Call, shape: tuple[int, ...]) -> None:
    problem = oracle.gae_problem(sum(shape), shape)
    advantages, returns = oracle.gae(**problem)
    result = gae(**problem)
    oracle.assert_close(result.advantages, advantages)
    oracle.assert_close(result.returns, returns)


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("shape", SIZES, ids=str)
def test_odd_sizes_linear_recurrence(linear_recurrence: Call, shape: tuple[int, ...], reverse: bool) -> None:
    problem = oracle.recurrence_problem(sum(shape), shape)
    oracle.assert_close(
        linear_recurrence(**problem, reverse=reverse),
        oracle.linear_recurrence(**problem, reverse=reverse),
        dtype="float32",
    )


@pytest.mark.parametrize("shape", EMPTY, ids=str)
def test_empty(gae: Call, linear_recurrence: Call, shape: tuple[int, ...]) -> None:
    problem = oracle.gae_problem(0, shape)
    result = gae(**problem)
    assert result.advantages.shape == result.returns.shape == shape
    assert result.advantages.dtype == result.returns.dtype == jnp.float32
    assert gae(**problem, normalize=True).advantages.shape == shape
    assert gae(**oracle.gae_problem(0, shape, source="longer_values")).advantages.shape == shape
    assert linear_recurrence(**oracle.recurrence_problem(0, shape)).shape == shape


@pytest.mark.parametrize("form", ["int", "0-d", "numpy scalar", "[1,1]", "[T,1]", "[1,N]", "[T,N]"])
def test_every_form_of_gamma_and_lambda(gae: Call, form: str) -> None:
    steps, envs = 17, 5
    problem = oracle.gae_problem(1, (steps, envs))
    shapes = {"[1,1]": (1, 1), "[T,1]": (steps, 1), "[1,N]": (1, envs), "[T,N]": (steps, envs)}
    rng = np.random.default_rng(2)
    if form == "int":
        gamma, lambda_ = 1, 0
    elif form == "0-d":
        gamma, lambda_ = np.array(0.9, np.float32), np.array(0.8, np.float32)
    elif form == "numpy scalar":
        gamma, lambda_ = np.float32(0.9), np.float32(0.8)
    else:
        gamma, lambda_ = rng.random(shapes[form]).astype(np.float32), rng.random(shapes[form]).astype(np.float32)
    for decays in ({"gamma": gamma}, {"lambda_": lambda_}, {"gamma": gamma, "lambda_": lambda_}):
        advantages, returns = oracle.gae(**problem, **decays)
        result = gae(**problem, **decays)
        oracle.assert_close(result.advantages, advantages)
        oracle.assert_close(result.returns, returns)


def test_per_step_gamma_belongs_to_its_transition(gae: Call) -> None:
    # A zero in rlax's discount_t = gamma (1 - done) is a termination as far as finite numbers go.
    problem = oracle.gae_problem(3, (17, 5), flags="terminated")
    terminated = problem.pop("terminated")
    discount = np.where(terminated, 0.0, 0.99).astype(np.float32)
    oracle.assert_close(gae(**problem, gamma=discount).advantages, oracle.gae(**problem, terminated=terminated)[0])


def test_gamma_zero_is_the_reward_and_lambda_zero_the_error(gae: Call) -> None:
    problem = oracle.gae_problem(4, (5, 3), flags="neither")
    rewards, values = problem["rewards"], problem["values"]
    np.testing.assert_array_equal(gae(**problem, gamma=0.0).advantages, rewards - values)
    following = np.concatenate([values[1:], problem["last_values"][None]])
    np.testing.assert_allclose(
        gae(**problem, gamma=0.5, lambda_=0.0).advantages, rewards + 0.5 * following - values, atol=1e-6
    )


def test_without_returns(gae: Call) -> None:
    problem = oracle.gae_problem(5, (17, 5))
    result = gae(**problem, with_returns=False)
    assert result.returns is None
    np.testing.assert_array_equal(result.advantages, gae(**problem).advantages)


def test_result_is_a_named_tuple_in_order(gae: Call) -> None:
    advantages, returns = result = gae(**oracle.gae_problem(5, (17, 5)))
    assert result._fields == ("advantages", "returns")
    assert advantages is result.advantages
    assert returns is result.returns


@pytest.mark.parametrize("axis", [0, 1])
def test_normalize(gae: Call, axis: int) -> None:
    problem = oracle.gae_problem(6, (17, 5), axis)
    advantages, returns = oracle.gae(**problem, normalize=True)
    result = gae(**problem, normalize=True)
    oracle.assert_close(result.advantages, advantages)
    oracle.assert_close(result.returns, returns)  # of the raw advantages
    normalized = oracle.to_numpy(result.advantages)
    np.testing.assert_allclose([normalized.mean(), normalized.std()], [0, 1], atol=1e-6)


def test_normalize_of_one_entry_or_a_constant_is_zero(gae: Call) -> None:
    for shape, constant in [((1,), 3.0), ((1, 1), -2.0), ((5, 3), 0.1), ((5, 3), 1e6), ((5, 3), 0.0)]:
        zeros = np.zeros(shape, np.float32)
        result = gae(zeros + np.float32(constant), zeros, last_values=0.0, gamma=0.0, normalize=True)
        assert not np.asarray(result.advantages).any(), (shape, constant)
        np.testing.assert_array_equal(result.returns, zeros + np.float32(constant))


@pytest.mark.parametrize("shape", [(64, 32), (1, 4097)], ids=str)
def test_normalize_does_not_cancel(gae: Call, shape: tuple[int, ...]) -> None:
    # Mean 1000 and deviation 0.01: a float32 sum of squares would lose every digit of the deviation.
    rewards = (1000 + 0.01 * np.random.default_rng(7).standard_normal(shape)).astype(np.float32)
    zeros = np.zeros(shape, np.float32)
    result = gae(rewards, zeros, last_values=0.0, gamma=0.0, normalize=True)
    expected, _ = oracle.gae(rewards, zeros, last_values=0.0, gamma=0.0, normalize=True)
    oracle.assert_close(result.advantages, expected, 1e-4)


def test_normalize_of_tiny_advantages_has_the_epsilon_on_the_deviation(gae: Call) -> None:
    rewards = np.array([[1e-8], [-1e-8]], np.float32)
    zeros = np.zeros((2, 1), np.float32)
    result = gae(rewards, zeros, last_values=0.0, gamma=0.0, normalize=True)
    np.testing.assert_allclose(result.advantages, [[0.5], [-0.5]], rtol=1e-4)


def test_reset_starts_anew_whatever_the_neighbour_holds(linear_recurrence: Call) -> None:
    a = np.array([[2.0], [np.nan], [np.inf], [3.0]], np.float32)
    b = np.array([[1.0], [10.0], [100.0], [1000.0]], np.float32)
    reset = np.array([[False], [True], [True], [False]])
    forward = linear_recurrence(a, b, initial=5.0, reset=reset)
    assert forward.tolist() == [[11.0], [10.0], [100.0], [1300.0]]
    backward = linear_recurrence(a, b, initial=5.0, reset=reset, reverse=True)
    assert backward.tolist() == [[21.0], [10.0], [100.0], [1015.0]]


def test_reset_on_the_first_step_ignores_initial(linear_recurrence: Call) -> None:
    b = np.ones((3, 2), np.float32)
    for reverse, first in [(False, 0), (True, 2)]:
        reset = np.zeros((3, 2), bool)
        reset[first] = True
        y = linear_recurrence(b, b, initial=np.full(2, np.nan, np.float32), reset=reset, reverse=reverse)
        assert sorted(y[:, 0].tolist()) == [1.0, 2.0, 3.0]


def test_initial_defaults_to_zero_and_may_be_a_number(linear_recurrence: Call) -> None:
    problem = oracle.recurrence_problem(8, (17, 5))
    del problem["initial"], problem["reset"]
    for extra in ({}, {"initial": 2.5}, {"initial": 2}, {"initial": np.array(2.5, np.float32)}):
        oracle.assert_close(linear_recurrence(**problem, **extra), oracle.linear_recurrence(**problem, **extra))


@pytest.mark.parametrize("reverse", [False, True])
def test_coefficients_of_any_sign_and_size(linear_recurrence: Call, reverse: bool) -> None:
    problem = oracle.recurrence_problem(9, (63, 3), spread=1.5)
    problem["a"][::7] = 0
    problem["a"][1::9] = -0.0
    oracle.assert_close(
        linear_recurrence(**problem, reverse=reverse), oracle.linear_recurrence(**problem, reverse=reverse)
    )


def test_inputs_are_not_written(gae: Call, linear_recurrence: Call) -> None:
    for call, problem in [
        (gae, oracle.gae_problem(10, (17, 5))),
        (linear_recurrence, oracle.recurrence_problem(10, (17, 5))),
    ]:
        arrays = to_jax(problem)
        before = {key: oracle.bits(x).copy() for key, x in arrays.items()}
        call(**arrays)
        for key, x in arrays.items():
            np.testing.assert_array_equal(oracle.bits(x), before[key], err_msg=key)


def test_the_same_bits_from_run_to_run(gae: Call, linear_recurrence: Call) -> None:
    problem = to_jax(oracle.gae_problem(11, (129, 2)))
    first, second = gae(**problem, normalize=True), gae(**problem, normalize=True)
    np.testing.assert_array_equal(oracle.bits(first.advantages), oracle.bits(second.advantages))
    np.testing.assert_array_equal(oracle.bits(first.returns), oracle.bits(second.returns))
    recurrence = to_jax(oracle.recurrence_problem(11, (129, 2)))
    np.testing.assert_array_equal(
        oracle.bits(linear_recurrence(**recurrence)), oracle.bits(linear_recurrence(**recurrence))
    )


LONG = 65536
KINDS = {
    "noise": lambda rng, n: rng.standard_normal(n),
    "constant": lambda rng, n: np.full(n, 0.1),
    "positive": lambda rng, n: rng.random(n),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "steps",
    [
        LONG,
        pytest.param(10_000_000, marks=pytest.mark.skipif(not gpu_present(), reason="ten million steps are for a GPU")),
    ],
)
def test_accuracy_without_any_decay(gae: Call, kind: str, steps: int) -> None:
    # gamma = lambda = 1: A_t = r_t + ... + r_{T-1} + V(s_T) - V_t, from a float64 sum.
    rng = np.random.default_rng(12)
    rewards = KINDS[kind](rng, (steps, 2)).astype(np.float32)
    values = (rng.standard_normal((steps, 2)) * (kind != "constant")).astype(np.float32)
    last = rng.standard_normal(2).astype(np.float32)
    returns = np.cumsum(rewards[::-1].astype(np.float64), axis=0)[::-1] + last
    result = gae(rewards, values, last_values=last, gamma=1.0, lambda_=1.0)
    rtol = 1e-5 if steps <= LONG else 1e-4
    oracle.assert_close(result.advantages, returns - values, rtol)
    oracle.assert_close(result.returns, returns, rtol)


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_accuracy_of_a_long_sum(linear_recurrence: Call, kind: str, reverse: bool) -> None:
    b = KINDS[kind](np.random.default_rng(13), (LONG, 2)).astype(np.float32)
    expected = (
        np.cumsum(b[::-1].astype(np.float64), axis=0)[::-1] if reverse else np.cumsum(b.astype(np.float64), axis=0)
    )
    oracle.assert_close(linear_recurrence(np.ones_like(b), b, reverse=reverse), expected, 1e-5)


def test_accuracy_of_a_long_buffer_of_episodes(gae: Call) -> None:
    problem = oracle.gae_problem(14, (LONG, 1), rate=0.002)
    advantages, returns = oracle.gae(**problem)
    result = gae(**problem)
    oracle.assert_close(result.advantages, advantages, 1e-5)
    oracle.assert_close(result.returns, returns, 1e-5)

"""A mask cuts rows out: the result at real steps is that of the shorter sequence, and 0 elsewhere."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np
import oracle
import pytest

Call = Callable[..., Any]


def with_mask(seed: int, shape: tuple[int, ...], axis: int = 0, rate: float = 0.3, **kwargs: Any) -> dict[str, Any]:
    problem = oracle.gae_problem(seed, shape, axis, **kwargs)
    return problem | {"mask": np.random.default_rng(seed + 100).random(shape) > rate}


@pytest.mark.parametrize("flags", oracle.FLAGS)
@pytest.mark.parametrize("source", oracle.SOURCES)
def test_masked_is_compressed(gae: Call, source: str, flags: str) -> None:
    problem = with_mask(0, (17, 5), source=source, flags=flags)
    advantages, returns = oracle.gae(**problem)
    result = gae(**problem)
    oracle.assert_close(result.advantages, advantages)
    oracle.assert_close(result.returns, returns)
    masked = ~problem["mask"]
    assert not np.asarray(result.advantages)[masked].any()
    assert not np.asarray(result.returns)[masked].any()


@pytest.mark.parametrize("source", oracle.SOURCES)
def test_masked_equals_the_call_on_the_shorter_sequence(gae: Call, source: str) -> None:
    mask = np.array([0, 1, 1, 0, 0, 1, 0, 1, 1, 1, 0, 0], bool)
    problem = oracle.gae_problem(1, (12, 3), source=source)
    whole = gae(**problem, mask=mask[:, None])
    kept = {12: mask, 13: np.append(mask, True)}
    short = gae(**{key: x[kept[len(x)]] if x.ndim == 2 else x for key, x in problem.items()})
    oracle.assert_close(whole.advantages[mask], short.advantages, 1e-6)
    oracle.assert_close(whole.returns[mask], short.returns, 1e-6)
    assert not np.asarray(whole.advantages)[~mask].any()
    assert not np.asarray(whole.returns)[~mask].any()


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_along_any_axis(gae: Call, axis: int) -> None:
    problem = with_mask(2, (5, 4, 3), axis)
    oracle.assert_close(gae(**problem).advantages, oracle.gae(**problem)[0])


def test_padding_at_either_end(gae: Call) -> None:
    problem = oracle.gae_problem(3, (17, 4), flags="terminated")
    steps = np.arange(17)[:, None]
    problem["mask"] = (steps >= np.array([0, 3, 0, 16])) & (steps < np.array([17, 17, 9, 17]))
    oracle.assert_close(gae(**problem).advantages, oracle.gae(**problem)[0])
    # The last real row of environment 2 is row 8, and V(s_T) is what follows it.
    expected = problem["rewards"][8, 2] + 0.99 * problem["last_values"][2] - problem["values"][8, 2]
    if not problem["terminated"][8, 2]:
        np.testing.assert_allclose(gae(**problem).advantages[8, 2], expected, atol=1e-6)


def test_neither_carry_nor_discount_crosses_a_masked_row_twice(gae: Call) -> None:
    result = gae(
        np.array([0.0, 9.0, 1.0], np.float32),
        np.zeros(3, np.float32),
        mask=np.array([True, False, True]),
        last_values=0.0,
        gamma=0.5,
        lambda_=1.0,
    )
    assert result.advantages.tolist() == [0.5, 0.0, 1.0]


def test_flags_in_masked_rows_are_invisible(gae: Call) -> None:
    problem = with_mask(4, (17, 5))
    problem["final_values"] = np.nan_to_num(problem["final_values"], nan=50.0)
    flipped = problem | {
        key: np.where(problem["mask"], problem[key], ~problem[key]) for key in ("terminated", "truncated")
    }
    np.testing.assert_array_equal(gae(**flipped).advantages, gae(**problem).advantages)
    np.testing.assert_array_equal(gae(**flipped).returns, gae(**problem).returns)


@pytest.mark.parametrize("normalize", [False, True])
@pytest.mark.parametrize("source", oracle.SOURCES)
def test_false_everywhere_gives_zeros(gae: Call, source: str, normalize: bool) -> None:
    problem = oracle.gae_problem(5, (17, 5), source=source)
    problem["rewards"][:] = np.nan
    result = gae(**problem, mask=np.zeros((17, 5), bool), normalize=normalize)
    assert not np.asarray(result.advantages).any()
    assert not np.asarray(result.returns).any()
    one_column = np.ones((17, 5), bool)
    one_column[:, 3] = False
    problem["rewards"] = oracle.gae_problem(5, (17, 5))["rewards"]
    oracle.assert_close(
        gae(**problem, mask=one_column, normalize=normalize).advantages,
        oracle.gae(**problem, mask=one_column, normalize=normalize)[0],
    )


def test_true_everywhere_changes_nothing(gae: Call) -> None:
    problem = oracle.gae_problem(6, (17, 5))
    for mask in (np.ones((17, 5), bool), np.ones((1, 1), bool)):
        oracle.assert_close(gae(**problem, mask=mask).advantages, gae(**problem).advantages, 1e-6)


def test_broadcast_mask(gae: Call) -> None:
    problem = oracle.gae_problem(7, (17, 5))
    rng = np.random.default_rng(7)
    for shape in ((17, 1), (1, 5)):
        mask = rng.random(shape) > 0.3
        oracle.assert_close(gae(**problem, mask=mask).advantages, oracle.gae(**problem, mask=mask)[0])


def test_normalization_excludes_masked_entries(gae: Call) -> None:
    problem = with_mask(8, (17, 5))
    problem["rewards"][~problem["mask"]] = 1e9
    result = gae(**problem, normalize=True)
    expected, returns = oracle.gae(**problem, normalize=True)
    oracle.assert_close(result.advantages, expected)
    oracle.assert_close(result.returns, returns)
    assert not np.asarray(result.advantages)[~problem["mask"]].any()


def test_normalization_of_a_single_real_entry_is_zero(gae: Call) -> None:
    problem = oracle.gae_problem(9, (17, 5))
    mask = np.zeros((17, 5), bool)
    mask[7, 2] = True
    result = gae(**problem, mask=mask, normalize=True)
    assert not np.asarray(result.advantages).any()
    assert np.count_nonzero(result.returns) == 1


def test_normalization_does_not_cancel_beside_masked_entries(gae: Call) -> None:
    rng = np.random.default_rng(10)
    mask = rng.random((64, 32)) > 0.5
    rewards = np.where(mask, 1000 + 0.01 * rng.standard_normal((64, 32)), -5e8).astype(np.float32)
    zeros = np.zeros((64, 32), np.float32)
    call = {"last_values": 0.0, "gamma": 0.0, "mask": mask, "normalize": True}
    oracle.assert_close(gae(rewards, zeros, **call).advantages, oracle.gae(rewards, zeros, **call)[0], 1e-4)


def test_16_bit_data(gae: Call) -> None:
    problem = with_mask(11, (17, 5))
    low = {key: jnp.asarray(x).astype(jnp.bfloat16) if x.dtype == np.float32 else x for key, x in problem.items()}
    expected, _ = oracle.gae(**{key: oracle.to_numpy(x) for key, x in low.items()})
    oracle.assert_close(gae(**low).advantages, expected, 2.0**-8 * 1.01, dtype="bfloat16")

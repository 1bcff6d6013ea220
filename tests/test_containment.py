"""Whatever one episode, environment or dead place holds, no number elsewhere changes: bit for bit."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import oracle
import pytest

Call = Callable[..., Any]
POISONS = [np.nan, np.inf, -np.inf, 3e38]
STEPS, ENVS = 17, 5


def poison(x: Any, where: Any, value: float) -> np.ndarray:
    x = x.copy()
    x[where] = value
    return x


def assert_same_outside(result: Any, clean: Any, touched: np.ndarray) -> None:
    for got, expected in zip(result, clean, strict=True):
        np.testing.assert_array_equal(oracle.bits(got)[~touched], oracle.bits(expected)[~touched])


@pytest.mark.parametrize("source", oracle.SOURCES)
@pytest.mark.parametrize("value", POISONS, ids=str)
def test_an_environment(gae: Call, source: str, value: float) -> None:
    problem = oracle.gae_problem(0, (STEPS, ENVS), source=source)
    clean = gae(**problem)
    touched = np.zeros((STEPS, ENVS), bool)
    touched[:, 2] = True
    dirty = {key: poison(x, np.s_[..., 2], value) if x.dtype == np.float32 else x for key, x in problem.items()}
    dirty |= {
        key: np.where(touched, np.float32(value), np.float32(decay))
        for key, decay in (("gamma", 0.99), ("lambda_", 0.95))
    }
    assert_same_outside(gae(**dirty), clean, touched)


@pytest.mark.parametrize("flag", ["terminated", "truncated", "both"])
@pytest.mark.parametrize("source", oracle.SOURCES)
def test_an_episode(gae: Call, source: str, flag: str) -> None:
    # Episodes are rows 0..4, 5..11 and 12..16; everything the middle one owns turns to garbage.
    episode = np.zeros((STEPS, ENVS), bool)
    episode[5:12] = True
    flags = np.zeros((STEPS, ENVS), bool)
    flags[[4, 11]] = True
    problem = oracle.gae_problem(1, (STEPS, ENVS), source=source, flags="neither")
    if flag in ("terminated", "both"):
        problem["terminated"] = flags
    if flag in ("truncated", "both"):
        problem["truncated"] = flags
    if "truncated" in problem and source != "next_values":
        problem["final_values"] = np.where(flags, np.float32(0.7), np.float32(np.nan))
    decays = {"gamma": np.full((STEPS, ENVS), 0.99, np.float32), "lambda_": np.full((STEPS, ENVS), 0.95, np.float32)}
    clean = gae(**problem | decays)
    for value in POISONS:
        dirty = {}
        for key, x in (problem | decays).items():
            owns = np.concatenate([episode, np.zeros((1, ENVS), bool)]) if len(x) == STEPS + 1 else episode
            dirty[key] = poison(x, owns, value) if x.dtype == np.float32 and x.shape == owns.shape else x
        assert_same_outside(gae(**dirty), clean, episode)


@pytest.mark.parametrize("flag", ["terminated", "truncated"])
def test_the_state_after_the_buffer_when_the_last_step_is_flagged(gae: Call, flag: str) -> None:
    flags: dict[str, Any] = {flag: np.arange(STEPS)[:, None] == STEPS - 1}
    if flag == "truncated":
        flags["final_values"] = np.ones((STEPS, ENVS), np.float32)
    problem = oracle.gae_problem(2, (STEPS, ENVS), flags="neither") | flags
    clean = gae(**problem)
    none = np.zeros((STEPS, ENVS), bool)
    for value in POISONS:
        assert_same_outside(gae(**problem | {"last_values": np.full(ENVS, value, np.float32)}), clean, none)
        longer = np.concatenate([problem["values"], np.full((1, ENVS), value, np.float32)])
        assert_same_outside(
            gae(**{key: x for key, x in problem.items() if key != "last_values"} | {"values": longer}), clean, none
        )


@pytest.mark.parametrize("value", POISONS, ids=str)
def test_values_that_are_never_read(gae: Call, value: float) -> None:
    none = np.zeros((STEPS, ENVS), bool)
    problem = oracle.gae_problem(3, (STEPS, ENVS))
    dead = problem["terminated"] | ~problem["truncated"]
    clean = gae(**problem | {"final_values": poison(problem["final_values"], dead, 0.0)})
    assert_same_outside(gae(**problem | {"final_values": poison(problem["final_values"], dead, value)}), clean, none)
    following = oracle.gae_problem(3, (STEPS, ENVS), source="next_values")
    dead = following["terminated"]
    clean = gae(**following | {"next_values": poison(following["next_values"], dead, 0.0)})
    assert_same_outside(gae(**following | {"next_values": poison(following["next_values"], dead, value)}), clean, none)


def test_later_steps_of_the_same_episode_do_not_see_earlier_ones(gae: Call) -> None:
    # The recurrence runs backward: a NaN reward at t = 8 reaches 0..8 and nothing after.
    problem = oracle.gae_problem(4, (STEPS, ENVS), flags="neither")
    clean = gae(**problem)
    touched = np.zeros((STEPS, ENVS), bool)
    touched[:9, 1] = True
    result = gae(**problem | {"rewards": poison(problem["rewards"], np.s_[8, 1], np.nan)})
    assert_same_outside(result, clean, touched)
    assert np.isnan(np.asarray(result.advantages)[touched]).all()


@pytest.mark.parametrize("value", POISONS, ids=str)
def test_masked_rows(gae: Call, value: float) -> None:
    mask = np.ones((STEPS, ENVS), bool)
    mask[[0, 3, 7, 8, 15, 16], :3] = False
    none = np.zeros((STEPS, ENVS), bool)
    for source in oracle.SOURCES:
        problem = oracle.gae_problem(5, (STEPS, ENVS), source=source) | {"mask": mask}
        problem |= {key: np.full((STEPS, ENVS), 0.9, np.float32) for key in ("gamma", "lambda_")}
        clean = gae(**problem)
        dirty = dict(problem)
        for key, x in problem.items():
            masked = np.concatenate([~mask, none[:1]]) if len(x) == STEPS + 1 else ~mask
            if x.dtype == np.float32 and x.shape == masked.shape:
                dirty[key] = poison(x, masked, value)
        for flag in ("terminated", "truncated"):
            dirty[flag] = problem[flag] | ~mask
        result = gae(**dirty)
        assert_same_outside(result, clean, none)
        assert np.isfinite(np.asarray(result.advantages)).all()
        normalized = gae(**dirty, normalize=True).advantages
        np.testing.assert_array_equal(oracle.bits(normalized), oracle.bits(gae(**problem, normalize=True).advantages))


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("value", POISONS, ids=str)
def test_linear_recurrence(linear_recurrence: Call, reverse: bool, value: float) -> None:
    problem = oracle.recurrence_problem(6, (STEPS, ENVS), rate=0.0) | {"reverse": reverse}
    reset = np.zeros((STEPS, ENVS), bool)
    reset[[4, 12] if reverse else [5, 13]] = True
    problem["reset"] = reset
    clean = linear_recurrence(**problem)
    segment = np.zeros((STEPS, ENVS), bool)
    segment[5:13] = True
    dirty = problem | {key: poison(problem[key], segment, value) for key in ("a", "b")}
    assert_same_outside([linear_recurrence(**dirty)], [clean], segment)
    # The coefficient of a reset step is dead, on either side of the boundary.
    dirty = problem | {"a": poison(problem["a"], reset, value)}
    assert_same_outside([linear_recurrence(**dirty)], [clean], np.zeros_like(reset))
    column = np.zeros((STEPS, ENVS), bool)
    column[:, 3] = True
    dirty = problem | {key: poison(problem[key], np.s_[..., 3], value) for key in ("a", "b", "initial")}
    assert_same_outside([linear_recurrence(**dirty)], [clean], column)

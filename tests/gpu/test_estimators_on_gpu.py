"""Every estimator's compiled kernels against float64 loops, at sizes that reach every schedule."""

from __future__ import annotations

import importlib.util
from typing import Any

import fast_oracle
import jax
import numpy as np
import oracle
import pytest
from cases import Case, cases
from conftest import to_jax
from rl_triton_jax.kernels import plan as planning

import rl_triton_jax
from benchmarks.shapes import Shape
from rl_triton_jax.estimators.n_step_returns import n_step_estimator
from rl_triton_jax.jax_front import JAX

pytestmark = pytest.mark.gpu

SHAPES = (
    *(Shape("time_major", T, N) for T, N in ((20, 250), (127, 1000), (1025, 33), (5000, 40), (64, 13000))),
    *(Shape("batch_major", T, N) for N, T in ((300, 20), (33, 1025), (4, 20001))),
)
LABELS = [case.label for case in cases((2, 2), 0)]


def case_of(label: str, shape: Shape) -> Case:
    rate = 0.2 if shape.T < 100 else 0.02
    return next(c for c in cases(shape.dims, shape.axis, 11, rate) if c.label == label)


def check(got: Any, case: Case, axis: int) -> None:
    got = got if isinstance(got, tuple) else (got,)
    for actual, expected in zip(got, getattr(fast_oracle, case.name)(**case.arguments, axis=axis), strict=False):
        if expected.dtype.kind == "i":
            assert np.array_equal(oracle.to_numpy(actual, np.int64), expected)
        else:
            oracle.assert_close(actual, expected)


@pytest.mark.parametrize("shape", SHAPES, ids=lambda s: s.name + ("b" if s.axis else ""))
@pytest.mark.parametrize("label", LABELS)
def test_jax(gpu_route: str, label: str, shape: Shape) -> None:
    if gpu_route == "jax-triton" and shape not in SHAPES[1:6:4]:
        pytest.skip("the same kernels; one shape of each layout is enough for this route")
    case = case_of(label, shape)
    function = getattr(rl_triton_jax, case.name)
    check(function(**to_jax(case.arguments), axis=shape.axis, implementation="triton"), case, shape.axis)


@pytest.mark.parametrize("shape", SHAPES[1:6:4], ids=lambda s: s.name + ("b" if s.axis else ""))
@pytest.mark.parametrize("label", LABELS)
def test_torch(label: str, shape: Shape) -> None:
    if importlib.util.find_spec("torch") is None:
        pytest.skip("no torch")
    import torch

    import rl_triton_jax.torch

    case = case_of(label, shape)
    arguments = {
        name: torch.as_tensor(x).cuda() if isinstance(x, (np.ndarray, np.generic)) else x
        for name, x in case.arguments.items()
    }
    function = getattr(rl_triton_jax.torch, case.name)
    check(function(**arguments, axis=shape.axis, implementation="triton"), case, shape.axis)


@pytest.mark.parametrize("actions", [2, 18, 1024])
def test_actions(actions: int) -> None:
    rng = np.random.default_rng(12)
    shape = (40, 70)
    rewards, q, log_rhos = (rng.standard_normal(shape).astype(np.float32) for _ in range(3))
    next_q, probs = (rng.random((*shape, actions)).astype(np.float32) for _ in range(2))
    probs /= probs.sum(-1, keepdims=True)
    arguments = {"next_q_values": next_q, "next_target_probs": probs, "log_rhos": log_rhos}
    got = rl_triton_jax.retrace(*to_jax((rewards, q)), **to_jax(arguments), implementation="triton")
    for actual, expected in zip(got, fast_oracle.retrace(rewards, q, **arguments), strict=True):
        oracle.assert_close(actual, expected)


def test_packed() -> None:
    """One sequence 64 times as long as the others."""
    rng = np.random.default_rng(13)
    lengths = [200] * 50 + [12800] + [200] * 50
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    rewards, values = (rng.standard_normal(int(offsets[-1])).astype(np.float32) for _ in range(2))
    last = rng.standard_normal(len(lengths)).astype(np.float32)
    got = rl_triton_jax.gae_packed(
        *to_jax((rewards, values, offsets)), last_values=to_jax(last), implementation="triton"
    )
    assert isinstance(got, rl_triton_jax.GAE)
    for s in (0, 50, 100):
        rows = slice(int(offsets[s]), int(offsets[s + 1]))
        alone = fast_oracle.gae(rewards[rows], values=values[rows], last_values=last[s])
        for actual, expected in zip(got, alone, strict=True):
            oracle.assert_close(actual[rows], expected)


@pytest.mark.parametrize("shape", SHAPES, ids=lambda s: s.name + ("b" if s.axis else ""))
@pytest.mark.parametrize("n", [1, 2, 5, 13, 64])
@pytest.mark.parametrize("longest", [0, 32])
def test_windows(gpu_route: str, longest: int, n: int, shape: Shape, monkeypatch: pytest.MonkeyPatch) -> None:
    """n-step returns in one kernel, whether or not `n_step_returns` takes it, by either schedule where time is contiguous."""
    monkeypatch.setattr(planning, "LONGEST_ROW_WINDOW", longest)
    jax.clear_caches()
    case = case_of("n_step_returns, 3 steps", shape)
    arguments = {**case.arguments, "n": n}
    operands = {name: x for name, x in to_jax(arguments).items() if name != "n"}
    estimator = n_step_estimator(n, longest_window=256)
    got = JAX.call(estimator, {**operands, "gamma": 0.99}, axis=shape.axis, implementation="triton")
    (expected,) = fast_oracle.n_step_returns(**arguments, axis=shape.axis)
    oracle.assert_close(got[0], expected)

"""Every estimator in both front ends against float64 loops (`fast_oracle`), by every way to call it and in every layout."""

from __future__ import annotations

import importlib.util
import itertools
from typing import Any

import fast_oracle
import jax
import numpy as np
import oracle
import pytest
from cases import Case, cases
from conftest import to_jax

import rl_triton_jax

LAYOUTS = {"time-major": ((9, 4), 0), "batch-major": ((3, 17), 1), "middle": ((2, 6, 3), 1), "one row": ((13,), 0)}
LABELS = [case.label for case in cases((2, 2), 0)]


def case_of(label: str, layout: str, seed: int = 1) -> tuple[Case, int]:
    shape, axis = LAYOUTS[layout]
    return next(c for c in cases(shape, axis, seed) if c.label == label), axis


def results(x: Any) -> tuple[Any, ...]:
    return tuple(x) if isinstance(x, tuple) else (x,)


def check(got: Any, case: Case, axis: int) -> None:
    for actual, expected in zip(
        results(got), getattr(fast_oracle, case.name)(**case.arguments, axis=axis), strict=False
    ):
        if expected.dtype.kind == "i":
            assert np.array_equal(oracle.to_numpy(actual, np.int64), expected)
        else:
            oracle.assert_close(actual, expected)


@pytest.mark.parametrize("layout", list(LAYOUTS))
@pytest.mark.parametrize("label", LABELS)
def test_jax(label: str, layout: str, implementation: str) -> None:
    case, axis = case_of(label, layout)
    arguments = to_jax(case.arguments)
    check(getattr(rl_triton_jax, case.name)(**arguments, axis=axis, implementation=implementation), case, axis)


@pytest.mark.parametrize("layout", list(LAYOUTS))
@pytest.mark.parametrize("label", LABELS)
def test_torch(label: str, layout: str) -> None:
    if importlib.util.find_spec("torch") is None:
        pytest.skip("no torch")
    import torch

    import rl_triton_jax.torch

    device = "cuda" if torch.cuda.is_available() else "cpu"
    case, axis = case_of(label, layout)

    def move(x: Any) -> Any:
        return torch.as_tensor(x).to(device) if isinstance(x, (np.ndarray, np.generic)) else x

    arguments = {name: move(x) for name, x in case.arguments.items()}
    check(getattr(rl_triton_jax.torch, case.name)(**arguments, axis=axis), case, axis)


@pytest.mark.parametrize("label", [label for label in LABELS if "integers" not in label])
def test_gradients_are_finite_and_right(label: str) -> None:
    """Reverse mode against finite differences along one direction, in float64; NaN in dead places stays there."""
    case, axis = case_of(label, "time-major", seed=3)
    if case.name != "episodic_cumsum":
        case.arguments.setdefault("gamma", np.full((), 0.9, np.float32))
    floats = {n for n, x in case.arguments.items() if isinstance(x, np.ndarray) and x.dtype == np.float32}
    rng = np.random.default_rng(4)
    with jax.enable_x64(True):
        point = {n: np.asarray(case.arguments[n], np.float64) for n in floats}
        if case.name == "upgo":  # its branches are no place for differences
            point["rewards"] = point["rewards"] * 100
        rest = {n: x for n, x in case.arguments.items() if n not in floats}
        directions = {n: np.nan_to_num(rng.standard_normal(x.shape)) for n, x in point.items()}
        weights: list[np.ndarray] = []

        def loss(point: dict[str, Any]) -> Any:
            outs = results(getattr(rl_triton_jax, case.name)(**point, **rest, axis=axis))
            if not weights:
                weights.extend(rng.standard_normal(o.shape) for o in outs)
            return sum((w * o).sum() for w, o in zip(weights, outs, strict=True))

        loss(point)
        gradient = jax.grad(loss)(point)
        assert all(np.isfinite(g).all() for g in gradient.values()), {
            n: np.isfinite(g).all() for n, g in gradient.items()
        }
        eps = 1e-6
        ahead, behind = ({n: x + s * eps * directions[n] for n, x in point.items()} for s in (1, -1))
        difference = (loss(ahead) - loss(behind)) / (2 * eps)
        slope = sum(float((gradient[n] * directions[n]).sum()) for n in floats)
        np.testing.assert_allclose(slope, difference, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("dead", [np.nan, np.inf])
def test_second_derivatives_know_no_dead_factor(dead: float) -> None:
    """y = b where reset, so the Hessian of the sum of its squares is 2 for b and 0 for all else, whatever `a` holds."""

    def loss(a: Any, b: Any, initial: Any) -> Any:
        return (rl_triton_jax.linear_recurrence(a, b, initial=initial, reset=np.ones(1, bool)) ** 2).sum()

    hessian = jax.hessian(loss, (0, 1, 2))(np.full(1, dead, np.float32), np.ones(1, np.float32), np.float32(0.3))
    flat = np.concatenate([np.ravel(x) for x in jax.tree.leaves(hessian)])
    assert sorted(flat) == [0.0] * 8 + [2.0]


def test_packed() -> None:
    """The same as each sequence by itself; empty ones, and one much longer than the rest."""
    rng = np.random.default_rng(5)
    lengths = [3, 0, 1, 64, 2, 0, 5]
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    total = int(offsets[-1])
    rewards, values = (rng.standard_normal(total).astype(np.float32) for _ in range(2))
    last, mask = rng.standard_normal(len(lengths)).astype(np.float32), rng.random(total) < 0.7
    for given in (None, mask):
        got = rl_triton_jax.gae_packed(
            rewards, values, offsets.astype(np.int32), last_values=last, gamma=0.9, lambda_=0.8, mask=given
        )
        assert isinstance(got, rl_triton_jax.GAE)
        for s, (start, stop) in enumerate(itertools.pairwise(offsets)):
            if start == stop:
                continue
            rows = slice(int(start), int(stop))
            alone = fast_oracle.gae(
                rewards[rows],
                values=values[rows],
                last_values=last[s],
                gamma=0.9,
                lambda_=0.8,
                mask=None if given is None else given[rows],
            )
            for actual, expected in zip(got, alone, strict=True):
                oracle.assert_close(actual[rows], expected)


@pytest.mark.parametrize("offsets", [[0, 5, 9], [2, 5, 7], [0, 5, 3]])
def test_packed_offsets_that_cannot_be(offsets: list[int]) -> None:
    seven = np.ones(7, np.float32)
    with pytest.raises(ValueError, match=r"cu_seqlens"):
        rl_triton_jax.gae_packed(seven, seven, np.array(offsets), last_values=0.0)


def test_an_initial_that_does_not_fit() -> None:
    with pytest.raises(ValueError, match=r"does not fit"):
        rl_triton_jax.episodic_cumsum(np.ones((4, 3), np.int32), initial=2**40)

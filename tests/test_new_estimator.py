"""A new estimator is one description and its maths on chip: everything else comes with them."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from new_estimator import capped_returns as written
from new_estimator import loop

from rl_triton_jax.front import offered_by
from rl_triton_jax.jax_front import JAX

capped_returns = offered_by(JAX, written)
RNG = np.random.default_rng(1)
REWARDS = RNG.standard_normal((13, 4)).astype(np.float32)
TERMINATED = RNG.random((13, 4)) < 0.2
EXPECTED = loop(REWARDS, TERMINATED, 0.9, 0.5)
call = partial(capped_returns, gamma=0.9, cap=0.5)


def close(actual: Any, expected: Any) -> None:
    np.testing.assert_allclose(np.asarray(actual), expected, rtol=1e-5, atol=1e-5)


def test_in_jax() -> None:
    close(jax.jit(call)(REWARDS, TERMINATED), EXPECTED)
    close(call(REWARDS.T, TERMINATED.T, axis=1).T, EXPECTED)
    close(jax.vmap(call, in_axes=1, out_axes=1)(jnp.asarray(REWARDS), jnp.asarray(TERMINATED)), EXPECTED)


def test_masked_steps_are_cut_out() -> None:
    mask = np.ones((13, 4), bool)
    mask[3::4] = False
    got = call(np.where(mask, REWARDS, np.nan), TERMINATED, mask=mask)
    close(got[mask].reshape(-1, 4), loop(REWARDS[mask[:, 0]], TERMINATED[mask[:, 0]], 0.9, 0.5))


def test_derivative_by_a_number() -> None:
    def total(gamma: Any) -> Any:
        return jnp.sum(capped_returns(REWARDS, TERMINATED, gamma=gamma, cap=0.5))

    step = 1e-4
    slope = (loop(REWARDS, TERMINATED, 0.9 + step, 0.5) - loop(REWARDS, TERMINATED, 0.9 - step, 0.5)).sum() / (2 * step)
    np.testing.assert_allclose(jax.grad(total)(jnp.float32(0.9)), slope, rtol=1e-4)


@pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="no torch")
def test_in_torch() -> None:
    import torch

    from rl_triton_jax.torch import TORCH

    rewards = torch.from_numpy(REWARDS).requires_grad_()
    got = offered_by(TORCH, written)(rewards, torch.from_numpy(TERMINATED), gamma=0.9, cap=0.5)
    close(got.detach().numpy(), EXPECTED)
    got[0].sum().backward()
    assert rewards.grad is not None
    close(rewards.grad[0].numpy(), REWARDS[0] < 0.5)


@pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="no triton")
def test_kernels() -> None:
    """In a process of its own, through Triton's interpreter."""
    program = Path(__file__).parent / "new_estimator.py"
    environment = {**os.environ, "TRITON_INTERPRET": "1"}
    done = subprocess.run(
        [sys.executable, "-W", "ignore", str(program)], env=environment, capture_output=True, text=True, check=False
    )
    assert done.stdout == "right\n", done.stderr[-2000:]


def test_a_wrong_shape_is_refused_by_name() -> None:
    with pytest.raises(ValueError, match=r"capped_returns.*`terminated`"):
        call(REWARDS, TERMINATED[:5])

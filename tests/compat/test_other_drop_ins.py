"""CleanRL, PufferLib and verl: loops written from their sources, on torch tensors and on JAX arrays."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import oracle
import pytest

from rl_triton_jax.compat import cleanrl, pufferlib

FRAMEWORKS = ["torch", "jax"]


@pytest.fixture(params=FRAMEWORKS)
def arrays(request: pytest.FixtureRequest) -> Any:
    if request.param == "torch":
        return pytest.importorskip("torch").as_tensor
    return jnp.asarray


@pytest.mark.parametrize("edge", ["[N]", "[1, N]"])
@pytest.mark.parametrize("flags", [np.float32, bool])
def test_cleanrl(arrays: Any, edge: str, flags: Any) -> None:
    rng = np.random.default_rng(1)
    rewards, values = rng.normal(size=(2, 12, 5)).astype(np.float32)
    dones = (rng.random((12, 5)) < 0.3).astype(flags)
    next_value, next_done = rng.normal(size=5).astype(np.float32), (rng.random(5) < 0.5).astype(flags)
    right = np.zeros((12, 5))
    for n in range(5):
        carry = 0.0
        for t in reversed(range(12)):
            ended, after = (next_done[n], next_value[n]) if t == 11 else (dones[t + 1, n], values[t + 1, n])
            carry = rewards[t, n] - values[t, n] + (0.0 if ended else 0.99 * after + 0.99 * 0.95 * carry)
            right[t, n] = carry
    last = next_value if edge == "[N]" else next_value[None]
    advantages, returns = cleanrl.compute_gae(*map(arrays, (rewards, values, dones, last, next_done)))
    oracle.assert_close(advantages, right)
    oracle.assert_close(returns, right + values)


def puffer_loop(values: Any, rewards: Any, dones: Any, importance: Any) -> np.ndarray:
    out = np.zeros(values.shape)
    for n in range(values.shape[0]):
        carry = 0.0
        for t in reversed(range(values.shape[1] - 1)):
            rho, c = min(importance[n, t], 1.1), min(importance[n, t], 0.9)
            delta = rewards[n, t + 1] - values[n, t]
            if not dones[n, t + 1]:
                delta += 0.98 * values[n, t + 1]
            carry = rho * delta + (0.0 if dones[n, t + 1] else 0.98 * 0.9 * c * carry)
            out[n, t] = carry
    return out


@pytest.mark.parametrize("shape", [(4, 16), (3, 1), (2, 2)])
def test_pufferlib(arrays: Any, shape: tuple[int, int]) -> None:
    rng = np.random.default_rng(2)
    values, rewards = rng.normal(size=(2, *shape)).astype(np.float32)
    dones = (rng.random(shape) < 0.3).astype(np.float32)
    importance = rng.uniform(0, 2, shape).astype(np.float32)
    importance[:, 0] = 0
    given = arrays(np.full(shape, 7, np.float32))
    v, r, d, i = map(arrays, (values, rewards, dones, importance))
    got = pufferlib.compute_puff_advantage(v, r, d, i, given, 0.98, 0.9, 1.1, 0.9)
    right = puffer_loop(values, rewards, dones, importance)
    right[:, -1] = 7
    oracle.assert_close(got, right)
    if hasattr(given, "data_ptr"):
        assert got is given


def test_no_gradients() -> None:
    x = jnp.ones((4, 3))

    def total(values: Any) -> jax.Array:
        a, b = cleanrl.compute_gae(x, values, x * 0, x[0], x[0] * 0)
        c = pufferlib.compute_puff_advantage(values, x, x * 0, x, x, 0.9, 0.9, 1, 1)
        return a.sum() + b.sum() + c.sum()

    np.testing.assert_array_equal(jax.grad(total)(x), np.zeros((4, 3)))


def verl_loop(rewards: Any, values: Any, mask: Any, gamma: float, lam: float) -> tuple[np.ndarray, np.ndarray]:
    advantages = np.zeros(values.shape)
    for n in range(values.shape[0]):
        after = carry = 0.0
        for t in reversed(range(values.shape[1])):
            if mask[n, t]:
                carry = rewards[n, t] + gamma * after - values[n, t] + gamma * lam * carry
                after = values[n, t]
            advantages[n, t] = carry
    real = advantages[mask != 0]
    whitened = (advantages - real.mean()) / np.sqrt(real.var(ddof=1) + 1e-8)
    return whitened, advantages + values


@pytest.mark.parametrize("dtype", ["int64", "float32", "bool"])
def test_verl(dtype: str) -> None:
    torch = pytest.importorskip("torch")
    from rl_triton_jax.compat.verl import compute_gae_advantage_return

    rng = np.random.default_rng(3)
    rewards, values = rng.normal(size=(2, 5, 23))
    mask = rng.random((5, 23)) < 0.7
    mask[0, 15:] = False  # padded behind
    mask[1] = False  # nothing real
    right = verl_loop(rewards, values, mask, 0.99, 0.95)
    garbage = np.where(mask, rewards, np.nan)
    for given in (rewards, garbage):
        got = compute_gae_advantage_return(
            torch.as_tensor(given), torch.as_tensor(values), torch.as_tensor(mask.astype(dtype)), 0.99, 0.95
        )
        for x, y in zip(got, right, strict=True):
            oracle.assert_close(x, y, 1e-6)


@pytest.mark.parametrize("real", [0, 1])
def test_verl_needs_two_tokens(real: int) -> None:
    torch = pytest.importorskip("torch")
    from rl_triton_jax.compat.verl import compute_gae_advantage_return

    mask = torch.zeros(2, 3)
    mask[0, :real] = 1
    with pytest.raises(ValueError, match=f"{real} real tokens"):
        compute_gae_advantage_return(torch.ones(2, 3), torch.ones(2, 3), mask, 1.0, 1.0)

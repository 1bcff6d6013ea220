"""TorchRL's value functions beside TorchRL itself: numbers and gradients on random inputs with flags, and a loop of our own."""

from __future__ import annotations

import importlib
import inspect
from typing import Any

import numpy as np
import oracle
import pytest

torch = pytest.importorskip("torch")

from rl_triton_jax.compat import torchrl as ours  # noqa: E402

GAE = ("generalized_advantage_estimate", "vec_generalized_advantage_estimate")
LAMBDA = (
    "td_lambda_return_estimate",
    "vec_td_lambda_return_estimate",
    "td_lambda_advantage_estimate",
    "vec_td_lambda_advantage_estimate",
)
ONE = ("td1_return_estimate", "vec_td1_return_estimate", "td1_advantage_estimate", "vec_td1_advantage_estimate")
ZERO = ("td0_return_estimate", "td0_advantage_estimate")
FLOATS = ("state_value", "next_state_value", "reward", "log_pi", "log_mu")


@pytest.fixture
def torchrl() -> Any:
    pytest.importorskip("torchrl")
    return importlib.import_module("torchrl.objectives.value.functional")


def tensors(shape: tuple[int, ...], seed: int, ends: str = "both") -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    out = {name: torch.as_tensor(rng.normal(size=shape)) for name in FLOATS}
    done = rng.random(shape) < 0.25
    out["done"] = torch.as_tensor(done)
    if ends == "both":
        out["terminated"] = torch.as_tensor(done & (rng.random(shape) < 0.5))
    return out


def arguments(fn: Any, given: dict[str, Any], **others: Any) -> dict[str, Any]:
    takes = inspect.signature(fn).parameters
    chosen = {key: x for key, x in given.items() if key in takes}
    if "td0_return" in fn.__name__:
        chosen = {**chosen, "terminated": given.get("terminated", given["done"])}
        chosen.pop("done", None)
    return {**chosen, **{key: x for key, x in others.items() if key in takes}}


def leaves(x: Any) -> list[Any]:
    return list(x) if isinstance(x, tuple) else [x]


def check(torchrl: Any, name: str, given: dict[str, Any], rtol: float = 1e-6, **others: Any) -> None:
    # The undecorated functions of TorchRL take `time_dim` by keyword only; ours all do.
    call = arguments(getattr(ours, name), given, **others)
    got, right = leaves(getattr(ours, name)(**call)), leaves(getattr(torchrl, name)(**call))
    for x, y in zip(got, right, strict=True):
        assert x.shape == y.shape
        assert x.dtype == y.dtype
        oracle.assert_close(x, y, rtol)


@pytest.mark.parametrize("ends", ["done only", "both"])
@pytest.mark.parametrize("name", [*GAE, *LAMBDA, *ONE, *ZERO, "vtrace_advantage_estimate"])
@pytest.mark.parametrize("shape", [(3, 11, 1), (11, 1), (2, 3, 7, 2), (3, 1, 1)])
def test_numbers(torchrl: Any, name: str, shape: tuple[int, ...], ends: str) -> None:
    check(torchrl, name, tensors(shape, 1, ends), gamma=0.97, lmbda=0.9, rho_thresh=0.9, c_thresh=0.8)


@pytest.mark.parametrize("name", [GAE[0], LAMBDA[0], LAMBDA[2], ONE[0], ONE[2]])
@pytest.mark.parametrize("rolling", [None, True])
def test_a_gamma_for_each_step(torchrl: Any, name: str, rolling: bool | None) -> None:
    shape = (3, 9, 2)
    rng = np.random.default_rng(2)
    gamma, lmbda = torch.as_tensor(rng.uniform(0.5, 1, (2, *shape)))
    check(torchrl, name, tensors(shape, 3), gamma=gamma, lmbda=lmbda, rolling_gamma=rolling)
    check(torchrl, name, tensors(shape, 3), gamma=torch.tensor(0.9), lmbda=0.8, rolling_gamma=rolling)


@pytest.mark.parametrize("name", [LAMBDA[0], LAMBDA[2], ONE[0], ONE[2]])
@pytest.mark.parametrize("ends", ["done only", "both"])
def test_a_gamma_for_each_return(torchrl: Any, name: str, ends: str) -> None:
    shape = (3, 9, 2)
    rng = np.random.default_rng(4)
    gamma, lmbda = torch.as_tensor(rng.uniform(0.5, 1, (2, *shape)))
    given = tensors(shape, 5, ends)
    check(torchrl, name, given, gamma=gamma, lmbda=lmbda, rolling_gamma=False)
    check(torchrl, name, given, gamma=gamma, lmbda=0.7, rolling_gamma=False)
    for fn in (getattr(ours, name), getattr(torchrl, name)):
        with pytest.raises(RuntimeError, match="rolling_gamma=False"):
            fn(**arguments(fn, given, gamma=0.9, lmbda=0.7, rolling_gamma=False))


@pytest.mark.parametrize("name", [GAE[0], GAE[1], LAMBDA[0], LAMBDA[3], ONE[0], ONE[3], "vtrace_advantage_estimate"])
@pytest.mark.parametrize("time_dim", [-1, -3, 1])
def test_another_axis(torchrl: Any, name: str, time_dim: int) -> None:
    if name == "vtrace_advantage_estimate" and time_dim == 1:
        pytest.skip("TorchRL stacks along the axis it was given after moving it")
    given = {key: x.contiguous() for key, x in tensors((5, 6, 4), 6).items()}
    check(torchrl, name, given, gamma=0.97, lmbda=0.9, time_dim=time_dim)


@pytest.mark.parametrize("shape", [(3, 11, 1), (11, 1), (2, 9, 2)])
def test_reward2go(torchrl: Any, shape: tuple[int, ...]) -> None:
    given = tensors(shape, 7)
    got = ours.reward2go(given["reward"], given["done"], 0.9)
    oracle.assert_close(got, torchrl.reward2go(given["reward"], given["done"], 0.9), 1e-6)
    oracle.assert_close(got, oracle.discounted_returns(given["reward"], given["done"], gamma=0.9, axis=-2))
    with pytest.raises(ValueError, match="reward2go"):
        ours.reward2go(given["reward"], given["done"][:-1], 0.9)


@pytest.mark.parametrize("name", [GAE[0], LAMBDA[0], LAMBDA[2], ONE[0], *ZERO, "vtrace_advantage_estimate"])
def test_gradients(torchrl: Any, name: str) -> None:
    given = tensors((3, 8, 1), 8)
    others: dict[str, Any] = {"gamma": 0.97, "lmbda": 0.9}

    def gradients(fn: Any) -> list[Any]:
        call = arguments(getattr(ours, name), given, **others)
        leaf = {key: x.clone().requires_grad_() for key, x in call.items() if key in FLOATS}
        out = leaves(fn(**{**call, **leaf}))
        weights = torch.linspace(-1, 1, out[0].numel(), dtype=torch.float64).reshape(out[0].shape)
        total = sum((weights * (i + 1) * x).sum() for i, x in enumerate(out))
        return list(torch.autograd.grad(total, list(leaf.values())))

    for x, y in zip(gradients(getattr(ours, name)), gradients(getattr(torchrl, name)), strict=True):
        oracle.assert_close(x, y, 1e-6)  # its gamma times an integer mask is float32


def test_names_orders_and_defaults(torchrl: Any) -> None:
    for name in (*GAE, *LAMBDA, *ONE, *ZERO, "vtrace_advantage_estimate", "reward2go"):
        theirs = inspect.signature(getattr(torchrl, name)).parameters
        mine = inspect.signature(getattr(ours, name)).parameters
        assert list(mine) == [key for key in theirs if key != "gamma_thr"], name
        for key in mine:
            assert mine[key].default == theirs[key].default, (name, key)


def test_gae_against_a_loop() -> None:
    given = tensors((4, 13, 1), 9)
    advantage, target = ours.generalized_advantage_estimate(
        0.99, 0.95, *(given[key] for key in ("state_value", "next_state_value", "reward", "done", "terminated"))
    )
    right = oracle.gae(
        given["reward"],
        given["state_value"],
        given["terminated"],
        given["done"] & ~given["terminated"],
        next_values=given["next_state_value"],
        axis=1,
    )
    oracle.assert_close(advantage, right[0])
    oracle.assert_close(target, right[1])


def test_shapes_must_agree() -> None:
    given = tensors((4, 13, 1), 10)
    given["reward"] = given["reward"][:, :-1]
    for name in (GAE[0], LAMBDA[0], ZERO[0], "vtrace_advantage_estimate"):
        fn = getattr(ours, name)
        with pytest.raises(RuntimeError, match="`reward`"):
            fn(**arguments(fn, given, gamma=0.9, lmbda=0.9))


def test_nothing_is_transposed_and_dead_values_stay_dead() -> None:
    given = tensors((2, 6, 1), 11)
    given["done"][:] = False
    given["done"][:, 2] = True
    given.pop("terminated")
    clean = leaves(
        ours.generalized_advantage_estimate(**arguments(ours.generalized_advantage_estimate, given, gamma=1, lmbda=1))
    )
    given["next_state_value"][:, 2] = torch.nan
    given["reward"][:, 3] = torch.inf
    given["state_value"][:, 3] = torch.nan
    got = leaves(
        ours.generalized_advantage_estimate(**arguments(ours.generalized_advantage_estimate, given, gamma=1, lmbda=1))
    )
    for x, y in zip(got, clean, strict=True):
        assert torch.equal(x[:, :3], y[:, :3])

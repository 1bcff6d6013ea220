"""rlax's functions beside rlax itself: numbers and gradients on random inputs, vmapped and with a batch axis of our own."""

from __future__ import annotations

import importlib
import inspect
import warnings
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import oracle
import pytest

from rl_triton_jax.compat import notice
from rl_triton_jax.compat import rlax as ours

T, B, A = 11, 5, 3
SHAPES = {
    "values": (T + 1, B),
    **dict.fromkeys(("q_tm1 actions", "q_t actions", "pi_t"), (T, B, A)),
    **dict.fromkeys(
        ("a_tm1", "a_t", "r_t", "discount_t", "v_tm1", "v_t", "rho_tm1", "lambda_t", "c_t", "mu_t"), (T, B)
    ),
    **dict.fromkeys(("q_t", "c_t short", "log_rhos", "lambda_t short"), (T - 1, B)),
    "q_tm1": (T, B),
    "sample_mask": (T, B),
}

# Name: (arrays in the order of the arguments, further keyword arguments).
CALLS: dict[str, tuple[str, tuple[str, ...], dict[str, Any]]] = {
    "lambda_returns": ("lambda_returns", ("r_t", "discount_t", "v_t"), {"lambda_": 0.8}),
    "lambda_returns, default": ("lambda_returns", ("r_t", "discount_t", "v_t"), {}),
    "lambda_returns, per step": ("lambda_returns", ("r_t", "discount_t", "v_t", "lambda_t"), {}),
    "discounted_returns": ("discounted_returns", ("r_t", "discount_t", "v_t"), {}),
    "n_step_bootstrapped_returns": ("n_step_bootstrapped_returns", ("r_t", "discount_t", "v_t"), {"n": 4}),
    "one step": ("n_step_bootstrapped_returns", ("r_t", "discount_t", "v_t"), {"n": 1}),
    "more steps than there are": ("n_step_bootstrapped_returns", ("r_t", "discount_t", "v_t"), {"n": 2 * T}),
    "n steps, lambda": ("n_step_bootstrapped_returns", ("r_t", "discount_t", "v_t"), {"n": 4, "lambda_t": 0.7}),
    "importance_corrected_td_errors": (
        "importance_corrected_td_errors",
        ("r_t", "discount_t", "rho_tm1", "lambda_t", "values"),
        {},
    ),
    "truncated_generalized_advantage_estimation": (
        "truncated_generalized_advantage_estimation",
        ("r_t", "discount_t", "lambda_t", "values"),
        {},
    ),
    "general_off_policy_returns_from_q_and_v": (
        "general_off_policy_returns_from_q_and_v",
        ("q_t", "v_t", "r_t", "discount_t", "c_t short"),
        {},
    ),
    "general_off_policy_returns_from_action_values": (
        "general_off_policy_returns_from_action_values",
        ("q_t actions", "a_t", "r_t", "discount_t", "c_t", "pi_t"),
        {},
    ),
    "vtrace": ("vtrace", ("v_tm1", "v_t", "r_t", "discount_t", "rho_tm1"), {"lambda_": 0.9, "clip_rho_threshold": 0.8}),
    "vtrace, per step": ("vtrace", ("v_tm1", "v_t", "r_t", "discount_t", "rho_tm1", "lambda_t"), {}),
    "leaky_vtrace": (
        "leaky_vtrace",
        ("v_tm1", "v_t", "r_t", "discount_t", "rho_tm1"),
        {"alpha_": 0.3, "lambda_": 0.9, "clip_rho_threshold": 0.8},
    ),
    "vtrace_td_error_and_advantage": (
        "vtrace_td_error_and_advantage",
        ("v_tm1", "v_t", "r_t", "discount_t", "rho_tm1", "lambda_t"),
        {"clip_pg_rho_threshold": 1.3},
    ),
    "vtrace_td_error_and_advantage, one lambda": (
        "vtrace_td_error_and_advantage",
        ("v_tm1", "v_t", "r_t", "discount_t", "rho_tm1"),
        {"lambda_": 0.6, "clip_rho_threshold": 0.9},
    ),
    "leaky_vtrace_td_error_and_advantage": (
        "leaky_vtrace_td_error_and_advantage",
        ("v_tm1", "v_t", "r_t", "discount_t", "rho_tm1"),
        {"alpha": 0.3, "lambda_": 0.9},
    ),
    "td_lambda": ("td_lambda", ("v_tm1", "r_t", "discount_t", "v_t"), {"lambda_": 0.9}),
    "sarsa_lambda": (
        "sarsa_lambda",
        ("q_tm1 actions", "a_tm1", "r_t", "discount_t", "q_t actions", "a_t"),
        {"lambda_": 0.9},
    ),
    "q_lambda": ("q_lambda", ("q_tm1 actions", "a_tm1", "r_t", "discount_t", "q_t actions", "lambda_t"), {}),
    "retrace": (
        "retrace",
        ("q_tm1 actions", "q_t actions", "a_tm1", "a_t", "r_t", "discount_t", "pi_t", "mu_t"),
        {"lambda_": 0.9},
    ),
    "retrace_continuous": (
        "retrace_continuous",
        ("q_tm1", "q_t", "v_t", "r_t", "discount_t", "log_rhos", "lambda_t short"),
        {},
    ),
}


def arrays(names: tuple[str, ...], seed: int) -> list[jax.Array]:
    rng = np.random.default_rng(seed)
    out = []
    for name in names:
        shape = SHAPES[name]
        if name.startswith("a_"):
            x = rng.integers(0, A, shape).astype(np.int32)
        elif name == "discount_t":
            x = np.where(rng.random(shape) < 0.2, 0, rng.uniform(0.8, 1, shape)).astype(np.float32)
        elif name == "pi_t":
            x = rng.dirichlet(np.ones(A), shape[:-1]).astype(np.float32)
        elif name == "sample_mask":
            x = rng.random(shape) < 0.7
        elif name.startswith(("lambda", "rho", "c_t", "mu")):
            x = rng.uniform(0.1, 1.5 if name.startswith("rho") else 1, shape).astype(np.float32)
        else:
            x = rng.normal(size=shape).astype(np.float32)
        out.append(jnp.asarray(x))
    return out


def by_column(fn: Any, keywords: dict[str, Any]) -> Any:
    return jax.vmap(lambda *x: fn(*x, **keywords), in_axes=1, out_axes=1)


def leaves(x: Any) -> list[Any]:
    return list(x) if isinstance(x, tuple) else [x]


@pytest.fixture
def rlax() -> Any:
    pytest.importorskip("rlax")
    # Its top level leaves one of these functions out.
    return SimpleNamespace(
        **{
            name: getattr(importlib.import_module(f"rlax._src.{module}"), name)
            for module in ("multistep", "value_learning", "vtrace")
            for name in dir(importlib.import_module(f"rlax._src.{module}"))
        }
    )


@pytest.mark.filterwarnings("ignore:rlax's V-trace advantage")
@pytest.mark.parametrize("label", CALLS)
def test_numbers(rlax: Any, label: str) -> None:
    name, takes, keywords = CALLS[label]
    given = arrays(takes, seed=1)
    right = by_column(getattr(rlax, name), keywords)(*given)
    drop_in = getattr(ours, name)
    for got in (drop_in(*given, **keywords), by_column(drop_in, keywords)(*given)):
        for x, y in zip(leaves(got), leaves(right), strict=True):
            oracle.assert_close(x, y)
    if hasattr(right, "_fields"):
        assert drop_in(*given, **keywords)._fields == right._fields


@pytest.mark.filterwarnings("ignore:rlax's V-trace advantage")
@pytest.mark.parametrize("stop", [None, False, True])
@pytest.mark.parametrize("label", CALLS)
def test_gradients(rlax: Any, label: str, stop: bool | None) -> None:
    """Flowing or stopped as in rlax. Not by the discount: at a zero, ours ends the episode."""
    name, takes, keywords = CALLS[label]
    keywords = keywords if stop is None else {**keywords, "stop_target_gradients": stop}
    given = arrays(takes, seed=2)
    by = [
        i for i, (key, x) in enumerate(zip(takes, given, strict=True)) if key != "discount_t" and x.dtype == jnp.float32
    ]
    rng = np.random.default_rng(3)

    def weighed(fn: Any, *moving: Any) -> jax.Array:
        full = list(given)
        for i, x in zip(by, moving, strict=True):
            full[i] = x
        return jnp.sum(jnp.stack([(x * y).sum() for x, y in zip(leaves(fn(*full)), weights, strict=False)]))

    weights = list(rng.normal(size=(3, T, B)).astype(np.float32))
    which = tuple(range(1, 1 + len(by)))
    moving = [given[i] for i in by]
    got = jax.grad(weighed, which)(lambda *x: getattr(ours, name)(*x, **keywords), *moving)
    right = jax.grad(weighed, which)(by_column(getattr(rlax, name), keywords), *moving)
    for x, y in zip(got, right, strict=True):
        oracle.assert_close(x, y, 1e-4, scale=1.0)


@pytest.mark.parametrize("name", ["vtrace", "leaky_vtrace", "vtrace_td_error_and_advantage"])
def test_sample_mask(rlax: Any, name: str) -> None:
    given = arrays(("v_tm1", "v_t", "r_t", "discount_t", "rho_tm1"), seed=4)
    (mask,) = arrays(("sample_mask",), seed=5)
    fn = getattr(rlax, name)
    right = jax.vmap(lambda *x: fn(*x[:-1], sample_mask=x[-1]), in_axes=1, out_axes=1)(*given, mask)
    got = getattr(ours, name)(*given, sample_mask=mask)
    for x, y in zip(leaves(got), leaves(right), strict=True):
        oracle.assert_close(x, y)


def test_names_orders_and_defaults(rlax: Any) -> None:
    for name in sorted({name for name, _, _ in CALLS.values()}):
        theirs = inspect.signature(getattr(rlax, name)).parameters
        mine = {
            key: x
            for key, x in inspect.signature(getattr(ours, name)).parameters.items()
            if x.kind is not x.KEYWORD_ONLY
        }
        assert list(mine) == list(theirs), name
        for key in mine:
            assert mine[key].default == theirs[key].default, (name, key)


def test_numbers_published_by_rlax() -> None:
    """The worked example of rlax's tests of lambda-returns and of GAE (which are those of TRFL and of the GAE paper's code)."""
    rewards = jnp.asarray([1.0, 0.0, -1.0, 0.0, 1.0])
    discounts = jnp.asarray([0.5, 0.9, 1.0, 0.5, 0.8])
    values = jnp.asarray([3.0, 1.0, 5.0, -5.0, 3.0])
    got = ours.lambda_returns(rewards, discounts, values, 0.75)
    # By hand: 1 + 0.8*3 = 3.4; 0.5*(0.25*-5 + 0.75*3.4) = 0.65; -1 + 0.25*5 + 0.75*0.65 = 0.7375;
    # 0.9*(0.25*1 + 0.75*0.7375) = 0.7228125; 1 + 0.5*(0.25*3 + 0.75*0.7228125) = 1.6460546875.
    np.testing.assert_allclose(got, [1.6460546875, 0.7228125, 0.7375, 0.65, 3.4], rtol=1e-6)


def test_a_truncation_by_lambda_warns_once_and_corrected_is_right() -> None:
    """lambda_t = 0 at step 1: the value after it is v_t there, not the next row of v_tm1."""
    v_tm1 = jnp.asarray([0.5, 1.0, 1.5, 2.0])
    v_t = jnp.asarray([1.0, 1.2, 2.0, 2.5])
    r_t = jnp.asarray([1.0, 2.0, 3.0, 4.0])
    discount_t = jnp.full(4, 0.99)
    rho = jnp.ones(4)
    lambda_ = jnp.asarray([0.95, 0.0, 0.95, 0.95])
    notice._given.clear()
    with pytest.warns(UserWarning, match="corrected=True") as seen:
        as_theirs = ours.vtrace_td_error_and_advantage(v_tm1, v_t, r_t, discount_t, rho, lambda_)
    assert seen[0].filename == __file__
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ours.vtrace_td_error_and_advantage(v_tm1, v_t, r_t, discount_t, rho, lambda_)
        right = ours.vtrace_td_error_and_advantage(v_tm1, v_t, r_t, discount_t, rho, lambda_, corrected=True)
    np.testing.assert_allclose(as_theirs.pg_advantage[1], 2 + 0.99 * 1.5 - 1, rtol=1e-6)
    np.testing.assert_allclose(right.pg_advantage[1], 2 + 0.99 * 1.2 - 1, rtol=1e-6)
    np.testing.assert_allclose(right.errors, as_theirs.errors, rtol=1e-6)


@pytest.mark.parametrize("poison", [np.nan, np.inf])
def test_behind_a_zero_discount_nothing_is_read(poison: float) -> None:
    r_t = np.asarray([1, 2, 3, 4], np.float32)
    discount_t = np.asarray([0.9, 0, 0.9, 0.9], np.float32)
    v_t = np.asarray([1, 2, 3, 4], np.float32)
    v_tm1 = np.asarray([0.5, 1, 1.5, 2], np.float32)
    values = np.asarray([0.5, 1, 2, 3, 4], np.float32)
    rho = np.ones(4, np.float32)
    given = (r_t, discount_t, v_t, v_tm1, values, rho)

    def everything() -> list[Any]:
        r_t, discount_t, v_t, v_tm1, values, rho = map(jnp.asarray, given)
        return [
            ours.lambda_returns(r_t, discount_t, v_t, 0.9),
            ours.discounted_returns(r_t, discount_t, v_t),
            ours.n_step_bootstrapped_returns(r_t, discount_t, v_t, 3),
            ours.truncated_generalized_advantage_estimation(r_t, discount_t, 0.9, values),
            ours.importance_corrected_td_errors(r_t, discount_t, rho, 0.9, values),
            ours.general_off_policy_returns_from_q_and_v(v_t[:-1], v_t, r_t, discount_t, rho[:-1]),
            *ours.vtrace_td_error_and_advantage(v_tm1, v_t, r_t, discount_t, rho),
        ]

    clean = everything()
    r_t[2] = v_t[2] = v_t[1] = v_tm1[2] = values[2] = rho[2] = poison
    for got, right in zip(everything(), clean, strict=True):
        np.testing.assert_array_equal(got[:2], right[:2])

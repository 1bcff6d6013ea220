"""rl-triton's functions: plain loops written from its documentation, and its worked mistakes and their corrections."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import oracle
import pytest

torch = pytest.importorskip("torch")

from rl_triton_jax.compat import notice, rl_triton  # noqa: E402

SHAPES = [(3, 17), (1, 1), (5, 2)]


def draw(shape: tuple[int, int], seed: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    out = {name: rng.normal(size=shape) for name in ("rewards", "values", "next_values", "log_pi", "log_mu", "q")}
    ends = rng.choice([0, 0, 0, 1, 2], shape)
    out["term"], out["trunc"] = (ends == 1) * 1.0, (ends == 2) * 1.0
    # Only where it counts, as rl-triton wants it.
    counts = ends == 2
    counts[:, -1] = True
    out["boot"] = np.where(counts, rng.normal(size=shape), 0)
    out["last"] = rng.normal(size=shape[0])
    return out


def t(x: np.ndarray) -> Any:
    return torch.as_tensor(x)


def deltas_and_decays(
    d: dict[str, np.ndarray], truncations: bool, bootstrap: np.ndarray, rho: np.ndarray, c: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """sum_k of one column after another; returns (A, next value used)."""
    rows, steps = d["rewards"].shape
    out, after = np.zeros((2, rows, steps))
    for n in range(rows):
        carry = 0.0
        for s in reversed(range(steps)):
            cut = truncations and d["trunc"][n, s]
            if d["term"][n, s]:
                value, keep = 0.0, 0.0
            elif cut:
                value, keep = bootstrap[n, s], 0.0
            else:
                value, keep = (d["values"][n, s + 1] if s + 1 < steps else bootstrap[n, s]), 1.0
            carry = rho[n, s] * (d["rewards"][n, s] + 0.9 * value - d["values"][n, s]) + keep * 0.9 * c[n, s] * carry
            out[n, s], after[n, s] = carry, value
    return out, after


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("way", ["plain", "last_value", "bootstrap", "truncations", "truncations, no bootstrap"])
def test_gae_and_vtrace(shape: tuple[int, int], way: str) -> None:
    d = draw(shape, 1)
    truncations = way.startswith("truncations")
    bootstrap = np.zeros(shape)
    given: dict[str, Any] = {}
    if truncations:
        given["truncateds"] = t(d["trunc"])
    if way in ("bootstrap", "truncations"):
        bootstrap = d["boot"]
        given["bootstrap_values"] = t(bootstrap)
    if way == "last_value":
        bootstrap[:, -1] = d["last"]
        given["last_value"] = t(d["last"])
    ones = np.ones(shape)
    right, _ = deltas_and_decays(d, truncations, bootstrap, ones, 0.8 * ones)
    rewards, values, term = t(d["rewards"]), t(d["values"]), t(d["term"])
    oracle.assert_close(rl_triton.compute_gae(rewards, values, term, gamma=0.9, lambda_=0.8, **given), right)

    ratio = np.exp(d["log_pi"] - d["log_mu"])
    rho, c = np.minimum(ratio, 1.2), np.minimum(ratio, 0.8)
    differences, after = deltas_and_decays(d, truncations, bootstrap, rho, c)
    targets = differences + d["values"]
    ends = (d["term"] + truncations * d["trunc"] > 0) | (np.arange(shape[1]) == shape[1] - 1)
    following = np.where(ends, after, np.roll(targets, -1, 1))
    got = rl_triton.compute_vtrace(
        t(d["log_pi"]), t(d["log_mu"]), values, rewards, term, gamma=0.9, rho_bar=1.2, c_bar=0.8, **given
    )
    oracle.assert_close(got[0], targets)
    oracle.assert_close(got[1], rho * (d["rewards"] + 0.9 * following - d["values"]))


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("truncations", [False, True])
@pytest.mark.parametrize("bootstrap", [False, True])
def test_returns(shape: tuple[int, int], truncations: bool, bootstrap: bool) -> None:
    d = draw(shape, 2)
    boot = d["boot"] if bootstrap else np.zeros(shape)
    by_lambda, discounted = np.zeros((2, *shape))
    for n in range(shape[0]):
        g = h = boot[n, -1]
        for s in reversed(range(shape[1])):
            r = d["rewards"][n, s]
            if d["term"][n, s]:
                g = h = r
            elif truncations and d["trunc"][n, s]:
                g = h = r + 0.9 * boot[n, s]
            else:
                g, h = r + 0.9 * (0.3 * d["next_values"][n, s] + 0.7 * g), r + 0.9 * h
            by_lambda[n, s], discounted[n, s] = g, h
    given = {"gamma": 0.9, "truncateds": t(d["trunc"]) if truncations else None}
    given["bootstrap_values"] = t(boot) if bootstrap else None
    rewards, term, next_values = t(d["rewards"]), t(d["term"]), t(d["next_values"])
    oracle.assert_close(rl_triton.compute_lambda_returns(rewards, next_values, term, lambda_=0.7, **given), by_lambda)
    np.testing.assert_array_equal(next_values, d["next_values"])
    oracle.assert_close(rl_triton.compute_discounted_returns(rewards, term, **given), discounted)


@pytest.mark.parametrize("seeded", [False, True])
def test_forward_in_time(seeded: bool) -> None:
    d = draw((3, 17), 3)
    traces, ends_at, starts_at = np.zeros((3, 3, 17))
    for n in range(3):
        z = e = s = d["last"][n] if seeded else 0.0
        for i in range(17):
            x, before = d["rewards"][n, i], i > 0 and d["term"][n, i - 1]
            z = x + (0 if before else 0.9 * 0.8 * z)
            e = x + (0 if before else e)
            s = x + (0 if d["term"][n, i] else s)
            traces[n, i], ends_at[n, i], starts_at[n, i] = z, e, s
    x, done, seed = t(d["rewards"]), t(d["term"]), t(d["last"]) if seeded else None
    oracle.assert_close(rl_triton.compute_eligibility_traces(x, done, 0.9, 0.8, seed), traces)
    oracle.assert_close(rl_triton.compute_episodic_prefix_sum(x, done, seed), ends_at)
    oracle.assert_close(rl_triton.compute_episodic_prefix_sum(x, done, seed, "starts_at"), starts_at)
    with pytest.raises(ValueError, match="boundary"):
        rl_triton.compute_episodic_prefix_sum(x, done, boundary="never")


@pytest.mark.parametrize("corrected", [False, True])
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.filterwarnings("ignore:rl-triton's Retrace")
def test_retrace(shape: tuple[int, int], corrected: bool) -> None:
    rows, steps = shape
    d = draw(shape, 4)
    rng = np.random.default_rng(5)
    probs, next_probs = rng.dirichlet(np.ones(4), (2, *shape))
    behavior = rng.uniform(0.1, 1, shape)
    next_q = rng.normal(size=(*shape, 4))
    actions = rng.integers(0, 4, shape)
    weights = next_probs if corrected else probs
    targets, advantages = np.zeros((2, *shape))
    for n in range(rows):
        following, c_next = 0.0, 0.0
        for s in reversed(range(steps)):
            ratio = probs[n, s, actions[n, s]] / behavior[n, s]
            expected = sum(weights[n, s, a] * next_q[n, s, a] for a in range(4))
            r, q = d["rewards"][n, s], d["q"][n, s]
            last = s == steps - 1
            if d["term"][n, s]:
                g = one_step = r
            else:
                cut = bool(d["trunc"][n, s]) or last
                g = r + 0.9 * expected + (0.0 if cut else 0.9 * c_next * (following - d["q"][n, s + 1]))
                one_step = r + 0.9 * (expected if cut and corrected else following)
            targets[n, s] = g
            advantages[n, s] = min(1.1, ratio) * (one_step - q)
            following, c_next = g, 0.7 * min(0.9, ratio)
    got = rl_triton.compute_retrace(
        t(probs),
        t(behavior),
        t(d["q"]),
        t(next_q),
        t(actions),
        t(d["rewards"]),
        t(d["term"]),
        t(d["trunc"]),
        0.9,
        0.7,
        0.9,
        1.1,
        **({"next_action_probs_target": t(next_probs), "corrected": True} if corrected else {}),
    )
    oracle.assert_close(got[0], targets)
    oracle.assert_close(got[1], advantages)


def test_retrace_warns_once() -> None:
    one = torch.ones(2, 3)
    given = [one[..., None], one, one, one[..., None], one.long() * 0, one, one * 0, one * 0, 0.9]
    notice._given.clear()
    with pytest.warns(UserWarning, match="corrected=True") as seen:
        rl_triton.compute_retrace(*given)
    assert seen[0].filename == __file__
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        rl_triton.compute_retrace(*given)
    with pytest.raises(ValueError, match="next_action_probs_target"):
        rl_triton.compute_retrace(*given, corrected=True)
    with pytest.raises(ValueError, match="next_action_probs_target"):
        rl_triton.compute_retrace(*given, next_action_probs_target=given[0])


def test_refusals() -> None:
    x = torch.ones(2, 3)
    with pytest.raises(ValueError, match="not both"):
        rl_triton.compute_gae(x, x, x, bootstrap_values=x, last_value=x[:, 0])
    with pytest.raises(ValueError, match="truncateds"):
        rl_triton.compute_gae(x, x, x, x, last_value=x[:, 0])


def test_no_gradient() -> None:
    x = torch.ones(2, 3, requires_grad=True)
    assert not rl_triton.compute_gae(x, x, torch.zeros(2, 3)).requires_grad


@pytest.mark.parametrize("poison", [np.nan, np.inf])
def test_dead_places(poison: float) -> None:
    d = {key: t(x) for key, x in draw((2, 6), 6).items()}
    d["term"][:], d["trunc"][:] = 0, 0
    d["term"][0, 2] = d["trunc"][1, 2] = 1

    def everything() -> list[Any]:
        given = {"truncateds": d["trunc"], "bootstrap_values": d["boot"]}
        return [
            rl_triton.compute_gae(d["rewards"], d["values"], d["term"], **given),
            *rl_triton.compute_vtrace(d["log_pi"], d["log_mu"], d["values"], d["rewards"], d["term"], **given),
            rl_triton.compute_lambda_returns(d["rewards"], d["next_values"], d["term"], **given),
            rl_triton.compute_discounted_returns(d["rewards"], d["term"], **given),
        ]

    clean = everything()
    for name in ("rewards", "values", "log_pi"):
        d[name][:, 3] = poison
    d["next_values"][:, 2] = poison
    d["boot"][:, :2] = poison
    d["boot"][0, 2] = poison
    for got, right in zip(everything(), clean, strict=True):
        assert torch.equal(got[:, :3], right[:, :3])

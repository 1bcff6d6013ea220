"""Derivatives: against autodiff of an independent scan, against finite differences, and with garbage in dead places."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import oracle
import pytest
from conftest import to_jax
from jax.test_util import check_grads

import rl_triton_jax

Call = Callable[..., Any]
Arrays = dict[str, Any]
T, N = 5, 2
FLOATS = ("rewards", "values", "last_values", "next_values", "final_values", "gamma", "lambda_")
pytestmark = pytest.mark.usefixtures("x64")


def scan_gae(floats: Arrays, flags: Arrays) -> tuple[jax.Array, jax.Array]:
    """GAE as a scan over rows, carrying (A, V) of the next real row; every input finite."""
    rewards, values = floats["rewards"], floats["values"]
    shape = rewards.shape
    longer = values.shape[0] == shape[0] + 1
    last = values[-1] if longer else floats.get("last_values", 0.0)
    rows = (
        rewards,
        values[: shape[0]],
        floats.get("next_values"),
        floats.get("final_values"),
        jnp.broadcast_to(floats.get("gamma", 0.99), shape),
        jnp.broadcast_to(floats.get("lambda_", 0.95), shape),
        *(
            jnp.broadcast_to(flags.get(key, default), shape)
            for key, default in (("terminated", False), ("truncated", False), ("mask", True))
        ),
    )

    def step(carry: Any, row: Any) -> Any:
        later, v_later = carry
        r, v, nxt, fin, gamma, lam, term, trunc, real = row
        v_next = v_later if nxt is None else nxt
        v_cut = v_next if fin is None else fin
        v_next = jnp.where(term, 0.0, jnp.where(trunc, v_cut, v_next))
        a = r + gamma * v_next - v + jnp.where(term | trunc, 0.0, gamma * lam * later)
        return (jnp.where(real, a, later), jnp.where(real, v, v_later)), (
            jnp.where(real, a, 0.0),
            jnp.where(real, a + v, 0.0),
        )

    start = (jnp.zeros(shape[1:]), jnp.broadcast_to(jnp.asarray(last, rewards.dtype), shape[1:]))
    return jax.lax.scan(step, start, rows, reverse=True)[1]


def scan_recurrence(floats: Arrays, reset: Any, reverse: bool) -> jax.Array:
    b = floats["b"]
    start = jnp.broadcast_to(floats.get("initial", jnp.zeros(())), b.shape[1:])
    rows = (jnp.broadcast_to(floats["a"], b.shape), b, jnp.broadcast_to(False if reset is None else reset, b.shape))

    def step(y: Any, row: Any) -> Any:
        a, b, starts = row
        y = jnp.where(starts, b, a * y + b)
        return y, y

    return jax.lax.scan(step, start, rows, reverse=reverse)[1]


def split(problem: Arrays) -> tuple[Arrays, Arrays]:
    problem = to_jax(problem)
    return {k: x for k, x in problem.items() if k in FLOATS}, {k: x for k, x in problem.items() if k not in FLOATS}


def finite(floats: Arrays) -> Arrays:
    return jax.tree.map(lambda x: jnp.where(jnp.isnan(x), 0.0, x), floats)


def weighted(result: Any) -> Any:
    """A scalar that depends on every output in its own way."""
    return sum(
        jnp.vdot(x, jnp.asarray(np.random.default_rng(99 + i).standard_normal(x.shape), x.dtype))
        for i, x in enumerate(result)
    )


def jit_grad(fn: Callable[..., Any], **options: Any) -> Callable[..., Any]:
    """Compiled as a whole: far quicker than one program per operation."""
    return jax.jit(jax.grad(fn, **options))


# The independent derivatives, compiled once per structure of the inputs.
scan_grad = jit_grad(lambda floats, flags: weighted(scan_gae(floats, flags)))
recurrence_grad = jax.jit(
    jax.grad(lambda floats, reset, reverse: weighted([scan_recurrence(floats, reset, reverse)])), static_argnums=2
)


def problem_with(seed: int, source: str, flags: str, decays: str, masked: bool) -> Arrays:
    rng = np.random.default_rng(seed)
    problem = oracle.gae_problem(seed, (T, N), source=source, flags=flags, dtype=np.float64)
    shape = {"0-d": (), "[T,1]": (T, 1), "[1,N]": (1, N), "[T,N]": (T, N)}[decays]
    problem |= {"gamma": rng.uniform(0.5, 1, shape), "lambda_": rng.uniform(0.5, 1, shape)}
    if masked:
        problem["mask"] = np.array([[1, 1], [0, 1], [1, 0], [1, 1], [1, 0]], bool)
    return problem


CASES = [
    ("last_values", "both", "0-d", False),
    ("longer_values", "both", "[T,1]", False),
    ("next_values", "both", "[1,N]", False),
    ("last_values", "neither", "[T,N]", False),
    ("last_values", "both", "0-d", True),
    ("longer_values", "both", "[T,N]", True),
    ("next_values", "terminated", "[T,1]", True),
]


@pytest.mark.parametrize(("source", "flags", "decays", "masked"), CASES, ids=str)
def test_every_float_operand_against_autodiff_of_a_scan(
    gae: Call, source: str, flags: str, decays: str, masked: bool
) -> None:
    # Dead places hold NaN for the library and 0 for the scan: gradients must agree, finite and 0 there.
    floats, others = split(problem_with(0, source, flags, decays, masked))
    got = jit_grad(lambda f: weighted(gae(**f, **others)))(floats)
    expected = scan_grad(finite(floats), others)
    assert got.keys() == expected.keys()
    for name in floats:
        oracle.assert_close(got[name], expected[name], 1e-12)
        dead = np.isnan(np.asarray(floats[name]))
        assert not np.asarray(got[name])[dead].any()


@pytest.mark.parametrize(("source", "flags", "decays", "masked"), [CASES[2], CASES[5]], ids=str)
def test_finite_differences_to_second_order(gae: Call, source: str, flags: str, decays: str, masked: bool) -> None:
    floats, others = split(problem_with(1, source, flags, decays, masked))
    check_grads(
        jax.jit(lambda f: tuple(gae(**f, **others))),
        (finite(floats),),
        order=2,
        modes=("fwd", "rev"),
        atol=1e-5,
        rtol=1e-5,
    )


@pytest.mark.parametrize("place", ["final_values", "next_values", "last_values", "masked"])
def test_garbage_in_dead_places_stays_out_of_gradients(gae: Call, place: str) -> None:
    flags = {"terminated": np.array([[0, 1], [1, 0], [0, 0], [0, 0], [1, 1]], bool)}
    problem = (
        oracle.gae_problem(
            2,
            (T, N),
            source="next_values" if place == "next_values" else "last_values",
            flags="neither",
            dtype=np.float64,
        )
        | flags
    )
    garbage = np.full((T, N), np.nan)
    if place == "final_values":
        problem |= {"truncated": flags["terminated"], "final_values": garbage}
    elif place == "next_values":
        problem["next_values"] = np.where(flags["terminated"], np.inf, problem["next_values"])
    elif place == "last_values":
        problem["last_values"] = np.full(N, np.nan)
    else:
        problem["mask"] = np.array([[1, 1], [1, 0], [0, 1], [1, 1], [1, 1]], bool)
        problem |= {"gamma": np.where(problem["mask"], 0.9, np.nan), "lambda_": np.where(problem["mask"], 0.9, np.inf)}
        problem |= {key: np.where(problem["mask"], problem[key], np.nan) for key in ("rewards", "values")}
    floats, others = split(problem)
    value, grads = jax.jit(jax.value_and_grad(lambda f: weighted(gae(**f, **others))))(floats)
    clean = jax.tree.map(lambda x: jnp.where(jnp.isfinite(x), x, 0.0), floats)
    expected_value, expected = jax.jit(jax.value_and_grad(lambda f: weighted(scan_gae(f, others))))(clean)
    np.testing.assert_allclose(value, expected_value, rtol=1e-12)
    for name in floats:
        oracle.assert_close(grads[name], expected[name], 1e-12)
    tangent = jax.tree.map(jnp.ones_like, floats)
    out = jax.jit(lambda f, t: jax.jvp(lambda f: tuple(gae(**f, **others)), (f,), (t,))[1])(floats, tangent)
    assert all(bool(jnp.isfinite(x).all()) for x in out)


def test_a_neighbouring_episode_stays_out_of_gradients(gae: Call) -> None:
    # The second episode is NaN throughout, the loss looks at the first only; a decay of both would sum over both.
    problem = oracle.gae_problem(3, (T, N), flags="neither", dtype=np.float64)
    problem |= {
        "terminated": np.arange(T)[:, None] == 2,
        "gamma": np.full((T, 1), 0.9),
        "lambda_": np.full((T, N), 0.8),
    }
    for name in ("rewards", "values"):
        problem[name][3:] = np.nan
    floats, others = split(problem)
    first = {k: x[:3] if x.ndim == 2 else x for k, x in floats.items()}
    got = jit_grad(lambda f: gae(**f, **others).advantages[:3].sum())(floats)
    expected = jit_grad(lambda f: scan_gae(f, {"terminated": others["terminated"][:3]})[0].sum())(first)
    for name in floats:
        oracle.assert_close(got[name][:3] if got[name].ndim == 2 else got[name], expected[name], 1e-12)


def test_third_order_in_lambda_by_hand(gae: Call) -> None:
    # A_0 is the polynomial sum_k (gamma lambda)^k delta_k: its third derivative at T = 4 is 6 gamma^3 delta_3.
    rewards = jnp.asarray([1.0, 2.0, 3.0, 4.0])
    third = jit_grad(
        jax.grad(
            jax.grad(lambda lam: gae(rewards, jnp.zeros(4), last_values=0.0, gamma=0.5, lambda_=lam).advantages[0])
        )
    )
    np.testing.assert_allclose(third(0.3), 6 * 0.5**3 * 4, rtol=1e-12)


def test_values_by_hand(gae: Call) -> None:
    # A_t = delta_t + gamma lambda A_{t+1} without flags: dA_0/dV_0 = -1, dA_0/dV_1 = gamma (1 - lambda).
    grad = jit_grad(lambda v: gae(jnp.zeros(3), v, last_values=0.0, gamma=0.9, lambda_=0.5).advantages[0])(jnp.ones(3))
    np.testing.assert_allclose(grad, [-1.0, 0.45, 0.45 * 0.45], rtol=1e-12)


def test_along_another_axis_and_with_broadcast_flags(gae: Call) -> None:
    problem = oracle.gae_problem(4, (2, T, N), 1, flags="neither", dtype=np.float64)
    axis = problem.pop("axis")
    problem["terminated"] = np.random.default_rng(4).random((2, T, 1)) < 0.3
    problem |= {"gamma": np.full((1, 1, N), 0.9), "lambda_": np.array(0.8)}
    floats, others = split(problem)
    got = jit_grad(lambda f: (gae(**f, **others, axis=axis).advantages ** 2).sum())(floats)

    def moved(f: Arrays) -> Any:
        front = {k: jnp.moveaxis(x, 1, 0) if x.ndim == 3 else x for k, x in f.items()}
        return (scan_gae(front, {"terminated": jnp.moveaxis(others["terminated"], 1, 0)})[0] ** 2).sum()

    expected = jit_grad(moved)(floats)
    for name in floats:
        oracle.assert_close(got[name], expected[name], 1e-12)


@pytest.mark.parametrize("masked", [False, True])
def test_through_normalization(gae: Call, masked: bool) -> None:
    floats, others = split(problem_with(5, "last_values", "both", "0-d", masked))

    def normalized(f: Arrays) -> jax.Array:
        advantages, _ = scan_gae(f, others)
        real = others.get("mask", jnp.ones((T, N), bool))
        mean = advantages.sum() / real.sum()
        std = jnp.sqrt(jnp.where(real, (advantages - mean) ** 2, 0.0).sum() / real.sum())
        return weighted([jnp.where(real, (advantages - mean) / (std + 1e-8), 0.0)])

    got = jit_grad(lambda f: weighted([gae(**f, **others, normalize=True).advantages]))(floats)
    expected = jit_grad(normalized)(finite(floats))
    for name in floats:
        oracle.assert_close(got[name], expected[name], 1e-10)


def test_through_normalization_of_a_constant_is_finite(gae: Call) -> None:
    for shape in ((1, 1), (T, N)):
        zeros = jnp.zeros(shape)
        grad = jit_grad(lambda r, z=zeros: gae(r, z, last_values=0.0, gamma=0.0, normalize=True).advantages[0, 0])(
            zeros + 2.0
        )
        assert bool(jnp.isfinite(grad).all())


def test_without_returns(gae: Call) -> None:
    floats, others = split(problem_with(6, "last_values", "both", "0-d", False))
    got = jit_grad(lambda f: gae(**f, **others, with_returns=False).advantages.sum())(floats)
    expected = jit_grad(lambda f: scan_gae(f, others)[0].sum())(finite(floats))
    for name in floats:
        oracle.assert_close(got[name], expected[name], 1e-12)


def test_one_output_at_a_time(gae: Call) -> None:
    floats, others = split(problem_with(7, "last_values", "both", "0-d", False))
    for i in range(2):
        got = jit_grad(lambda f, i=i: gae(**f, **others)[i].sum())(floats)
        expected = jit_grad(lambda f, i=i: scan_gae(f, others)[i].sum())(finite(floats))
        for name in floats:
            oracle.assert_close(got[name], expected[name], 1e-12)


@pytest.fixture(scope="module")
def batch() -> tuple[list[Arrays], Arrays, Arrays]:
    """Three problems, their floats stacked, and the flags they share."""
    problems = [problem_with(seed, "last_values", "both", "0-d", False) for seed in range(3)]
    others = {key: problems[0][key] for key in ("terminated", "truncated")}
    floats = [{k: np.nan_to_num(p[k], nan=0.5) for k in FLOATS if k in p} for p in problems]
    return floats, {k: np.stack([f[k] for f in floats]) for k in floats[0]}, others


@pytest.mark.parametrize(
    "order", ["vmap of grad", "grad of vmap", "jit of vmap of grad", "grad inside scan", "grad of scan", "checkpoint"]
)
def test_with_other_transformations(gae: Call, batch: tuple[list[Arrays], Arrays, Arrays], order: str) -> None:
    floats, stacked, others = to_jax(batch)

    def loss(f: Arrays) -> jax.Array:
        return weighted(gae(**f, **others))

    grad = jax.grad(loss)
    if order == "vmap of grad":
        got = jax.vmap(grad)(stacked)  # op by op
    elif order == "grad of vmap":
        got = jit_grad(lambda f: jax.vmap(loss)(f).sum())(stacked)
    elif order == "jit of vmap of grad":
        got = jax.jit(jax.vmap(grad))(stacked)
    elif order == "grad inside scan":
        got = jax.lax.scan(lambda carry, f: (carry, grad(f)), 0, stacked)[1]
    elif order == "grad of scan":
        got = jit_grad(lambda s: jax.lax.scan(lambda carry, f: (carry + loss(f), None), 0.0, s)[0])(stacked)
    else:
        got = jax.jit(jax.vmap(jax.grad(jax.checkpoint(loss))))(stacked)
    for i, f in enumerate(floats):
        expected = scan_grad(f, others)
        for name in f:
            oracle.assert_close(got[name][i], expected[name], 1e-12)


def test_grad_with_only_the_flags_batched(gae: Call) -> None:
    floats, _ = split(problem_with(8, "last_values", "neither", "0-d", False))
    terminated = jnp.asarray(np.random.default_rng(8).random((3, T, N)) < 0.3)
    got = jax.jit(jax.vmap(lambda t: jax.grad(lambda f: weighted(gae(**f, terminated=t)))(floats)))(terminated)
    for i in range(3):
        expected = scan_grad(floats, {"terminated": terminated[i]})
        for name in floats:
            oracle.assert_close(got[name][i], expected[name], 1e-12)


def test_hessian_vector_product_and_linearize(gae: Call) -> None:
    floats, others = split(problem_with(9, "last_values", "both", "0-d", False))
    floats = finite(floats)
    tangent = jax.tree.map(lambda x: jnp.cos(jnp.arange(x.size, dtype=x.dtype)).reshape(x.shape), floats)

    def cubed(call: Callable[[Arrays], Any]) -> Callable[[Arrays], jax.Array]:
        return lambda f: (call(f)[0] ** 3).sum()

    ours, scan = cubed(lambda f: gae(**f, **others)), cubed(lambda f: scan_gae(f, others))
    got, expected = (jax.jit(lambda f, g=g: jax.jvp(jax.grad(g), (f,), (tangent,))[1])(floats) for g in (ours, scan))
    for name in floats:
        oracle.assert_close(got[name], expected[name], 1e-11)
    value, linear = jax.linearize(jax.jit(ours), floats)
    np.testing.assert_allclose(value, scan(floats), rtol=1e-12)
    np.testing.assert_allclose(linear(tangent), jax.jvp(scan, (floats,), (tangent,))[1], rtol=1e-11)


def test_gradients_of_16_bit_data_keep_their_dtype(gae: Call) -> None:
    rewards, values = jnp.ones((T, N), jnp.bfloat16), jnp.zeros((T, N), jnp.bfloat16)
    grads = jit_grad(
        lambda r, v, g: gae(r, v, last_values=0.0, gamma=g).advantages.astype(jnp.float32).sum(), argnums=(0, 1, 2)
    )(rewards, values, jnp.float32(0.99))
    assert [str(g.dtype) for g in grads] == ["bfloat16", "bfloat16", "float32"]
    expected = jit_grad(lambda r: scan_gae({"rewards": r, "values": jnp.zeros((T, N))}, {})[0].sum())(jnp.ones((T, N)))
    oracle.assert_close(grads[0], expected, 2.0**-7)


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("coefficient", ["[T,N]", "[T,1]", "[1,1]"])
def test_linear_recurrence(linear_recurrence: Call, coefficient: str, reverse: bool) -> None:
    problem = to_jax(oracle.recurrence_problem(10, (T, N), dtype=np.float64))
    reset = problem.pop("reset")
    assert bool(reset.any())
    assert not bool(reset.all())
    problem["a"] = problem["a"][{"[T,N]": np.s_[:], "[T,1]": np.s_[:, :1], "[1,1]": np.s_[:1, :1]}[coefficient]]
    for resets in (reset, None):

        def ours(f: Arrays, resets: Any = resets) -> Any:
            return linear_recurrence(**f, reset=resets, reverse=reverse)

        got = jit_grad(lambda f, g=ours: weighted([g(f)]))(problem)
        expected = recurrence_grad(problem, resets, reverse)
        for name in problem:
            oracle.assert_close(got[name], expected[name], 1e-12)
    if coefficient == "[T,1]":
        check_grads(
            jax.jit(lambda f: linear_recurrence(**f, reset=reset, reverse=reverse)),
            (problem,),
            order=2,
            modes=("fwd", "rev"),
            atol=1e-5,
            rtol=1e-5,
        )


@pytest.mark.parametrize("reverse", [False, True])
def test_linear_recurrence_with_garbage_before_a_reset(linear_recurrence: Call, reverse: bool) -> None:
    # The coefficient at a reset is dead, and so is the neighbour it would have multiplied.
    problem = oracle.recurrence_problem(11, (T, N), dtype=np.float64)
    reset = np.arange(T)[:, None] == np.array([2, 3])
    problem["a"] = np.where(reset, np.nan, problem["a"])
    problem["reset"] = reset
    arrays = to_jax(problem)
    floats = {k: arrays[k] for k in ("a", "b", "initial")}
    got = jit_grad(lambda f: weighted([linear_recurrence(**f, reset=reset, reverse=reverse)]))(floats)
    expected = recurrence_grad(finite(floats), jnp.asarray(reset), reverse)
    for name in floats:
        oracle.assert_close(got[name], expected[name], 1e-12)


def test_linear_recurrence_vmapped_gradients(linear_recurrence: Call) -> None:
    problems = [oracle.recurrence_problem(seed, (T, N), dtype=np.float64) for seed in range(3)]
    reset = jnp.asarray(problems[0]["reset"])
    stacked = {k: jnp.stack([p[k] for p in problems]) for k in ("a", "b", "initial")}
    got = jax.jit(jax.vmap(jax.grad(lambda f: weighted([linear_recurrence(**f, reset=reset)]))))(stacked)
    shared = jit_grad(
        lambda a: jax.vmap(lambda b: weighted([linear_recurrence(a, b, reset=reset)]))(stacked["b"]).sum()
    )(stacked["a"][0])
    total = jnp.zeros((T, N))
    for i in range(3):
        f = {k: x[i] for k, x in stacked.items()}
        expected = recurrence_grad(f, reset, False)
        for name in f:
            oracle.assert_close(got[name][i], expected[name], 1e-12)
        alone = {"a": stacked["a"][0], "b": stacked["b"][i]}
        total += recurrence_grad(alone, reset, False)["a"]
    oracle.assert_close(shared, total, 1e-12)


# Where `last_values` is dead, and the sum of discounted returns as a function of (rewards, gamma, final_values).
DEAD = {
    "truncated, then masked": ({"truncated": [True, False], "mask": [True, False]}, lambda r, g, f: r[0] + g * f[0]),
    "terminated": ({"terminated": [False, True]}, lambda r, g, f: r[0] + g * r[1] + r[1]),
    "masked everywhere": ({"mask": [False, False]}, lambda r, g, f: 0.0 * g),
}


@pytest.mark.parametrize("place", DEAD)
@pytest.mark.parametrize("name", ["discounted_returns", "n_step_returns"])
def test_second_derivatives_with_dead_last_values(implementation: str, name: str, place: str) -> None:
    flags, formula = DEAD[place]
    arguments = {k: jnp.asarray(x) for k, x in flags.items()}
    if name == "n_step_returns" and place == "terminated":
        formula = lambda r, g, f: r[0] + g * 0.5 + r[1]  # noqa: E731  one step each: values are 0.5
    more = {} if name == "discounted_returns" else {"values": jnp.full(2, 0.5), "n": 1}

    def ours(r: Any, g: Any, f: Any, last: Any) -> Any:
        given = arguments | ({"final_values": f} if "truncated" in flags else {})
        function = getattr(rl_triton_jax, name)
        return function(r, **more, **given, last_values=last, gamma=g, implementation=implementation).sum()

    places = (jnp.ones(2), jnp.asarray(0.9), jnp.asarray([0.3, jnp.nan]))
    first = jax.jit(jax.jacrev(jax.jacrev(ours, (0, 1, 2, 3)), (0, 1, 2, 3)))(*places, jnp.asarray(jnp.nan))
    expected = jax.hessian(formula, (0, 1, 2))(*places)
    for row, wanted in zip(first[:3], expected, strict=True):
        for got, value in zip(row[:3], wanted, strict=True):
            assert np.array_equal(got, value)
        assert not np.any(row[3])
    assert not any(np.any(x) for x in first[3])

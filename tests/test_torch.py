"""The torch front end: the same names, numbers, errors and derivatives on tensors."""

from __future__ import annotations

import inspect
from typing import Any

import jax
import numpy as np
import oracle
import pytest
from test_errors import GAE_CASES, GOOD, RECURRENCE, RECURRENCE_CASES, assert_message

import rl_triton_jax

torch = pytest.importorskip("torch")
front = pytest.importorskip("rl_triton_jax.torch")

FLOATS = ("rewards", "values", "last_values", "next_values", "final_values", "gamma", "lambda_", "a", "b", "initial")


def to_torch(tree: dict[str, Any], dtype: Any = None, device: Any = None) -> dict[str, Any]:
    """NumPy and JAX arrays to tensors, floats in `dtype` if one is given."""
    out = {}
    for key, x in tree.items():
        if isinstance(x, np.ndarray | jax.Array):
            x = torch.from_numpy(np.array(x)).to(device)
            if dtype is not None and x.is_floating_point():
                x = x.to(dtype)
        out[key] = x
    return out


@pytest.fixture(
    params=["cpu", pytest.param("cuda", marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU"))]
)
def device(request: pytest.FixtureRequest) -> str:
    return request.param


def check(problem: dict[str, Any], device: str = "cpu", rtol: float = 1e-5, **options: Any) -> Any:
    result = front.gae(**to_torch(problem, device=device), **options)
    for got, expected in zip(result, oracle.gae(**problem, **options), strict=True):
        assert got.device.type == device
        oracle.assert_close(got, expected, rtol)
    return result


def test_the_signatures_are_those_of_the_jax_front_end() -> None:
    for name in ("gae", "linear_recurrence"):
        ours, theirs = (inspect.signature(getattr(m, name)).parameters for m in (front, rl_triton_jax))
        assert [(p.name, p.kind, p.default) for p in ours.values()] == [
            (p.name, p.kind, p.default) for p in theirs.values()
        ]


def test_the_signatures_are_as_published() -> None:
    parameters = inspect.signature(rl_triton_jax.gae).parameters
    assert list(parameters) == [
        "rewards",
        "values",
        "terminated",
        "truncated",
        "last_values",
        "next_values",
        "final_values",
        "gamma",
        "lambda_",
        "mask",
        "normalize",
        "with_returns",
        "axis",
        "implementation",
    ]
    assert [
        parameters[k].default for k in ("gamma", "lambda_", "normalize", "with_returns", "axis", "implementation")
    ] == [0.99, 0.95, False, True, 0, None]
    assert list(inspect.signature(rl_triton_jax.linear_recurrence).parameters) == [
        "a",
        "b",
        "initial",
        "reset",
        "reverse",
        "axis",
        "implementation",
    ]


@pytest.mark.parametrize("flags", oracle.FLAGS)
@pytest.mark.parametrize("source", oracle.SOURCES)
def test_every_source_and_flag(device: str, source: str, flags: str) -> None:
    problem = oracle.gae_problem(0, (17, 5), source=source, flags=flags)
    result = check(problem, device)
    assert result._fields == ("advantages", "returns")
    assert result.advantages.dtype == result.returns.dtype == torch.float32
    check(problem | {"mask": np.random.default_rng(0).random((17, 5)) > 0.3}, device)


@pytest.mark.parametrize(
    ("shape", "axis"),
    [
        ((1,), 0),
        ((129,), -1),
        ((63, 1), 0),
        ((5, 17), 1),
        ((2, 5, 3), 1),
        ((2, 5, 3), -1),
        ((100, 3), 0),
        ((2, 3, 5, 2), -2),
        ((0, 3), 0),
        ((3, 0), 0),
        ((0,), 0),
    ],
    ids=str,
)
def test_sizes_and_axes(device: str, shape: tuple[int, ...], axis: int) -> None:
    check(oracle.gae_problem(1, shape, axis), device)
    check(oracle.gae_problem(1, shape, axis, source="longer_values"), device)
    problem = oracle.recurrence_problem(1, shape, axis)
    for reverse in (False, True):
        y = front.linear_recurrence(**to_torch(problem, device=device), reverse=reverse)
        oracle.assert_close(y, oracle.linear_recurrence(**problem, reverse=reverse), dtype="float32")


def test_flag_dtypes_and_broadcast_forms(device: str) -> None:
    problem = oracle.gae_problem(2, (17, 5))
    expected = front.gae(**to_torch(problem, device=device))
    for dtype, true in [
        ("uint8", 255),
        ("int8", -1),
        ("int32", 256),
        ("int64", -7),
        ("float32", 0.5),
        ("float32", -1.0),
        ("float16", 0.25),
        ("bfloat16", 0.5),
        ("float64", 1e-3),
    ]:
        flags = {
            k: torch.where(
                torch.from_numpy(problem[k]),
                torch.tensor(true, dtype=getattr(torch, dtype)),
                torch.tensor(0, dtype=getattr(torch, dtype)),
            ).to(device)
            for k in ("terminated", "truncated")
        }
        got = front.gae(**to_torch(problem, device=device) | flags)
        assert torch.equal(got.advantages, expected.advantages), dtype
    rng = np.random.default_rng(2)
    for shape in ((17, 1), (1, 5), (1, 1)):
        check(
            problem
            | {
                "terminated": rng.random(shape) < 0.3,
                "mask": rng.random(shape) < 0.8,
                "final_values": np.nan_to_num(problem["final_values"]),
                "gamma": rng.random(shape).astype(np.float32),
                "lambda_": rng.random(shape).astype(np.float32),
            },
            device,
        )


def test_decays_and_last_values_as_numbers_and_0d(device: str) -> None:
    problem = oracle.gae_problem(3, (17, 5))
    for number in (1, 0, 0.5, np.array(0.5, np.float32)):
        check(problem | {"gamma": number, "lambda_": number}, device)
        check(problem | {"last_values": number}, device)


@pytest.mark.parametrize("masked", [False, True])
def test_normalize_and_without_returns(device: str, masked: bool) -> None:
    problem = oracle.gae_problem(4, (17, 5))
    if masked:
        problem["mask"] = np.random.default_rng(4).random((17, 5)) > 0.3
    check(problem, device, normalize=True)
    assert front.gae(**to_torch(problem, device=device), with_returns=False).returns is None
    one = front.gae(
        torch.full((1, 1), 3.0, device=device), torch.zeros(1, 1, device=device), last_values=0.0, normalize=True
    )
    assert one.advantages.item() == 0.0
    assert one.returns.item() == 3.0
    rewards = (1000 + 0.01 * np.random.default_rng(4).standard_normal((64, 32))).astype(np.float32)
    check(
        {"rewards": rewards, "values": np.zeros((64, 32), np.float32), "last_values": 0.0, "gamma": 0.0},
        device,
        1e-4,
        normalize=True,
    )


def test_dtypes(device: str) -> None:
    problem = oracle.gae_problem(5, (129, 2), rate=0.05)
    for dtype, half_ulp in [(torch.float16, 2.0**-11), (torch.bfloat16, 2.0**-8)]:
        low = to_torch(problem, dtype, device)
        expected, _ = oracle.gae(**{k: oracle.to_numpy(x) for k, x in low.items()})
        result = front.gae(**low)
        assert result.advantages.dtype == result.returns.dtype == dtype
        oracle.assert_close(result.advantages, expected, half_ulp * 1.01)
    wide = to_torch(oracle.gae_problem(5, (129, 2), dtype=np.float64), device=device)
    oracle.assert_close(
        front.gae(**wide).advantages,
        oracle.gae(**{k: oracle.to_numpy(x) for k, x in wide.items()})[0],
        1e-13,
        dtype="float64",
    )
    ones = torch.ones(4, 2, device=device)
    for rewards, values, out in [
        (ones.bfloat16(), ones, torch.float32),
        (ones.half(), ones.bfloat16(), torch.float32),
        (ones.int(), ones, torch.float32),
        (ones.long(), ones.bfloat16(), torch.bfloat16),
        (ones.int(), ones.int(), torch.float32),
        (ones.bool(), ones.double(), torch.float64),
    ]:
        assert front.gae(rewards, values, last_values=0.0).advantages.dtype == out
    decays = {
        "gamma": torch.full((4, 1), 0.9, dtype=torch.float64, device=device),
        "lambda_": torch.tensor(0.9, dtype=torch.float64),
    }
    assert front.gae(ones, ones, last_values=0.0, **decays).advantages.dtype == torch.float32


STRIDED = {
    "transposed": lambda x: x.t().contiguous().t(),
    "every other row": lambda x: x.repeat_interleave(2, 0)[::2],
    "every other column": lambda x: x.repeat_interleave(2, 1)[:, ::2],
    "inside a larger one": lambda x: torch.nn.functional.pad(x, (1, 2, 3, 1))[3:-1, 1:-2],
    "offset": lambda x: torch.cat([x[:1], x])[1:],
    "last axis unfolded": lambda x: torch.stack([x, x], -1)[..., 0],
}


@pytest.mark.parametrize("layout", STRIDED)
def test_strides(device: str, layout: str) -> None:
    tensors = to_torch(oracle.gae_problem(6, (17, 6)), device=device)
    expected = front.gae(**tensors)
    for names in (["rewards"], ["values", "terminated"], list(tensors)):
        strided = {k: STRIDED[layout](x) if k in names and x.ndim == 2 else x for k, x in tensors.items()}
        assert all(torch.equal(strided[k].nan_to_num(), tensors[k].nan_to_num()) for k in tensors)
        got = front.gae(**strided)
        assert torch.allclose(got.advantages, expected.advantages, atol=1e-6)
        assert torch.allclose(got.returns, expected.returns, atol=1e-6)
    recurrence = to_torch(oracle.recurrence_problem(6, (17, 6)), device=device)
    y = front.linear_recurrence(**{k: STRIDED[layout](x) if x.ndim == 2 else x for k, x in recurrence.items()})
    assert torch.allclose(y, front.linear_recurrence(**recurrence), atol=1e-6)


def test_expanded_inputs(device: str) -> None:
    row = torch.linspace(-1, 1, 5, device=device)
    problem = {
        "rewards": row.expand(17, 5),
        "values": row.flip(0).expand(17, 5),
        "last_values": torch.ones((), device=device).expand(5),
        "terminated": torch.zeros(1, 1, dtype=torch.bool, device=device).expand(17, 5),
        "gamma": torch.full((1, 1), 0.9, device=device).expand(17, 5),
    }
    expected, _ = oracle.gae(**{k: oracle.to_numpy(x) for k, x in problem.items()})
    oracle.assert_close(front.gae(**problem).advantages, expected)


def test_inputs_are_not_written_and_results_are_their_own_memory(device: str) -> None:
    problem = to_torch(oracle.gae_problem(7, (17, 5)), device=device)
    copies = {k: x.clone() for k, x in problem.items()}
    result = front.gae(**problem)
    for x in result:
        x.fill_(7.0)
    assert all(torch.equal(problem[k].nan_to_num(), copies[k].nan_to_num()) for k in problem)
    y = front.linear_recurrence(torch.zeros(5, 2, device=device), (b := torch.ones(5, 2, device=device)))
    y.fill_(7.0)
    assert bool((b == 1).all())


def test_containment(device: str) -> None:
    problem = to_torch(oracle.gae_problem(8, (17, 5), flags="neither"), device=device)
    problem["terminated"] = torch.zeros(17, 5, dtype=torch.bool, device=device)
    problem["terminated"][[4, 11]] = True
    clean = front.gae(**problem)
    for value in (float("nan"), float("inf")):
        dirty = {k: x.clone() for k, x in problem.items()}
        for key in ("rewards", "values"):
            dirty[key][5:12] = value
            dirty[key][:, 3] = value
        got = front.gae(**dirty)
        keep = torch.ones(17, 5, dtype=torch.bool, device=device)
        keep[5:12], keep[:, 3] = False, False
        for x, y in zip(got, clean, strict=True):
            assert torch.equal(x[keep], y[keep])


@pytest.mark.parametrize(("call", "words"), [c[1:] for c in GAE_CASES], ids=[c[0] for c in GAE_CASES])
def test_gae_errors(call: dict[str, Any], words: list[str]) -> None:
    with pytest.raises((TypeError, ValueError)) as error:
        front.gae(**to_torch(call))
    assert_message(str(error.value), words)


@pytest.mark.parametrize(("call", "words"), [c[1:] for c in RECURRENCE_CASES], ids=[c[0] for c in RECURRENCE_CASES])
def test_linear_recurrence_errors(call: dict[str, Any], words: list[str]) -> None:
    with pytest.raises((TypeError, ValueError)) as error:
        front.linear_recurrence(**to_torch(call))
    assert_message(str(error.value), words)


def test_positional_and_foreign_arguments() -> None:
    ones = torch.ones(5, 3)
    with pytest.raises(TypeError):
        front.gae(ones, ones, None, None, ones[0])
    with pytest.raises(TypeError, match="rewards"):
        front.gae(GOOD["rewards"], ones, last_values=0.0)  # a JAX array
    with pytest.raises(TypeError, match="rewards"):
        rl_triton_jax.gae(ones, GOOD["values"], last_values=0.0)  # a tensor
    with pytest.raises(TypeError, match=r"\bb\b"):
        front.linear_recurrence(ones, RECURRENCE["b"])


def leaves(problem: dict[str, Any]) -> tuple[list[str], list[Any], dict[str, Any]]:
    """Names and tensors of the float operands, in float64 with gradients on, and the rest."""
    tensors = to_torch(problem, torch.float64)
    names = [k for k in FLOATS if k in tensors]
    return names, [tensors[k].requires_grad_() for k in names], {k: x for k, x in tensors.items() if k not in names}


@pytest.mark.parametrize(
    ("source", "decays", "masked"),
    [("last_values", (), False), ("longer_values", (5, 1), True), ("next_values", (1, 2), False)],
    ids=str,
)
def test_gradcheck(source: str, decays: tuple[int, ...], masked: bool) -> None:
    rng = np.random.default_rng(9)
    problem = oracle.gae_problem(9, (5, 2), source=source, dtype=np.float64)
    problem = {k: np.nan_to_num(x) if x.dtype == np.float64 else x for k, x in problem.items()}
    problem |= {"gamma": rng.uniform(0.5, 1, decays), "lambda_": rng.uniform(0.5, 1, decays)}
    if masked:
        problem["mask"] = rng.random((5, 2)) > 0.3
    names, tensors, others = leaves(problem)

    def call(*floats: Any) -> Any:
        return tuple(front.gae(**dict(zip(names, floats, strict=True)), **others))

    assert torch.autograd.gradcheck(call, tensors)
    assert torch.autograd.gradgradcheck(call, tensors)


@pytest.mark.parametrize("reverse", [False, True])
def test_gradcheck_linear_recurrence(reverse: bool) -> None:
    for seed, shape in enumerate([(5, 2), (1, 1)]):
        problem = oracle.recurrence_problem(seed, (5, 2), dtype=np.float64)
        problem["a"] = problem["a"][: shape[0], : shape[1]]
        names, tensors, others = leaves(problem)

        def call(*floats: Any, names: list[str] = names, others: dict[str, Any] = others) -> Any:
            return front.linear_recurrence(**dict(zip(names, floats, strict=True)), **others, reverse=reverse)

        assert torch.autograd.gradcheck(call, tensors)
        assert torch.autograd.gradgradcheck(call, tensors)


def test_gradients_are_finite_where_dead_places_hold_garbage() -> None:
    for source in ("last_values", "next_values"):
        names, tensors, others = leaves(oracle.gae_problem(10, (5, 2), source=source, dtype=np.float64))
        assert any(bool(x.isnan().any()) for x in tensors)
        result = front.gae(**dict(zip(names, tensors, strict=True)), **others)
        (result.advantages.sum() + (result.returns**2).sum()).backward()
        for x in tensors:
            assert bool(x.grad.isfinite().all())
            assert not bool(x.grad[x.isnan()].any())


def test_no_graph_without_gradients() -> None:
    problem = to_torch(oracle.gae_problem(11, (5, 2)))
    assert not front.gae(**problem).advantages.requires_grad
    problem["rewards"].requires_grad_()
    assert front.gae(**problem).advantages.requires_grad
    with torch.no_grad():
        assert not front.gae(**problem).advantages.requires_grad


def test_func_vmap_and_grad() -> None:
    problems = [oracle.gae_problem(seed, (5, 2), flags="terminated") for seed in range(3)]
    stacked = to_torch({k: np.stack([p[k] for p in problems]) for k in problems[0]})
    result = torch.func.vmap(lambda p: tuple(front.gae(**p)))(stacked)
    for i, problem in enumerate(problems):
        for got, expected in zip(result, oracle.gae(**problem), strict=True):
            oracle.assert_close(got[i], expected)
    flags = stacked.pop("terminated")
    shared = {k: x[0] for k, x in stacked.items()}
    only_flags = torch.func.vmap(lambda t: front.gae(**shared, terminated=t).advantages)(flags)
    for i in range(3):
        arguments = problems[0] | {"terminated": problems[i]["terminated"]}
        oracle.assert_close(only_flags[i], oracle.gae(**arguments)[0])
    grad = torch.func.grad(
        lambda v: front.gae(torch.zeros(3), v, last_values=0.0, gamma=0.9, lambda_=0.5).advantages[0]
    )
    torch.testing.assert_close(grad(torch.ones(3)), torch.tensor([-1.0, 0.45, 0.45 * 0.45]))


@pytest.mark.filterwarnings("ignore")
def test_compiles_without_a_graph_break() -> None:
    problem = oracle.gae_problem(12, (17, 5))
    tensors = to_torch(problem)
    compiled = torch.compile(lambda p: front.gae(**p, normalize=True), fullgraph=True, backend="eager")
    for got, expected in zip(compiled(tensors), oracle.gae(**problem, normalize=True), strict=True):
        oracle.assert_close(got, expected)


def test_autocast_leaves_the_numbers_alone() -> None:
    problem = oracle.gae_problem(13, (17, 5))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        result = front.gae(**to_torch(problem))
    oracle.assert_close(result.advantages, oracle.gae(**problem)[0], dtype="float32")


def test_jax_and_torch_agree() -> None:
    problem = oracle.gae_problem(14, (63, 3))
    ours = front.gae(**to_torch(problem))
    theirs = rl_triton_jax.gae(**jax.tree.map(jax.numpy.asarray, problem))
    oracle.assert_close(ours.advantages, np.asarray(theirs.advantages), 1e-6)
    oracle.assert_close(ours.returns, np.asarray(theirs.returns), 1e-6)

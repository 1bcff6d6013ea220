"""What torch does to the estimators: derivatives to second order, the compiler, `torch.func`, fake tensors, autocast, launches.

Values are compared with float64 loops, derivatives with finite differences or with closed forms. Where kernels are concerned a
recorder stands in for them, so that all of it runs without a GPU; `tests/gpu/test_torch_on_gpu.py` has the rest.
"""

from __future__ import annotations

import ctypes
import importlib.util
from collections.abc import Callable, Iterator
from typing import Any

import fast_oracle
import numpy as np
import oracle
import pytest
from cases import Case, cases

if importlib.util.find_spec("torch") is None:
    pytest.skip("no torch", allow_module_level=True)

import torch
from torch._dynamo.testing import CompileCounterWithBackend
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx

import rl_triton_jax.torch as front
from rl_triton_jax import torch_calls, versions
from rl_triton_jax.launch import from_torch, torch_ops

Tensor = torch.Tensor
SHAPE = (7, 3)
ALL = {case.label: case for case in cases(SHAPE, 0, seed=3)}
ONE_EACH = {case.name: case for case in reversed(ALL.values()) if case.variant != "integers"}
FLOATS = ("float32", "float64")


def tensors(arguments: dict[str, Any], dtype: Any = None) -> dict[str, Any]:
    out = {}
    for name, x in arguments.items():
        if isinstance(x, np.ndarray | np.generic):
            x = torch.as_tensor(x)
            x = x.to(dtype) if dtype is not None and x.is_floating_point() else x
        out[name] = x
    return out


def call(case: Case, arguments: dict[str, Any]) -> tuple[Tensor, ...]:
    out = getattr(front, case.name)(**arguments)
    return out if isinstance(out, tuple) else (out,)


def check(got: Any, case: Case, **changed: Any) -> None:
    expected = getattr(fast_oracle, case.name)(**{**case.arguments, **changed}, axis=0)
    for x, y in zip(got if isinstance(got, tuple) else (got,), expected, strict=False):
        oracle.assert_close(x, y)


@pytest.fixture(autouse=True)
def fresh_compiler() -> None:
    torch._dynamo.reset()


# ---- derivatives


@pytest.mark.parametrize("name", ONE_EACH)
def test_first_and_second_derivatives(name: str) -> None:
    case = next(c for c in cases((4, 2), 0, seed=4) if c.label == ONE_EACH[name].label)
    arguments = tensors({n: np.nan_to_num(x) if isinstance(x, np.ndarray) else x for n, x in case.arguments.items()})
    given = {n: x.double() for n, x in arguments.items() if isinstance(x, Tensor) and x.is_floating_point()}
    if "gamma" not in given and name != "episodic_cumsum":
        given["gamma"] = torch.tensor(0.9, dtype=torch.float64)
    others = {n: x for n, x in arguments.items() if n not in given}
    leaves = [x.requires_grad_() for x in given.values()]

    def function(*xs: Tensor) -> Any:
        return call(case, {**others, **dict(zip(given, xs, strict=True))})

    assert torch.autograd.gradcheck(function, leaves, fast_mode=True)
    assert torch.autograd.gradgradcheck(function, leaves, fast_mode=True)


NAN = float("nan")
# Where `last_values` is dead, and the sum of the results as a function of (rewards, gamma, final_values).
DEAD: dict[str, tuple[str, dict[str, Any], Callable[..., Tensor]]] = {
    "returns, truncated, then masked": (
        "discounted_returns",
        {"truncated": [True, False], "mask": [True, False]},
        lambda r, g, f: r[0] + g * f[0],
    ),
    "returns, terminated": (
        "discounted_returns",
        {"terminated": [False, True]},
        lambda r, g, f: r[0] + g * r[1] + r[1],
    ),
    "returns, all masked": ("discounted_returns", {"mask": [False, False]}, lambda r, g, f: 0 * g),
    "one step, truncated, then masked": (
        "n_step_returns",
        {"truncated": [True, False], "mask": [True, False]},
        lambda r, g, f: r[0] + g * f[0],
    ),
    "one step, terminated": ("n_step_returns", {"terminated": [False, True]}, lambda r, g, f: r[0] + 0.5 * g + r[1]),
    "one step, all masked": ("n_step_returns", {"mask": [False, False]}, lambda r, g, f: 0 * g),
}


@pytest.mark.parametrize("dead", [NAN, float("inf")])
@pytest.mark.parametrize("place", DEAD)
def test_second_derivatives_with_dead_last_values(place: str, dead: float) -> None:
    name, flags, formula = DEAD[place]
    more: dict[str, Any] = {k: torch.tensor(x) for k, x in flags.items()}
    if name == "n_step_returns":
        more |= {"values": torch.full((2,), 0.5, dtype=torch.float64), "n": 1}

    def ours(r: Tensor, g: Tensor, f: Tensor, last: Tensor) -> Tensor:
        finals = {"final_values": f} if "truncated" in flags else {}
        return getattr(front, name)(r, last_values=last, gamma=g, **finals, **more).sum()

    at = [torch.tensor(x, dtype=torch.float64) for x in ([1.0, 1.0], 0.9, [0.3, dead], dead)]
    places = (0, 1, 2, 3)
    got = torch.func.jacrev(torch.func.jacrev(ours, argnums=places), argnums=places)(*at)
    expected = torch.func.hessian(formula, argnums=places[:3])(*(x.nan_to_num(posinf=0) for x in at[:3]))
    for i in places:
        for j in places:
            wanted = torch.zeros_like(got[i][j]) if 3 in (i, j) else expected[i][j]
            assert torch.equal(got[i][j], wanted), (i, j)


def test_forward_derivatives_agree_with_reverse_ones() -> None:
    case = ONE_EACH["vtrace"]
    given = tensors({n: np.nan_to_num(x) if isinstance(x, np.ndarray) else x for n, x in case.arguments.items()})

    def function(rewards: Tensor, last: Tensor) -> Tensor:
        return front.vtrace(**{**given, "rewards": rewards, "last_values": last}).vs

    at = given["rewards"], given["last_values"]
    for forward, reverse in zip(
        torch.func.jacfwd(function, argnums=(0, 1))(*at), torch.func.jacrev(function, argnums=(0, 1))(*at), strict=True
    ):
        torch.testing.assert_close(forward, reverse)
    with torch.autograd.forward_ad.dual_level():  # not to be missed by calls that go straight to a launch
        dual = torch.autograd.forward_ad.make_dual(at[0], torch.ones(SHAPE))
        tangent = torch.autograd.forward_ad.unpack_dual(function(dual, at[1])).tangent
    assert tangent is not None
    torch.testing.assert_close(tangent, torch.func.jvp(lambda r: function(r, at[1]), at[:1], (torch.ones(SHAPE),))[1])


# ---- the compiler


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", ONE_EACH)
def test_one_program_for_every_gamma(name: str) -> None:
    case = ONE_EACH[name]
    given = tensors(case.arguments)
    counter = CompileCounterWithBackend("eager")
    compiled = torch.compile(lambda given: call(case, given), fullgraph=True, backend=counter)
    for gamma in (0.9, 0.5, 0.99):
        changed = {} if name == "episodic_cumsum" else {"gamma": np.float64(gamma)}
        check(compiled({**given, **tensors(changed)}), case, **changed)
    assert counter.frame_count == 1


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("dynamic", [None, True])
def test_gamma_as_a_python_number(dynamic: bool | None) -> None:
    """torch builds the first number it sees into the program, unless told otherwise, and makes an input of it at the second."""
    case = ALL["gae, last values"]
    given = tensors(case.arguments)
    counter = CompileCounterWithBackend("aot_eager")
    compiled = torch.compile(
        lambda gamma: tuple(front.gae(**given, gamma=gamma)), fullgraph=True, backend=counter, dynamic=dynamic
    )
    for gamma in (0.9, 0.5, 0.99, 0.25):
        check(compiled(gamma), case, gamma=gamma)
    assert counter.frame_count == (1 if dynamic else 2)


@pytest.mark.filterwarnings("ignore")
def test_sizes_may_be_symbols() -> None:
    counter = CompileCounterWithBackend("eager")
    compiled = torch.compile(lambda p: tuple(front.gae(**p)), fullgraph=True, backend=counter, dynamic=True)
    for shape in ((7, 3), (11, 4), (5, 6)):
        case = next(cases(shape, 0, seed=5))
        check(compiled(tensors(case.arguments)), case)
    assert counter.frame_count == 1


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("backend", ["aot_eager", pytest.param("inductor", marks=pytest.mark.slow)])
def test_compiled_gradients(backend: str) -> None:
    case = ALL["vtrace, last values"]
    given = tensors({n: np.nan_to_num(x) if isinstance(x, np.ndarray) else x for n, x in case.arguments.items()})

    def loss(values: Tensor, gamma: Tensor) -> Tensor:
        out = front.vtrace(**{**given, "values": values, "gamma": gamma})
        return (out.vs * out.pg_advantages).sum()

    leaves = given["values"].clone().requires_grad_(), torch.tensor(0.9).requires_grad_()
    compiled = torch.compile(loss, fullgraph=True, backend=backend)
    for got, expected in zip(
        torch.autograd.grad(compiled(*leaves), leaves), torch.autograd.grad(loss(*leaves), leaves), strict=True
    ):
        torch.testing.assert_close(got, expected)


def graph_of(function: Callable[..., Any], *arguments: Any) -> list[str]:
    """The operators of ours that a compiled call is made of."""
    names: list[str] = []

    def backend(graph: torch.fx.GraphModule, inputs: Any) -> Any:
        names.extend(str(n.target) for n in graph.graph.nodes if "rl_triton_jax" in str(n.target))
        return graph.forward

    torch.compile(function, fullgraph=True, backend=backend)(*arguments)
    return names


# ---- operators


class Filler:
    """In the place of `from_torch.Prepared`: notes what it is given and writes ones."""

    made: list[Filler]

    def __init__(self, plan: Any, problem: Any, device: Any, where: Any, unaligned: Any) -> None:
        del plan, device, where
        self.problem, self.unaligned = problem, unaligned
        self.calls: list[tuple[list[Any], list[int]]] = []
        self.sizes = [problem.steps * int(np.prod(problem.sizes))] * len(problem.output_dtypes)
        Filler.made.append(self)

    def __call__(self, inputs: Any, outputs: Any) -> None:
        self.calls.append((list(inputs), list(outputs)))
        kinds = {"float32": ctypes.c_float, "float64": ctypes.c_double}
        for address, size, dtype in zip(outputs, self.sizes, self.problem.output_dtypes, strict=True):
            if dtype in kinds:
                (kinds[dtype] * size).from_address(address)[:] = [1.0] * size
            else:
                ctypes.memset(address, 0, 2 * size)


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Filler]]:
    """Tensors on the CPU taken for tensors on a GPU."""
    pytest.importorskip("triton")
    from rl_triton_jax.kernels.plan import Device

    Filler.made = []
    monkeypatch.setattr(from_torch, "Prepared", Filler)
    monkeypatch.setattr(from_torch, "device_of", lambda index: Device())
    monkeypatch.setattr(front, "_use_kernels", lambda *_: True)
    monkeypatch.setattr(torch_calls, "_on_gpu", lambda x: True)
    torch_calls.forget()
    monkeypatch.setattr(from_torch, "_ready", {})
    yield Filler.made
    torch_calls.forget()  # what was learnt here must not be called again


def recurrence_arguments(gradients: bool, reset: bool, shape: tuple[int, ...] = (5, 1)) -> tuple[Any, ...]:
    rng = np.random.default_rng(6)
    b, a, initial = (torch.as_tensor(rng.standard_normal(s)) for s in ((5, 2), shape, (1, 2)))
    for x in (b, a, initial):
        x.requires_grad_(gradients)
    return b, a, torch.as_tensor(rng.random((5, 2)) < 0.3) if reset else None, initial, 0, True, False


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("reset", [False, True])
@pytest.mark.parametrize("gradients", [False, True])
def test_the_recurrence_operator_is_one_for_torch(gradients: bool, reset: bool) -> None:
    torch.library.opcheck(torch_ops.recurrence_op, recurrence_arguments(gradients, reset))


@pytest.mark.parametrize("reset", [False, True])
def test_derivatives_of_the_recurrence_operator(reset: bool) -> None:
    b, a, flags, initial, *options = recurrence_arguments(True, reset)

    def function(b: Tensor, a: Tensor, initial: Tensor) -> Tensor:
        return torch_ops.recurrence_op(b, a, flags, initial, *options)

    assert torch.autograd.gradcheck(function, (b, a, initial))
    assert torch.autograd.gradgradcheck(function, (b, a, initial))
    problem = {"a": a.expand(5, 2), "b": b, "initial": initial[0], "reset": flags}
    problem = {name: None if x is None else oracle.to_numpy(x) for name, x in problem.items()}
    oracle.assert_close(function(b, a, initial), oracle.linear_recurrence(**problem, reverse=True))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("standardize", [-1, 0])
def test_the_launch_operator_is_one_for_torch(made: list[Filler], standardize: int) -> None:
    x, last = torch.ones(5, 2), torch.ones(1, 2)
    number = torch.ones(1, 1)
    operands = [x.t().contiguous().t(), x, x > 0, None, last, None, None, number, number, None]
    wanted = [True, True]
    torch.library.opcheck(
        torch_ops.launch_op, (operands, "gae", 0, 0, True, wanted, torch.float32, standardize), test_utils=OPCHECKS
    )
    assert made


OPCHECKS = ("test_schema", "test_autograd_registration", "test_faketensor", "test_aot_dispatch_dynamic")


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("label", ["gae, last values", "n_step_returns, 3 steps", "retrace, actions"])
def test_a_compiled_call_is_one_launch_where_no_gradient_is_wanted(made: list[Filler], label: str) -> None:
    case = ALL[label]
    given = tensors(case.arguments)
    assert graph_of(lambda given: call(case, given), given) == ["rl_triton_jax.launch.default"]
    (filler,) = made
    assert len(filler.calls) == 1
    given["rewards"].requires_grad_()
    assert "rl_triton_jax.recurrence.default" in graph_of(lambda given: call(case, given), given)


def test_a_tracer_sees_the_operators(made: list[Filler]) -> None:
    given = tensors(ALL["gae, last values"].arguments)
    front.gae(**given)  # so that there is something to go straight to
    traced = make_fx(lambda r: front.gae(**{**given, "rewards": r}).advantages)(given["rewards"])
    assert [str(n.target) for n in traced.graph.nodes if "rl_triton" in str(n.target)] == [
        "rl_triton_jax.launch.default"
    ]


@pytest.mark.filterwarnings("ignore")
def test_the_older_tracer_sees_them_too(made: list[Filler]) -> None:
    given = tensors(ALL["gae, last values"].arguments)
    front.gae(**given)
    traced: Any = torch.jit.trace(
        lambda r: front.gae(**{**given, "rewards": r}).advantages, given["rewards"], check_trace=False
    )
    assert "rl_triton_jax::recurrence" in str(traced.graph)


# ---- tensors that stand for others


@pytest.mark.parametrize("label", ALL)
def test_vmap(label: str) -> None:
    """Some arguments batched, along different axes, the others shared."""
    case = ALL[label]
    given = tensors(case.arguments)
    main = next(iter(given))
    names = [n for n, x in given.items() if isinstance(x, Tensor) and n != "mask"][:3]
    other = next(c for c in cases(SHAPE, 0, seed=8) if c.label == label)
    changed = {n: np.nan_to_num(other.arguments[n]) for n in names if n in (main, "values", "inputs")}
    stacked = {n: torch.stack([given[n], torch.as_tensor(x)], -1 if n == main else 0) for n, x in changed.items()}
    dims = ({n: -1 if n == main else 0 for n in stacked},)

    got = torch.func.vmap(lambda batched: call(case, {**given, **batched}), in_dims=dims)(stacked)
    check(tuple(x[0] for x in got), case)
    check(tuple(x[1] for x in got), case, **changed)


def test_vmap_of_grad_and_grad_of_vmap() -> None:
    values = torch.linspace(-1, 1, 6, dtype=torch.float64).reshape(2, 3)

    def loss(v: Tensor) -> Tensor:
        zeros = torch.zeros(3, dtype=torch.float64)
        return front.gae(zeros, v, last_values=0.0, gamma=0.9, lambda_=0.5).advantages[0]

    expected = torch.tensor([-1.0, 0.45, 0.45 * 0.45], dtype=torch.float64).expand(2, 3)
    torch.testing.assert_close(torch.func.vmap(torch.func.grad(loss))(values), expected)
    torch.testing.assert_close(torch.func.grad(lambda v: torch.func.vmap(loss)(v).sum())(values), expected)
    leaf = values.clone().requires_grad_()
    torch.func.vmap(loss)(leaf).sum().backward()
    torch.testing.assert_close(leaf.grad, expected)


def test_vmapped_second_derivatives() -> None:
    def returns(gamma: Tensor) -> Tensor:  # 1 + g + g^2
        return front.discounted_returns(torch.ones(3, dtype=torch.float64), gamma=gamma)[0]

    gammas = torch.tensor([0.5, 0.9], dtype=torch.float64)
    torch.testing.assert_close(torch.func.vmap(torch.func.hessian(returns))(gammas), torch.full_like(gammas, 2.0))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("transformation", ["vmap", "grad"])
def test_transformations_inside_a_compiled_function(transformation: str) -> None:
    """One at a time: torch's compiler does not take one custom derivative through two."""

    def loss(v: Tensor) -> Tensor:
        return front.gae(torch.zeros(3), v, last_values=0.0, gamma=0.9, lambda_=0.5).advantages[0]

    function = getattr(torch.func, transformation)(loss)
    at = torch.tensor([[1.0, 2.0, 3.0], [0.0, 1.0, 0.0]]) if transformation == "vmap" else torch.ones(3)
    expected = [-1 + 0.45 * 2 + 0.2025 * 3, 0.45] if transformation == "vmap" else [-1.0, 0.45, 0.2025]
    got = torch.compile(function, fullgraph=True, backend="aot_eager")(at)
    torch.testing.assert_close(got, torch.tensor(expected))


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_fake_tensors(device: str) -> None:
    with FakeTensorMode():
        for shape, axis, dtype in (((7, 3), 0, torch.float32), ((3, 7), 1, torch.bfloat16)):
            rewards = torch.empty(shape, device=device, dtype=dtype)
            last = torch.empty(3, device=device)
            out = front.gae(rewards, rewards.double(), rewards > 0, last_values=last, gamma=last.sum(), axis=axis)
            for x in out:
                assert (x.shape, x.device.type, x.dtype) == (shape, device, torch.float64)
                assert type(x) is type(rewards)
            if device == "cuda" and not torch.cuda.is_available():
                continue  # autograd asks for a stream
            rewards.requires_grad_()
            y = front.discounted_returns(rewards, mask=rewards > 0, axis=axis)
            (grad,) = torch.autograd.grad(y.sum(), rewards)
            assert grad.shape == shape


# ---- what a launch is given


def test_strided_and_expanded_inputs_are_not_copied(made: list[Filler]) -> None:
    wide = torch.ones(9, 8, 6)
    rewards = wide[1:8, ::2, 3]
    values = torch.ones(4, 7).t()
    flags = torch.zeros(1, 4, dtype=torch.bool).expand(7, 4)
    last = torch.ones(()).expand(4)
    given = (rewards, values, flags)
    for again in range(2):
        front.gae(*given, last_values=last)
        (filler,) = made
        inputs, _ = filler.calls[again]
        assert inputs[:4] == [x.data_ptr() for x in (*given, last)]
    arrays = [x for x in filler.problem.operands if x is not None]
    assert [(x.time, x.levels) for x in arrays[:3]] == [(48, (12,)), (1, (7,)), (0, (1,))]


def test_arguments_that_were_one_tensor_may_be_two_the_next_time(made: list[Filler]) -> None:
    x, y, last = torch.ones(6, 4), torch.zeros(6, 4), torch.zeros(4)
    front.gae(x, x, last_values=last, gamma=0.5, lambda_=0.5)
    front.gae(x, y, last_values=last, gamma=0.25, lambda_=0.75)
    front.gae(x, y, last_values=last, lambda_=0.75, gamma=0.25)
    front.gae(x, y, last_values=last, lambda_=0.75)
    (filler,) = made
    inputs = [call[0] for call in filler.calls]
    assert inputs[0] == [x.data_ptr(), x.data_ptr(), last.data_ptr(), 0.5, 0.5]
    assert inputs[1] == inputs[2] == [x.data_ptr(), y.data_ptr(), last.data_ptr(), 0.25, 0.75]
    assert inputs[3] == [x.data_ptr(), y.data_ptr(), last.data_ptr(), 0.99, 0.75]


def test_options_that_are_numbers_are_not_mistaken_for_operands(made: list[Filler]) -> None:
    """`True` is remembered; `1.0`, its equal, is refused as on a first call."""
    x = torch.ones(6, 4)
    for with_returns in (True, False, True):
        result = front.gae(x, x, last_values=0.0, with_returns=with_returns)
        assert (result.returns is None) == (not with_returns)
        with pytest.raises(TypeError, match="with_returns"):
            front.gae(x, x, last_values=0.0, with_returns=float(with_returns))  # type: ignore[arg-type]


@pytest.mark.parametrize("label", ALL)
def test_a_remembered_call_is_the_call(made: list[Filler], label: str) -> None:
    """The launches of a second call, with other tensors, are those of a first call with them."""
    case = ALL[label]
    given = tensors(case.arguments)
    first = call(case, given)
    other = {n: x.clone() if isinstance(x, Tensor) else x for n, x in given.items()}
    for filler in made:
        filler.calls.clear()
    second = call(case, other)
    launched = [(f, inputs) for f in made for inputs, _ in f.calls]
    for filler in made:
        filler.calls.clear()
    torch_calls.forget()
    call(case, other)
    again = [(f, inputs) for f in made for inputs, _ in f.calls]
    if "n_step" not in label:  # several launches, with memory of their own between them
        assert launched == again
    assert [(x.shape, x.dtype, x.stride()) for x in first] == [(x.shape, x.dtype, x.stride()) for x in second]


@pytest.mark.parametrize("guards", [True, False])
def test_kinds_of_calls_are_told_apart(made: list[Filler], guards: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """With torch's own guards and without."""
    if not guards:
        monkeypatch.setattr(versions, "_guards_work", lambda: False)
    x, last = torch.ones(6, 4), torch.zeros(4)
    others = (x, torch.ones(4, 6).t(), torch.ones(6, 5), x.double(), torch.ones(25)[1:].view(6, 4), x > 0)
    for _ in range(3):
        for other in others:
            front.gae(other, torch.ones_like(other), last_values=last[0].expand(other.shape[1]))
    assert [len(filler.calls) for filler in made] == [3] * len(others)
    assert bool(torch_calls._recent) == guards


def test_what_may_not_go_straight_to_a_launch(made: list[Filler]) -> None:
    x, last = torch.ones(6, 4), torch.zeros(4)
    front.gae(x, x, last_values=last)
    (filler,) = made
    assert len(filler.calls) == 1
    with torch.no_grad():
        front.gae(x.clone().requires_grad_(), x, last_values=last)
        assert len(filler.calls) == 2
    out = front.gae(x.clone().requires_grad_(), x, last_values=last)
    assert out.advantages.requires_grad
    negated = torch.complex(x, x).conj().imag
    front.gae(negated, x, last_values=last)
    assert filler.calls[-1][0][0] != negated.data_ptr()


def test_a_number_on_the_host_is_passed_by_value(made: list[Filler], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(front, "_host_number", lambda x, main: isinstance(x, Tensor) and x.ndim == 0)
    x = torch.ones(6, 4)
    for gamma in (0.5, 0.25):
        front.gae(x, x, last_values=0.0, gamma=torch.tensor(gamma))
    assert [filler.calls[0][0][-2] for filler in made[:1]] == [0.5]
    assert made[0].calls[1][0][-2] == 0.25


# ---- autocast


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("label", ALL)
def test_autocast_leaves_numbers_and_dtypes_alone(label: str, dtype: str) -> None:
    case = ALL[label]
    given = tensors(case.arguments, getattr(torch, dtype))
    expected = call(case, given)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        got = call(case, given)
    for x, y in zip(got, expected, strict=True):
        assert x.dtype == y.dtype
        assert torch.equal(x, y)

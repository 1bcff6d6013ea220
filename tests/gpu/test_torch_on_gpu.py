"""Torch on a GPU: what a call does to the host, to streams, to graphs and to other GPUs, and the operators' kernels."""

from __future__ import annotations

import importlib.util
import time
from collections.abc import Iterator
from typing import Any

import fast_oracle
import numpy as np
import oracle
import pytest
from cases import Case, cases

if importlib.util.find_spec("torch") is None:
    pytest.skip("no torch", allow_module_level=True)

import torch

import rl_triton_jax.torch as front
from rl_triton_jax.launch import torch_ops

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="torch sees no GPU")]

SHAPE = (127, 40)
ALL = {case.label: case for case in cases(SHAPE, 0, seed=3)}


def on_gpu(arguments: dict[str, Any], device: str = "cuda", dtype: Any = None) -> dict[str, Any]:
    out = {}
    for name, x in arguments.items():
        if isinstance(x, np.ndarray | np.generic):
            x = torch.as_tensor(x).to(device)
            x = x.to(dtype) if dtype is not None and x.is_floating_point() else x
        out[name] = x
    return out


def call(case: Case, arguments: dict[str, Any]) -> tuple[torch.Tensor, ...]:
    out = getattr(front, case.name)(**arguments)
    return out if isinstance(out, tuple) else (out,)


def check(got: Any, case: Case) -> None:
    for x, y in zip(got, getattr(fast_oracle, case.name)(**case.arguments, axis=0), strict=False):
        oracle.assert_close(x, y)


@pytest.fixture
def waiting_is_an_error() -> Iterator[None]:
    torch.cuda.set_sync_debug_mode("error")
    yield
    torch.cuda.set_sync_debug_mode("default")


@pytest.mark.parametrize("label", ALL)
def test_no_call_waits(label: str, request: pytest.FixtureRequest) -> None:
    case = ALL[label]
    given = on_gpu(case.arguments)
    if case.name != "episodic_cumsum":
        given.setdefault("gamma", torch.tensor(0.99))  # a number on the host may be in a tensor
    request.getfixturevalue("waiting_is_an_error")
    got = [call(case, given) for _ in range(3)]
    torch.cuda.set_sync_debug_mode("default")
    check(got[0], case)
    assert all(torch.equal(x, y) for other in got[1:] for x, y in zip(got[0], other, strict=True))


@pytest.mark.parametrize("label", ALL)
def test_graphs(label: str) -> None:
    case = ALL[label]
    given = on_gpu(case.arguments)
    static = {n: torch.zeros_like(x) if isinstance(x, torch.Tensor) else x for n, x in given.items()}
    call(case, static)  # kernels are compiled and loaded before the capture
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = call(case, static)
    for name, x in given.items():
        if isinstance(x, torch.Tensor):
            static[name].copy_(x)
    graph.replay()
    torch.cuda.synchronize()
    check(out, case)


def test_side_streams() -> None:
    """A stream that is kept busy before its inputs are there: on any other one the call would read zeros."""
    case = ALL["gae, last values"]
    given = on_gpu(case.arguments)
    late = {n: torch.zeros_like(x) if isinstance(x, torch.Tensor) else x for n, x in given.items()}
    call(case, late)
    torch.cuda.synchronize()
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        torch.cuda._sleep(50_000_000)
        for name, x in given.items():
            if isinstance(x, torch.Tensor):
                late[name].copy_(x)
        out = call(case, late)
    stream.synchronize()
    check(out, case)


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs")
def test_the_second_gpu() -> None:
    case = ALL["gae, last values"]
    assert torch.cuda.current_device() == 0
    for device in ("cuda:1", "cuda:0", "cuda:1"):
        out = call(case, on_gpu(case.arguments, device))
        assert all(str(x.device) == device for x in out)
        check(out, case)
        assert torch.cuda.current_device() == 0
    mixed = {**on_gpu(case.arguments, "cuda:1"), "values": torch.as_tensor(case.arguments["values"]).to("cuda:0")}
    with pytest.raises(ValueError, match=r"`values` is on cuda:0"):
        call(case, mixed)


def test_memory_is_that_of_the_results() -> None:
    """Inputs that are strided or expanded are read where they are."""
    rewards = torch.randn(512, 2048, device="cuda").t()[::2]
    values = torch.randn(1, 512, device="cuda").expand(1024, 512)
    flags = torch.zeros(1024, 1, dtype=torch.bool, device="cuda")
    for _ in range(2):
        torch.cuda.synchronize()
        before = torch.cuda.memory_allocated()
        torch.cuda.reset_peak_memory_stats()
        out = front.gae(rewards, values, flags, last_values=0.0)
        expected = sum(x.numel() * x.element_size() for x in out)
        most = torch.cuda.max_memory_allocated() - before
    assert most <= 1.1 * expected


def test_host_time() -> None:
    """Of a call on a shape that was prepared, amortised over many: the host's work alone, for the GPU is done sooner."""
    rewards, values = torch.randn(2, 20, 256, device="cuda")
    terminated, last = rewards > 2, values[0].clone()

    def repeat(times: int) -> float:
        torch.cuda.synchronize()
        start = time.perf_counter()
        for _ in range(times):
            front.gae(rewards, values, terminated, last_values=last)
        took = time.perf_counter() - start
        torch.cuda.synchronize()
        return took / times

    repeat(100)
    best = min(repeat(500) for _ in range(10))
    print(f"host time of a call: {best * 1e6:.1f} us")
    assert best < 15e-6


def test_autocast() -> None:
    case = ALL["vtrace, last values"]
    given = on_gpu(case.arguments)
    expected = call(case, given)
    with torch.autocast("cuda", dtype=torch.bfloat16):
        got = call(case, given)
    assert all(x.dtype == y.dtype and torch.equal(x, y) for x, y in zip(got, expected, strict=True))


@pytest.mark.parametrize("label", ["gae, last values", "vtrace, last values", "discounted_returns, mask"])
def test_derivatives(label: str) -> None:
    case = next(c for c in cases((9, 3), 0, seed=4) if c.label == label)
    arguments = {n: np.nan_to_num(x) if isinstance(x, np.ndarray) else x for n, x in case.arguments.items()}
    given = on_gpu(arguments, dtype=torch.float64)
    given["gamma"] = torch.tensor(0.9, dtype=torch.float64, device="cuda")
    names = [n for n, x in given.items() if isinstance(x, torch.Tensor) and x.is_floating_point()]
    leaves = [given[n].requires_grad_() for n in names]

    def function(*xs: torch.Tensor) -> Any:
        return call(case, {**given, **dict(zip(names, xs, strict=True))})

    assert torch.autograd.gradcheck(function, leaves, fast_mode=True)
    assert torch.autograd.gradgradcheck(function, leaves, fast_mode=True)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("label", ["gae, last values", "gae, normalized under a mask", "n_step_returns, 3 steps"])
def test_compiled(label: str) -> None:
    case = ALL[label]
    given = on_gpu(case.arguments)
    torch._dynamo.reset()
    compiled = torch.compile(lambda given: call(case, given), fullgraph=True)
    check(compiled(given), case)
    check(compiled(given), case)


@pytest.mark.filterwarnings("ignore")
def test_compiled_gradients() -> None:
    rewards, values = torch.randn(2, 50, 30, device="cuda")
    last = torch.randn(30, device="cuda")

    def loss(values: torch.Tensor) -> torch.Tensor:
        return front.gae(rewards, values, last_values=last).advantages.square().sum()

    leaf = values.clone().requires_grad_()
    torch._dynamo.reset()
    (got,) = torch.autograd.grad(torch.compile(loss, fullgraph=True)(leaf), leaf)
    (expected,) = torch.autograd.grad(loss(leaf), leaf)
    torch.testing.assert_close(got, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.filterwarnings("ignore")
def test_operators() -> None:
    b, last = torch.randn(50, 30, device="cuda"), torch.randn(1, 30, device="cuda")
    a = torch.rand(50, 1, device="cuda")
    torch.library.opcheck(torch_ops.recurrence_op, (b, a, b > 1, last, 0, True, True))
    torch.library.opcheck(
        torch_ops.recurrence_op, tuple(x.requires_grad_() for x in (b, a)) + (None, last, 0, False, True)
    )
    number = torch.full((1, 1), 0.9, device="cuda")
    b = b.detach()
    operands = [b, b, b > 1, None, last, None, None, number, number, None]
    torch.library.opcheck(
        torch_ops.launch_op, (operands, "gae", 0, 0, True, [True, True], torch.float32, -1), test_utils=OPCHECKS
    )


OPCHECKS = ("test_schema", "test_autograd_registration", "test_faketensor", "test_aot_dispatch_dynamic")


def test_vmap() -> None:
    case = ALL["gae, last values"]
    given = on_gpu(case.arguments)
    out = torch.func.vmap(lambda r: call(case, {**given, "rewards": r}), in_dims=-1)(
        torch.stack([given["rewards"], 2 * given["rewards"]], -1)
    )
    check(tuple(x[0] for x in out), case)
    twice = Case(case.name, case.estimator, "", {**case.arguments, "rewards": 2 * case.arguments["rewards"]})
    check(tuple(x[1] for x in out), twice)

"""What the torch front end hands to its launches, on a machine without a GPU: a recorder stands in for the compiled kernels."""

from __future__ import annotations

import contextlib
import importlib.util
from collections.abc import Iterator
from typing import Any

import pytest

if importlib.util.find_spec("torch") is None or importlib.util.find_spec("triton") is None:
    pytest.skip("no torch or no triton", allow_module_level=True)

import torch
from rl_triton_jax.kernels import plan as planning
from rl_triton_jax.kernels.plan import Device

import rl_triton_jax.torch as front
from rl_triton_jax import torch_calls, versions
from rl_triton_jax.estimators.n_step_returns import n_step_estimator
from rl_triton_jax.formula import LINEAR_RECURRENCE
from rl_triton_jax.launch import from_torch


class Recorder:
    """In the place of `from_torch.Prepared`."""

    made: list[Recorder]

    def __init__(self, plan: Any, problem: Any, device: Any, where: Any, unaligned: Any) -> None:
        del device, where
        self.plan, self.problem, self.unaligned = plan, problem, unaligned
        self.calls: list[Any] = []
        Recorder.made.append(self)

    def __call__(self, inputs: Any, outputs: Any) -> None:
        self.calls.append((list(inputs), list(outputs)))


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Recorder]]:
    Recorder.made = []
    monkeypatch.setattr(from_torch, "Prepared", Recorder)
    monkeypatch.setattr(from_torch, "device_of", lambda index: Device())
    monkeypatch.setattr(front, "_use_kernels", lambda *_: True)
    monkeypatch.setattr(torch_calls, "_on_gpu", lambda x: True)
    torch_calls.forget()
    monkeypatch.setattr(from_torch, "_ready", {})
    yield Recorder.made
    torch_calls.forget()  # what was learnt here must not be called again


def call(rewards: torch.Tensor, **options: Any) -> Any:
    values, last = torch.zeros_like(rewards), torch.zeros(rewards.shape[1])
    return front.gae(rewards, values, last_values=last, **options)


def test_the_second_call_goes_straight_to_the_launch(made: list[Recorder], monkeypatch: pytest.MonkeyPatch) -> None:
    rewards = torch.ones(6, 4)
    first = call(rewards, gamma=0.5)
    monkeypatch.setattr(front.problem, "validate", None)  # must not be needed any more
    second = call(rewards, gamma=0.25)
    assert len(made) == 1
    (one, two) = made[0].calls
    assert one[0][0] == two[0][0] == rewards.data_ptr()
    assert [list(inputs[-2:]) for inputs, _ in (one, two)] == [[0.5, 0.95], [0.25, 0.95]]
    assert second.advantages.data_ptr() == two[1][0]
    assert first.advantages is not second.advantages
    assert second.advantages.shape == (6, 4)
    assert second.advantages.dtype is torch.float32


@pytest.mark.parametrize(
    "other",
    [
        lambda: call(torch.ones(6, 5)),
        lambda: call(torch.ones(4, 6).t()),
        lambda: call(torch.ones(6, 4).double()),
        lambda: call(torch.ones(25)[1:].view(6, 4)),
        lambda: call(torch.ones(6, 4), gamma=torch.tensor(0.5)),
        lambda: call(torch.ones(6, 4), with_returns=False),
        lambda: front.gae(torch.ones(6, 4), torch.zeros(6, 4), last_values=torch.zeros(6), axis=1),
        lambda: front.lambda_returns(torch.ones(6, 4), torch.zeros(6, 4), last_values=torch.zeros(4)),
    ],
    ids=["shape", "strides", "dtype", "alignment", "an array", "outputs", "axis", "estimator"],
)
def test_what_needs_another_kernel_gets_one(made: list[Recorder], other: Any) -> None:
    call(torch.ones(6, 4))
    other()
    assert [len(r.calls) for r in made] == [1, 1]


def test_each_n_has_its_own(made: list[Recorder]) -> None:
    rewards = torch.ones(9, 4)
    for n in (2, 3, 2, 100):
        estimator = n_step_estimator(None if n > 9 else n, longest_window=256)
        operands = {"rewards": rewards, "values": rewards, "last_values": 0.0, "gamma": 0.9}
        front.TORCH.call(estimator, operands, axis=0)
    assert [r.problem.window for r in made] == [2, 3, 0]
    assert [len(r.calls) for r in made] == [2, 1, 1]


def test_mistakes_are_found_after_a_good_call(made: list[Recorder]) -> None:
    call(torch.ones(6, 4))
    with pytest.raises(ValueError, match=r"last_values"):
        front.gae(torch.ones(6, 4), torch.zeros(6, 4), last_values=torch.zeros(3))
    with pytest.raises(ValueError, match=r"twice"):
        front.gae(torch.ones(6, 4), torch.zeros(7, 4), last_values=torch.zeros(4))


def test_only_so_many_are_remembered(made: list[Recorder], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(from_torch, "MOST_READY", 4)
    for n in range(1, 10):
        call(torch.ones(6, n))
    assert len(from_torch._ready) <= 4
    assert len(torch_calls._known) <= 4


def test_the_launcher_does_what_a_compiled_kernel_does(monkeypatch: pytest.MonkeyPatch) -> None:
    class Compiled:
        function, packed_metadata = "function", "metadata"

        def __init__(self) -> None:
            self.calls: list[Any] = []

        def run(self, *arguments: Any) -> None:
            self.calls.append(arguments)

        def __getitem__(self, grid: Any) -> Any:
            return lambda *arguments, stream: self.calls.append(("with hooks", grid, stream, *arguments))

    compiled = Compiled()
    launch = versions.launcher(compiled, (5, 2, 1))
    launch(7, 100, 0.5, None)
    hook = versions.import_triton().knobs.runtime.launch_enter_hook
    monkeypatch.setattr(hook, "calls", [print])
    launch(7, 100, 0.5, None)
    assert compiled.calls == [
        (5, 2, 1, 7, "function", "metadata", None, None, None, 100, 0.5, None),
        ("with hooks", (5, 2, 1), 7, 100, 0.5, None),
    ]


@pytest.mark.parametrize("parts", [1, 3])
def test_a_launch_gets_its_addresses_in_order(parts: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Inputs and numbers, outputs, scratch that is new each time, sizes, and a place for each constant."""
    launched: list[Any] = []
    monkeypatch.setattr(versions, "compile_kernel", lambda *_: None)
    monkeypatch.setattr(versions, "launcher", lambda compiled, grid: lambda *x: launched.append((grid, x)))
    monkeypatch.setattr(from_torch, "stream_of", lambda index: 77)
    monkeypatch.setattr(torch.cuda, "device", contextlib.nullcontext)
    monkeypatch.setattr(from_torch, "plan", lambda *x: many_parts(*x, parts))
    monkeypatch.setattr(from_torch, "device_of", lambda index: Device())
    monkeypatch.setattr(from_torch, "_ready", {})
    b, initial = torch.ones(300, 4), torch.ones(1, 4)
    outputs, _ = from_torch.run(LINEAR_RECURRENCE, [b, 0.5, None, initial], 0, True, (True,), "float32", "float32")
    known = {b.data_ptr(), initial.data_ptr(), outputs[0].data_ptr()}
    assert (len(launched) > 1) == (parts > 1)
    for grid, (stream, *arguments) in launched:
        assert len(grid) == 3
        assert stream == 77
        assert set(arguments) & known
    everything = {x for _, (_, *arguments) in launched for x in arguments}
    assert known | {0.5} <= everything


def many_parts(problem: Any, device: Any, flags: Any, parts: int) -> Any:
    sizes = (("C", 2), ("L", 2), ("BN", 4), ("STAGES", 1))
    return planning.build(problem, planning.Choice("columns", sizes, 1, parts), device, flags)

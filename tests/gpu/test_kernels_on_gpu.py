"""The compiled kernels against float64 loops, by both JAX routes and from torch, at sizes that reach every schedule."""

from __future__ import annotations

import importlib.util
import re
from typing import Any

import fast_oracle
import jax
import jax.numpy as jnp
import numpy as np
import oracle
import pytest

import rl_triton_jax
from benchmarks.shapes import SMOKE, TARGETS, USERS, Shape

pytestmark = pytest.mark.gpu

ODD = (
    *(
        Shape("time_major", T, N)
        for T, N in ((1, 1), (1, 300), (33, 1), (127, 4095), (1025, 33), (5000, 3), (70001, 5))
    ),
    *(Shape("batch_major", T, N) for N, T in ((300, 2), (33, 1025), (3, 5000), (5, 70001), (1000, 1))),
)
SHAPES = tuple(s for s in dict.fromkeys((*USERS, *TARGETS, *SMOKE, *ODD)) if s.T * s.N <= 2**23)
VARIANTS = ("no flags", "both flags", "next values", "longer values", "mask", "per step", "bfloat16", "float64")


def make(shape: Shape, variant: str) -> dict[str, Any]:
    source = variant.replace(" ", "_") if variant in ("next values", "longer values") else "last_values"
    flags = "neither" if variant == "no flags" else "both"
    dtype = np.float64 if variant == "float64" else np.float32
    problem = oracle.gae_problem(7, shape.dims, shape.axis, source=source, flags=flags, dtype=dtype, rate=0.05)
    rng = np.random.default_rng(8)
    if variant == "mask":
        problem["mask"] = rng.random(shape.dims) < 0.8
        dead = ~problem["mask"]
        for name in ("rewards", "values", "final_values"):
            problem[name] = np.where(dead, np.nan, problem[name]).astype(dtype)
    if variant == "per step":
        steps = [1, 1]
        steps[shape.axis] = shape.T
        problem["gamma"] = rng.uniform(0.9, 1, steps).astype(dtype)
        problem["lambda_"] = rng.uniform(0.9, 1, shape.dims).astype(dtype)
    if variant == "bfloat16":  # what the kernel will see, exactly
        for name in ("rewards", "values", "last_values", "final_values"):
            problem[name] = problem[name].astype(jnp.bfloat16)
    return problem


def check(got: Any, problem: dict[str, Any], variant: str) -> None:
    rtol = {"bfloat16": 1e-2, "float64": 1e-12}.get(variant, 1e-5)
    for actual, expected in zip(got, fast_oracle.gae(**problem), strict=True):
        oracle.assert_close(actual, expected, rtol=rtol)


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("shape", SHAPES, ids=lambda s: s.name + ("b" if s.axis else ""))
def test_gae(gpu_route: str, shape: Shape, variant: str) -> None:
    if gpu_route == "jax-triton" and shape not in (*SMOKE, *ODD):
        pytest.skip("the same kernels; the odd sizes are enough for this route")
    problem = make(shape, variant)
    with jax.enable_x64(variant == "float64"):
        arrays = jax.tree.map(lambda x: jnp.asarray(x) if isinstance(x, np.ndarray) else x, problem)
        got = rl_triton_jax.gae(**arrays, implementation="triton")
    check(got, problem, variant)


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("shape", [*SMOKE, *ODD], ids=lambda s: s.name + ("b" if s.axis else ""))
def test_linear_recurrence(gpu_route: str, shape: Shape, reverse: bool) -> None:
    problem = oracle.recurrence_problem(9, shape.dims, shape.axis, rate=0.02)
    arrays = jax.tree.map(lambda x: jnp.asarray(x) if isinstance(x, np.ndarray) else x, problem)
    got = rl_triton_jax.linear_recurrence(**arrays, reverse=reverse, implementation="triton")
    oracle.assert_close(got, oracle.linear_recurrence(**problem, reverse=reverse))


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize(("steps", "rtol"), [(65_536, 1e-5), (10_000_000, 1e-4)])
def test_long_sums(gpu_route: str, steps: int, rtol: float, axis: int) -> None:
    """gamma = lambda = 1 and no flags: a plain sum, summed once more in float64."""
    rng = np.random.default_rng(10)
    dims = (steps, 2) if axis == 0 else (2, steps)
    rewards = rng.uniform(0, 1, dims).astype(np.float32)
    values = np.zeros(dims, np.float32)
    got, _ = rl_triton_jax.gae(
        jnp.asarray(rewards),
        jnp.asarray(values),
        last_values=0.0,
        gamma=1.0,
        lambda_=1.0,
        axis=axis,
        implementation="triton",
    )
    expected = np.flip(np.cumsum(np.flip(rewards.astype(np.float64), axis), axis), axis)
    error = np.abs(np.asarray(got, np.float64) - expected) / expected
    assert error.max() <= rtol


@pytest.mark.parametrize("shape", [(20, 256), (128, 4096)])
def test_nothing_but_the_kernel(gpu_route: str, shape: tuple[int, int]) -> None:
    """One launch, and no copy, transpose or cast beside it."""
    rewards = jnp.ones(shape, jnp.float32)
    flags = jnp.zeros(shape, bool)
    last = jnp.ones(shape[1], jnp.float32)
    gamma = jnp.float32(0.9)

    def function(rewards: Any, flags: Any, last: Any, gamma: Any) -> Any:
        return rl_triton_jax.gae(
            rewards, rewards, flags, flags, last_values=last, final_values=rewards, gamma=gamma, implementation="triton"
        )

    text = jax.jit(function).lower(rewards, flags, last, gamma).compile().as_text()
    assert text is not None
    names = re.findall(r"^\s*(?:ROOT )?%[\w.-]+ = .*? ([a-z][a-z-]*)\(", text, re.MULTILINE)
    harmless = {"parameter", "get-tuple-element", "tuple", "bitcast", "constant"}
    work = [name for name in names if name not in harmless]
    assert len(work) == 1, text
    assert work[0] in ("custom-call", "fusion"), text


def test_numbers_do_not_move(gpu_route: str) -> None:
    """Two runs give the same bits."""
    arrays = jax.tree.map(jnp.asarray, make(Shape("time_major", 70001, 5), "both flags"))
    call = jax.jit(lambda a: rl_triton_jax.gae(**a, implementation="triton"))
    one, two = call(arrays), call(arrays)
    assert np.array_equal(oracle.bits(one.advantages), oracle.bits(two.advantages))


# ---- torch


@pytest.fixture
def poisoned(monkeypatch: pytest.MonkeyPatch) -> Any:
    """torch on this GPU, where fresh memory holds NaN: what a kernel does not write is seen."""
    if importlib.util.find_spec("torch") is None:
        pytest.skip("no torch")
    import torch

    if not torch.cuda.is_available():
        pytest.skip("torch sees no GPU")
    for name in ("empty", "empty_like"):
        original = getattr(torch, name)

        def filled(*args: Any, original: Any = original, **kwargs: Any) -> Any:
            return original(*args, **kwargs).fill_(float("nan"))

        monkeypatch.setattr(torch, name, filled)
    return torch


def to_torch(torch: Any, x: Any) -> Any:
    if not isinstance(x, np.ndarray):
        return x
    if x.dtype == jnp.bfloat16:
        return torch.from_numpy(x.astype(np.float32)).bfloat16().cuda()
    return torch.from_numpy(x).cuda()


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("shape", [*SMOKE, *ODD], ids=lambda s: s.name + ("b" if s.axis else ""))
def test_gae_from_torch(poisoned: Any, shape: Shape, variant: str) -> None:
    import rl_triton_jax.torch

    problem = make(shape, variant)
    arrays = {name: to_torch(poisoned, x) for name, x in problem.items()}
    check(rl_triton_jax.torch.gae(**arrays, implementation="triton"), problem, variant)


def test_any_strides_from_torch(poisoned: Any) -> None:
    """Slices, transposes and expanded tensors are read where they lie: no more memory than the results."""
    import rl_triton_jax.torch

    torch = poisoned
    problem = make(Shape("time_major", 301, 130), "both flags")
    arrays = {name: to_torch(torch, x) for name, x in problem.items()}
    wide = torch.full((301, 390), float("nan")).cuda()
    wide[:, 1::3] = arrays["rewards"]
    arrays["rewards"] = wide[:, 1::3]
    arrays["values"] = arrays["values"].t().contiguous().t()
    arrays["last_values"] = torch.full((), 0.5).cuda().expand(130)
    problem["last_values"] = np.full(130, 0.5, np.float32)
    check(rl_triton_jax.torch.gae(**arrays, implementation="triton"), problem, "both flags")
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    results = rl_triton_jax.torch.gae(**arrays, implementation="triton")
    assert torch.cuda.max_memory_allocated() - before <= sum(-(-x.numel() * 4 // 512) * 512 for x in results)


def test_other_stream_from_torch(poisoned: Any) -> None:
    """Launched on the current stream, in order with what is queued there."""
    import rl_triton_jax.torch

    torch = poisoned
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        rewards = torch.zeros(4096, 512).cuda()
        for _ in range(50):
            rewards += 1
        advantages, _ = rl_triton_jax.torch.gae(
            rewards, torch.zeros_like(rewards), last_values=0.0, gamma=0.5, lambda_=0.0, implementation="triton"
        )
    stream.synchronize()
    assert bool((advantages == 50).all())

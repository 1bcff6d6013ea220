"""What JAX may do to a call: the rules not covered by test_vmap, test_gradients, test_lowering and test_sharding."""

from __future__ import annotations

import os
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import fast_oracle
import jax
import jax.export
import jax.numpy as jnp
import numpy as np
import oracle
import pytest
from cases import Case, cases
from conftest import to_jax

import rl_triton_jax
from rl_triton_jax import jax_front

ONE_EACH: dict[str, Case] = {}
for _case in cases((5, 3), 0, seed=9):
    ONE_EACH.setdefault(_case.name, _case)
NAMES = sorted(ONE_EACH)


def split(name: str) -> tuple[Any, dict[str, Any], Any]:
    """(function of the arrays, arrays, expected results)."""
    case = ONE_EACH[name]
    arrays = {k: x for k, x in case.arguments.items() if isinstance(x, (np.ndarray, np.generic))}
    rest = {k: x for k, x in case.arguments.items() if k not in arrays}
    return partial(getattr(rl_triton_jax, name), **rest), to_jax(arrays), getattr(fast_oracle, name)(**case.arguments)


def check(got: Any, expected: Any) -> None:
    for actual, wanted in zip(got if isinstance(got, tuple) else (got,), expected, strict=False):
        oracle.assert_close(actual, wanted)


@pytest.mark.parametrize("name", NAMES)
def test_in_scan_while_and_cond(name: str) -> None:
    function, arrays, expected = split(name)

    def call() -> Any:
        return function(**arrays)

    _, scanned = jax.lax.scan(lambda carry, _: (carry, call()), 0, None, length=2)
    check(jax.tree.map(lambda x: x[1], scanned), expected)
    looped = jax.lax.while_loop(
        lambda state: state[0] < 2, lambda state: (state[0] + 1, call()), (0, jax.tree.map(jnp.zeros_like, call()))
    )
    check(looped[1], expected)
    chosen = jax.lax.cond(jnp.bool_(True), call, lambda: jax.tree.map(jnp.zeros_like, call()))
    check(chosen, expected)


@pytest.mark.parametrize("name", NAMES)
def test_shapes_without_running(name: str) -> None:
    function, arrays, expected = split(name)
    shapes = jax.eval_shape(lambda arrays: function(**arrays), arrays)
    got = shapes if isinstance(shapes, tuple) else (shapes,)
    assert [x.shape for x in got] == [np.shape(x) for x in expected[: len(got)]]
    assert not any(x.weak_type for x in got)


@pytest.mark.parametrize("name", NAMES)
def test_without_jit(name: str) -> None:
    function, arrays, expected = split(name)
    with jax.disable_jit():
        check(function(**arrays), expected)


@pytest.mark.parametrize("name", NAMES)
def test_nan_in_dead_places_does_not_trip_debug_nans(name: str) -> None:
    """The cases hold NaN wherever nothing is read. JAX looks at what a computation returns: that is finite."""
    function, arrays, expected = split(name)
    with jax.debug_nans(True):
        check(jax.jit(lambda arrays: function(**arrays))(arrays), expected)


@pytest.mark.parametrize("name", ["gae", "vtrace", "lambda_returns", "retrace"])
def test_nan_in_dead_places_does_not_trip_debug_nans_in_derivatives(name: str) -> None:
    function, arrays, _ = split(name)

    def loss(rewards: Any) -> Any:
        return sum(jnp.sum(x**2) for x in jax.tree.leaves(function(**{**arrays, "rewards": rewards})))

    with jax.debug_nans(True):
        assert np.isfinite(np.asarray(jax.jit(jax.grad(loss))(arrays["rewards"]))).all()


@pytest.mark.parametrize("name", ["gae", "vtrace", "retrace", "upgo", "eligibility_traces"])
def test_checkpoint_changes_no_derivative(name: str) -> None:
    function, arrays, _ = split(name)
    main = "rewards" if "rewards" in arrays else "inputs"

    def loss(x: Any) -> Any:
        return sum(jnp.sum(jnp.sin(y)) for y in jax.tree.leaves(function(**{**arrays, main: x})))

    plain, again = (jax.jit(jax.grad(f))(arrays[main]) for f in (loss, jax.checkpoint(loss)))
    oracle.assert_close(again, np.asarray(plain, np.float64))


def test_donated_inputs() -> None:
    """The rewards' memory may become that of the advantages."""
    function, arrays, expected = split("gae")
    rewards = arrays.pop("rewards") + 0
    got = jax.jit(lambda rewards, arrays: function(rewards, **arrays), donate_argnums=0)(rewards, arrays)
    check(got, expected)


def test_outside_of_jit_a_call_is_one_program(monkeypatch: pytest.MonkeyPatch) -> None:
    """Prepared once: other numbers and other data compile nothing. Under jit nothing is nested."""
    programs: Any = jax_front._bind_at_once
    calls: list[int] = []

    def counted(*args: Any, **options: Any) -> Any:
        calls.append(1)
        return programs(*args, **options)

    monkeypatch.setattr(jax_front, "_bind_at_once", counted)
    rewards, done, last = jnp.ones((5, 3)), jnp.zeros((5, 3), bool), jnp.zeros(3)
    programs.clear_cache()
    for gamma in (0.9, 0.8, 1):
        result = rl_triton_jax.gae(rewards * gamma, rewards, done, last_values=last, gamma=gamma)
    assert programs._cache_size() == 1
    assert len(calls) == 3
    jaxpr = jax.make_jaxpr(lambda r: rl_triton_jax.gae(r, r, done, last_values=last))(rewards)
    assert "jit" not in str(jaxpr)
    assert len(calls) == 3
    np.testing.assert_allclose(result.returns[-1], 1.0)  # V(s_T) is 0


def test_weak_types_do_not_decide() -> None:
    """A Python number among the decays leaves 16-bit results 16 bits wide."""
    rewards = jnp.ones((4, 2), jnp.bfloat16)
    result = rl_triton_jax.gae(rewards, rewards, last_values=jnp.float32(0), gamma=0.9, lambda_=jnp.asarray(0.5) * 1)
    assert result.advantages.dtype == jnp.bfloat16
    assert not result.advantages.weak_type


def count(jaxpr: Any, name: str) -> int:
    total = 0
    for equation in jaxpr.eqns:
        total += equation.primitive.name == name
        for value in equation.params.values():
            for inner in value if isinstance(value, (tuple, list)) else (value,):
                inner = getattr(inner, "jaxpr", inner)
                if hasattr(inner, "eqns"):
                    total += count(inner, name)
    return total


def test_inside_a_loss_it_costs_nothing_where_nothing_is_differentiated() -> None:
    """Brax calls it within the differentiated loss, its inputs stopped: one call, as without the derivative."""
    function, arrays, _ = split("gae")

    def loss(scale: Any) -> Any:
        advantages = function(**jax.lax.stop_gradient(arrays)).advantages
        return jnp.sum(scale * advantages)

    jaxpr = jax.make_jaxpr(jax.value_and_grad(loss))(jnp.float32(2.0)).jaxpr
    assert count(jaxpr, "gae") == 1
    assert count(jaxpr, "linear_recurrence") == 0
    value, slope = jax.jit(jax.value_and_grad(loss))(jnp.float32(2.0))
    np.testing.assert_allclose(value, 2 * slope, rtol=1e-6)


SCRIPT = """
import sys, jax, numpy as np, rl_triton_jax
jax.config.update("jax_compilation_cache_dir", sys.argv[1])
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
hits = []
jax.monitoring.register_event_listener(lambda event, **kw: hits.append(event) if event.endswith("cache_hits") else None)
mesh = jax.sharding.Mesh(np.asarray(jax.devices()[: int(sys.argv[2])]), ("x",))
r = jax.device_put(np.ones((6, 4), np.float32), jax.NamedSharding(mesh, jax.P(None, "x")))
del hits[:]
jax.jit(lambda r: rl_triton_jax.gae(r, r, last_values=0.0))(r).advantages.block_until_ready()
print(len(hits))
"""


@pytest.mark.parametrize("devices", [1, 2])
def test_a_second_process_finds_the_compiled_program(tmp_path: Path, devices: int) -> None:
    """With arrays spread over devices too, where JAX is told to leave the addresses of partitioners out of the key."""
    env = {k: x for k, x in os.environ.items() if k != "XLA_FLAGS"}
    if devices > 1:
        env["JAX_PLATFORMS"] = "cpu"
        env["XLA_FLAGS"] = f"--xla_force_host_platform_device_count={devices}"
        env["JAX_REMOVE_CUSTOM_PARTITIONING_PTR_FROM_CACHE_KEY"] = "1"

    def run() -> int:
        command = [sys.executable, "-W", "ignore", "-c", SCRIPT, str(tmp_path), str(devices)]
        done = subprocess.run(command, capture_output=True, text=True, check=False, env=env)
        assert done.returncode == 0, done.stderr[-2000:]
        return int(done.stdout)

    assert (run(), run()) == (0, 1)


@pytest.mark.parametrize("platform", ["cpu", "tpu"])
def test_export(platform: str) -> None:
    """Through bytes; what is meant for this machine also runs."""
    function, arrays, expected = split("vtrace")
    program = jax.export.export(
        jax.jit(lambda arrays: tuple(function(**arrays))),
        platforms=[platform],
        disabled_checks=rl_triton_jax.EXPORT_CHECKS,
    )(arrays)
    again = jax.export.deserialize(program.serialize())
    assert again.platforms == (platform,)
    if platform == jax.default_backend():
        check(jax.jit(again.call)(arrays), expected)

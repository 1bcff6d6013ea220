"""Calls on arrays spread over virtual CPU devices, case by case; `test_sharding.py` runs this file in processes of its own.

Each line printed is one case as JSON: its name, the largest error against the float64 oracle relative to the largest value,
and the collectives of the compiled program as [operation, elements of its result].
"""

from __future__ import annotations

import os

os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=8"
os.environ["JAX_PLATFORMS"] = "cpu"

import json
import math
import re
import sys
from collections.abc import Callable, Iterator
from typing import Any

import fast_oracle
import jax
import jax.numpy as jnp
import numpy as np
import oracle
from cases import Case, cases
from jax.sharding import AxisType, Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

import rl_triton_jax

DEVICES = np.array(jax.devices()[:4]).reshape(2, 2)
MESH = Mesh(DEVICES, ("x", "y"))
GAE = oracle.gae_problem(0, (16, 8), 0, flags="both")
ARRAYS = {name: x for name, x in GAE.items() if isinstance(x, np.ndarray)}
NUMBERS = {name: x for name, x in GAE.items() if name not in ARRAYS}


def gae(arrays: dict[str, Any], **options: Any) -> Any:
    return rl_triton_jax.gae(**arrays, **NUMBERS, **options)


def spread(x: np.ndarray, spec: tuple[Any, ...], axis: int, mesh: Mesh) -> jax.Array:
    """Edges lack the time axis, actions have one more; what cannot be split evenly is whole everywhere."""
    entries = [e for i, e in enumerate(spec) if i != axis] if x.ndim < len(spec) else list(spec)
    entries += [None] * (x.ndim - len(entries))
    names = [(e,) if isinstance(e, str) else e or () for e in entries]
    shards = [math.prod(mesh.shape[n] for n in group) for group in names]
    fits = [e if size % n == 0 else None for e, size, n in zip(entries, x.shape, shards, strict=True)]
    return jax.device_put(x, NamedSharding(mesh, P(*fits)))


def collectives(compiled: Any) -> list[Any]:
    pattern = r"= \(?(\w+)\[([\d,]*)\][^=]*? (all-gather|all-reduce|all-to-all|collective-permute)(?:-start)?\("
    found = re.findall(pattern, compiled.as_text())
    return [(kind, math.prod(int(n) for n in shape.split(",") if n)) for _, shape, kind in found]


def error(got: Any, expected: Any) -> float:
    got = got if isinstance(got, tuple) else (got,)
    return max(
        float(np.max(np.abs(np.asarray(o) - e)) / max(1.0, np.max(np.abs(e))))
        for o, e in zip(got, expected, strict=False)
    )


def estimator(case: Case, axis: int, spec: tuple[Any, ...], mesh: Mesh = MESH) -> tuple[float, list[Any]]:
    arrays = {
        name: spread(x, spec, axis, mesh) for name, x in case.arguments.items() if isinstance(x, np.ndarray) and x.ndim
    }
    rest = {name: x for name, x in case.arguments.items() if name not in arrays}
    compiled = (
        jax.jit(lambda arrays: getattr(rl_triton_jax, case.name)(**arrays, **rest, axis=axis)).lower(arrays).compile()
    )
    expected = getattr(fast_oracle, case.name)(**case.arguments, axis=axis)
    return error(compiled(arrays), expected), collectives(compiled)


def with_arrays(spec: tuple[Any, ...], mesh: Mesh = MESH) -> dict[str, jax.Array]:
    return {name: spread(x, spec, 0, mesh) for name, x in ARRAYS.items()}


def longer_values() -> Any:
    """T+1 values, which no number of devices splits together with T rewards."""
    problem = oracle.gae_problem(1, (16, 8), 0, source="longer_values", flags="both")
    arrays = {k: spread(x, ("x", "y"), 0, MESH) for k, x in problem.items() if isinstance(x, np.ndarray)}
    rest = {k: x for k, x in problem.items() if k not in arrays}
    got = jax.jit(lambda arrays: rl_triton_jax.gae(**arrays, **rest))(arrays)
    return error(got, oracle.gae(**problem)), []


def eager() -> Any:
    got = gae(with_arrays((None, "x")))
    assert got.advantages.sharding.spec == P(None, "x")
    return error(got, oracle.gae(**GAE)), []


def explicit(spec: tuple[Any, ...]) -> Any:
    """A mesh whose axes are part of the types: the result's type says how it is spread."""
    mesh = jax.make_mesh((2, 2), ("x", "y"), axis_types=(AxisType.Explicit,) * 2, devices=DEVICES.flatten().tolist())
    with jax.set_mesh(mesh):
        arrays = with_arrays(spec, mesh)
        function = jax.jit(gae)
        got = function(arrays)
        assert jax.typeof(got.advantages).sharding.spec == P(*spec)
        return error(got, oracle.gae(**GAE)), collectives(function.lower(arrays).compile())


def derivative(spec: tuple[Any, ...]) -> Any:
    """Of the sum of squared advantages by the rewards, against float64 finite differences of the loop."""
    arrays = with_arrays(spec)

    def loss(rewards: Any, arrays: Any) -> Any:
        return jnp.sum(gae({**arrays, "rewards": rewards}).advantages ** 2)

    compiled = jax.jit(jax.grad(loss)).lower(arrays["rewards"], arrays).compile()
    got = np.asarray(compiled(arrays["rewards"], arrays))
    rng = np.random.default_rng(5)
    direction = rng.standard_normal(got.shape)
    step = 1e-4
    up, down = (
        np.sum(oracle.gae(**{**GAE, "rewards": GAE["rewards"] + sign * step * direction})[0] ** 2) for sign in (1, -1)
    )
    slope = (up - down) / (2 * step)
    return abs(float((got * direction).sum()) - slope) / abs(slope) / 10, collectives(compiled)


def shard_mapped(check_vma: bool, partial: bool = False) -> Any:
    batch: Any = "x" if partial else ("x", "y")
    specs = {name: P(None, batch) if x.ndim == 2 else P(batch) for name, x in ARRAYS.items()}
    names = {"x"} if partial else {"x", "y"}
    function = jax.shard_map(
        lambda arrays: tuple(gae(arrays)),
        mesh=MESH,
        in_specs=(specs,),
        out_specs=P(None, batch),
        check_vma=check_vma,
        axis_names=names,
    )
    compiled = jax.jit(function).lower(ARRAYS).compile()
    return error(compiled(ARRAYS), oracle.gae(**GAE)), []


def pmapped() -> Any:
    pieces = {k: np.moveaxis(x.reshape(*x.shape[:-1], 4, 2), -2, 0) for k, x in ARRAYS.items()}
    got = jax.pmap(lambda arrays: tuple(gae(arrays)), devices=DEVICES.flatten().tolist())(pieces)
    got = tuple(np.moveaxis(np.asarray(x), 0, -2).reshape(16, 8) for x in got)
    return error(got, oracle.gae(**GAE)), []


def over_seeds() -> Any:
    """vmap over seeds, one on each pair of devices."""
    four = {k: np.stack([x] * 4) for k, x in ARRAYS.items()}
    arrays = {k: jax.device_put(x, NamedSharding(MESH, P("x", *[None] * (x.ndim - 1)))) for k, x in four.items()}
    compiled = jax.jit(jax.vmap(lambda arrays: tuple(gae(arrays)))).lower(arrays).compile()
    return error(tuple(x[2] for x in compiled(arrays)), oracle.gae(**GAE)), collectives(compiled)


def uneven() -> Any:
    """Seven columns over two devices, standardised: what XLA fills up with must not be averaged."""
    problem = oracle.gae_problem(0, (16, 7), 0, flags="both")
    arrays = {k: x for k, x in problem.items() if isinstance(x, np.ndarray)}

    def function(arrays: Any) -> Any:
        arrays = {
            k: jax.lax.with_sharding_constraint(x, NamedSharding(MESH, P(None, "x") if x.ndim == 2 else P("x")))
            for k, x in arrays.items()
        }
        return gae(arrays, normalize=True)

    return error(jax.jit(function)(arrays), oracle.gae(**problem, normalize=True)), []


def exported() -> Any:
    arrays = with_arrays((None, "x"))
    function = jax.jit(lambda arrays: tuple(gae(arrays)))
    program = jax.export.export(function, disabled_checks=rl_triton_jax.EXPORT_CHECKS)(arrays)
    again = jax.export.deserialize(program.serialize())
    return error(jax.jit(again.call)(arrays), oracle.gae(**GAE)), []


def all_cases() -> Iterator[tuple[str, Callable[[], Any]]]:
    seen: set[str] = set()
    for case in cases((12, 4), 0, seed=3):
        if case.name not in seen or "mask" in case.arguments or case.name == "gae":
            yield f"time and batch: {case.label}", lambda case=case: estimator(case, 0, ("x", "y"))
        if case.name not in seen:
            yield f"batch: {case.label}", lambda case=case: estimator(case, 0, (None, ("x", "y")))
        seen.add(case.name)
    for case in cases((4, 12, 2), 1, seed=4):
        if case.label in ("gae, last values", "vtrace, last values", "eligibility_traces, flags"):
            order = (None, ("y", "x"), None)
            yield f"time over both, minor first: {case.label}", lambda case=case, order=order: estimator(case, 1, order)
    yield "time: T+1 values", longer_values
    yield "eager", eager
    for spec in ((None, "x"), ("x", "y")):
        yield f"explicit {spec}", lambda spec=spec: explicit(spec)
    yield "batch: derivative", lambda: derivative((None, ("x", "y")))
    yield "time: derivative", lambda: derivative(("x", None))
    for check in (True, False):
        yield f"shard_map, check_vma={check}", lambda check=check: shard_mapped(check)
    yield "shard_map over one axis of two", lambda: shard_mapped(True, partial=True)
    yield "pmap", pmapped
    yield "batch: vmap over seeds", over_seeds
    yield "uneven and standardised", uneven
    yield "exported", exported


def main(shard: int, shards: int) -> None:
    for number, (label, function) in enumerate(all_cases()):
        if number % shards == shard:
            wrong, found = function()
            print(json.dumps({"case": label, "error": wrong, "collectives": found}), flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))

"""The kernels under Triton's interpreter, case by case; `test_interpreter.py` runs this file in a process of its own.

Each line printed is one case as JSON: its name and the largest error against the float64 oracle (NaN when an output was not
written or not finite), relative to the largest value.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from typing import Any

os.environ["TRITON_INTERPRET"] = "1"  # before Triton is imported

import cases as estimator_cases
import fast_oracle
import numpy as np
import oracle
from kernel_cases import ESTIMATORS, columns, kernel_problem, rows
from rl_triton_jax.kernels import plan as planning

from rl_triton_jax import problem as canonical_form
from rl_triton_jax.launch import interpret

# A warp of four lanes keeps the smallest tile that the plan allows small, so that tiny shapes reach every path.
DEVICE = planning.Device(warp=4)

TIME_MAJOR = [
    ("serial", (7, 3), columns(1, 1, 4, 4)),
    ("serial, even", (8, 4), columns(1, 1, 4, 4)),
    ("slabs", (37, 5), columns(1, 4, 3, 4)),
    ("slabs, one tile", (11, 9), columns(1, 4, 3, 4)),
    ("split serial", (32, 4), columns(1, 1, 4, 4, 1, 4)),
    ("split slabs", (37, 5), columns(1, 4, 2, 4, 1, 4)),
    ("split with idle programs", (17, 3), columns(1, 2, 2, 4, 1, 8)),
    ("one number", (1, 1), None),
    ("one step", (1, 6), None),
    ("one column", (19, 1), None),
]
BATCH_MAJOR = [
    ("rows", (5, 21), rows(1, 2, 8)),
    ("rows, one tile", (3, 8), rows(1, 2, 8)),
    ("rows, longer tile", (3, 5), rows(1, 2, 8)),
    ("split rows", (3, 37), rows(1, 2, 8, 2)),
    ("rows by the plan", (8, 16), None),
    ("columns across rows", (5, 9), columns(1, 2, 4, 4)),
]

# Kinds of walk that are tried with every kind of call; each other one with every second.
EVERYTHING = ("slabs", "rows", "split slabs")

# For the other estimators: one of each kind of walk.
OTHERS_TIME_MAJOR = [
    ("serial", (7, 3), columns(1, 1, 4, 4)),
    ("slabs", (19, 5), columns(1, 4, 2, 4)),
    ("split slabs", (21, 5), columns(1, 4, 2, 4, 1, 4)),
]
OTHERS_BATCH_MAJOR = [("rows", (3, 13), rows(1, 2, 8)), ("split rows", (3, 21), rows(1, 2, 8, 2))]


def gae_arguments(seed: int, shape: tuple[int, ...], axis: int, kind: str) -> dict[str, Any]:
    source = {"longer values": "longer_values", "next values": "next_values"}.get(kind, "last_values")
    flags = {"no flags": "none", "terminated": "terminated"}.get(kind, "both")
    arguments = oracle.gae_problem(seed, shape, axis, source=source, flags=flags)
    rng = np.random.default_rng(seed)
    if kind == "per step":
        decay = [n if i == axis else 1 for i, n in enumerate(shape)]
        arguments["gamma"] = rng.uniform(0.9, 1, decay).astype(np.float32)
        arguments["lambda_"] = rng.uniform(0.8, 1, shape).astype(np.float32)
    if kind == "mask":
        mask = rng.random(shape) < 0.7
        arguments["mask"] = mask
        for name in ("rewards", "values", "final_values"):
            arguments[name] = np.where(mask, arguments[name], np.nan).astype(np.float32)
    if kind == "byte flags":
        for name in ("terminated", "truncated"):
            arguments[name] = arguments[name].astype(np.uint8) * 3
    if kind == "normalized far from 0":
        arguments.update(terminated=None, truncated=None, final_values=None, gamma=0.0, lambda_=0.0)
        arguments["rewards"] = (1000 + 0.01 * rng.standard_normal(shape)).astype(np.float32)
        arguments["values"] = np.zeros(shape, np.float32)
    if kind.startswith("normalized"):
        arguments["normalize"] = True
        if kind == "normalized under a mask":
            arguments["mask"] = rng.random(shape) < 0.6
    return arguments


KINDS = ["no flags", "terminated", "both", "longer values", "next values", "per step", "mask", "byte flags"]
NORMALIZED = ["normalized", "normalized under a mask", "normalized far from 0"]


def cases() -> Iterator[tuple[str, str, dict[str, Any], Any]]:
    for axis, shapes in ((0, TIME_MAJOR), (1, BATCH_MAJOR)):
        for turn, (where, shape, choice) in enumerate(shapes):
            for number, kind in enumerate([*KINDS, *NORMALIZED]):
                if where not in EVERYTHING and (turn + number) % 2:
                    continue  # half of what is left: a case takes half a second
                if "mask" in kind and choice is not None and choice.parts > 1:
                    continue  # the plan never splits a masked walk
                yield f"gae {where}, {kind}", "gae", gae_arguments(number, shape, axis, kind), choice
            for reverse in (False, True):
                arguments = oracle.recurrence_problem(3, shape, axis, spread=1.5)
                arguments["a"] = np.where(arguments["reset"], np.nan, arguments["a"])
                yield (
                    f"linear_recurrence {where}, reverse={reverse}",
                    "linear_recurrence",
                    {**arguments, "reverse": reverse},
                    choice,
                )
    for axis, shapes in ((0, OTHERS_TIME_MAJOR), (1, OTHERS_BATCH_MAJOR)):
        for turn, (where, shape, choice) in enumerate(shapes):
            for number, case in enumerate(estimator_cases.cases(shape, axis, seed=2)):
                if where not in EVERYTHING and (turn + number) % 2:
                    continue
                if case.name == "n_step_returns":
                    yield f"{case.label}, {where}", case.name, {**case.arguments, "axis": axis}, None
                    continue
                if case.name == "gae" or ("mask" in case.arguments and choice.parts > 1):
                    continue  # tried above; the plan never splits a masked walk
                yield f"{case.label}, {where}", case.name, {**case.arguments, "axis": axis}, choice
    for n, U in ((1, 1), (2, 2), (5, 5), (9, 3), (13, 1), (20, 4)):  # small tiles, so that windows reach over some
        choice = planning.Choice("windows_rows", (("U", U), ("R", 2), ("BT", 4)), 1)
        for case in estimator_cases.cases((3, 13), 1, seed=n):
            if case.name == "n_step_returns":
                yield f"{case.label}, n={n} in rows", case.name, {**case.arguments, "axis": 1, "n": n}, choice
    (case,) = (c for c in estimator_cases.cases((2, 50), 1, seed=1) if c.label.endswith("3 steps"))
    yield "a long window in rows", case.name, {**case.arguments, "axis": 1, "n": 40}, None
    three = oracle.gae_problem(5, (6, 3, 4), 0)
    for name in ("terminated", "truncated"):  # one flag for all agents: two levels of columns
        three[name] = three[name][:, :, :1]
    three["final_values"] = np.where(three["truncated"], 0.5, np.nan).astype(np.float32) * np.ones(
        (6, 3, 4), np.float32
    )
    yield "gae flags shared by agents", "gae", three, columns(1, 2, 3, 4)
    strided = oracle.gae_problem(6, (9, 4), 0)
    strided["rewards"] = np.repeat(strided["rewards"], 3, 1)[:, ::3]
    strided["values"] = np.asfortranarray(strided["values"])
    yield "gae any strides", "gae", strided, columns(1, 2, 4, 4)


def main(shard: int, shards: int) -> None:
    for number, (label, name, arguments, choice) in enumerate(cases()):
        if len(sys.argv) > 3 and sys.argv[3] != name:
            continue
        if number % shards != shard:
            continue
        integers = any(getattr(x, "dtype", None) == np.int32 for x in arguments.values())
        dtype = "int32" if integers else "float32"
        problem, inputs, shape = kernel_problem(name, arguments, by_value=number // 2 % 2 == 1, dtype=dtype)
        flags = canonical_form.flags(ESTIMATORS[problem.estimator])
        plan = planning.build(problem, choice, DEVICE, flags) if choice else planning.plan(problem, DEVICE, flags)
        outputs = [np.full(shape, -(10**9) if integers else np.nan, dtype) for _ in problem.results]
        interpret.run(plan, problem, inputs, outputs)
        if name in ("gae", "linear_recurrence"):
            expected = getattr(oracle, name)(**arguments)
            expected = expected if isinstance(expected, tuple) else (expected,)
        else:
            expected = getattr(fast_oracle, name)(**arguments)
        if name == "puffer_advantage":  # the kernel is V-trace's, whose third result it is
            outputs = outputs[2:]
        error = max(
            float(np.max(np.abs(o - e)) / max(1.0, np.max(np.abs(e)))) for o, e in zip(outputs, expected, strict=True)
        )
        print(json.dumps({"case": label, "error": error}), flush=True)


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), int(sys.argv[2])))

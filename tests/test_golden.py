"""Numbers collected from the public test suites and issue reports of other libraries (`golden.json`, sources inside).

Cases of estimators that are not offered yet are collected and skipped; they start to run with the name.
"""

from __future__ import annotations

import importlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np
import oracle
import pytest
from conftest import to_jax

import rl_triton_jax

CASES: list[dict[str, Any]] = json.loads((Path(__file__).parent / "golden.json").read_text())["cases"]
INTEGRAL = {"terminated", "truncated", "mask", "done"}


def case_id(case: dict[str, Any]) -> str:
    return f"{case['call'].split(' ')[0]}: {case['name']}"


def find(package: Any, name: str) -> Callable[..., Any]:
    """The callable of a case's `call`, e.g. "gae" or "compat.brax.compute_gae"; skips where it is not offered yet."""
    target = package
    for part in name.split("."):
        if not hasattr(target, part):
            try:
                importlib.import_module(f"{target.__name__}.{part}")
            except (ImportError, AttributeError):
                pytest.skip(f"{name} is not offered yet")
        target = getattr(target, part)
    return target


def as_argument(name: str, x: Any, dtype: Any) -> Any:
    if not isinstance(x, list):
        return x
    return np.asarray(x, np.float64).astype(bool if name in INTEGRAL else dtype)


def retrace_arguments(inputs: dict[str, Any]) -> dict[str, Any]:
    """From arrays that all belong to s_{t+1} to q_values and ratios per step; row 0 of the ratios is never used."""
    actions = inputs.pop("next_actions").astype(int)[..., None]
    behavior = inputs.pop("next_behavior_probs")
    taken_q = np.take_along_axis(inputs["next_q_values"], actions, -1)[..., 0]
    taken_p = np.take_along_axis(inputs["next_target_probs"], actions, -1)[..., 0]
    first = np.zeros_like(taken_q[:1])
    return inputs | {
        "q_values": np.concatenate([first, taken_q[:-1]]),
        "log_rhos": np.log(np.concatenate([first + 1, (taken_p / behavior)[:-1]])),
    }


def arguments(case: dict[str, Any], dtype: Any = np.float32) -> tuple[str, dict[str, Any]]:
    """(name of the call, keyword arguments as NumPy arrays)."""
    name = case["call"].split(" ")[0]
    inputs = {key: as_argument(key, x, dtype) for key, x in case["inputs"].items()}
    if "rhos" in inputs:
        inputs["log_rhos"] = np.log(inputs.pop("rhos"))
    if name == "retrace":
        inputs = retrace_arguments(inputs)
    if name == "compat.pufferlib":
        name = "compat.pufferlib.compute_puff_advantage"
        inputs = {key: x[None] if isinstance(x, np.ndarray) else x for key, x in inputs.items()}
        inputs["advantages"] = np.zeros_like(inputs["rewards"])
    return name, inputs


def named_results(result: Any, names: list[str]) -> dict[str, Any]:
    """Results by name: fields of a NamedTuple, a plain tuple in the order of `names`, or the one array there is."""
    if hasattr(result, "_fields"):
        return {name: getattr(result, name) for name in names}
    if isinstance(result, tuple):
        return dict(zip(names, result, strict=True))
    assert len(names) == 1
    return {names[0]: result}


def check(result: Any, expected: dict[str, Any], rtol: float) -> None:
    for name, got in named_results(result, list(expected)).items():
        right = np.asarray(expected[name], np.float64)
        oracle.assert_close(got, right.reshape(got.shape) if got.ndim == right.ndim + 1 else right, rtol)


@pytest.mark.parametrize("case", CASES, ids=case_id)
def test_golden(case: dict[str, Any], implementation: str) -> None:
    name, inputs = arguments(case)
    fn = find(rl_triton_jax, name)
    if not name.startswith("compat."):
        inputs["implementation"] = implementation
    check(fn(**to_jax(inputs)), case["expected"], 2e-6)


@pytest.mark.parametrize("case", [c for c in CASES if c["call"] in ("gae", "linear_recurrence")], ids=case_id)
def test_golden_under_jit_in_float64(case: dict[str, Any], x64: None) -> None:
    name, inputs = arguments(case, np.float64)
    fn = find(rl_triton_jax, name)
    arrays = {key: x for key, x in inputs.items() if isinstance(x, np.ndarray)}
    others = {key: x for key, x in inputs.items() if key not in arrays}
    check(jax.jit(lambda a: fn(**a, **others))(to_jax(arrays)), case["expected"], 1e-12)


@pytest.mark.parametrize("case", [c for c in CASES if c["call"] in ("gae", "linear_recurrence")], ids=case_id)
def test_golden_torch(case: dict[str, Any]) -> None:
    torch = pytest.importorskip("torch")
    name, inputs = arguments(case, np.float64)
    fn = find(rl_triton_jax, f"torch.{name}")
    check(
        fn(**{key: torch.from_numpy(x) if isinstance(x, np.ndarray) else x for key, x in inputs.items()}),
        case["expected"],
        1e-12,
    )


@pytest.mark.parametrize(
    "case", [c for c in CASES if c["call"].split(" ")[0] in ("gae", "linear_recurrence", "retrace")], ids=case_id
)
def test_the_oracle_agrees(case: dict[str, Any]) -> None:
    name, inputs = arguments(case, np.float64)
    result: Any = getattr(oracle, name)(**inputs)
    if isinstance(result, tuple):  # some cases give the first result only
        result = result[: len(case["expected"])] if name == "gae" else result[0]
    check(result, case["expected"], 1e-12)


def test_every_case_is_collected() -> None:
    calls = {case["call"].split(" ")[0] for case in CASES}
    assert {"gae", "linear_recurrence", "lambda_returns", "vtrace", "retrace", "compat.brax.compute_gae"} <= calls
    assert len(CASES) >= 52

"""Bad input raises TypeError or ValueError naming the argument, eagerly and at trace time; it never gives a number."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import jax
import jax.export
import jax.numpy as jnp
import numpy as np
import pytest
from cases import cases
from conftest import gpu_present

import rl_triton_jax

T, N = 5, 3


def ones(*shape: int) -> jax.Array:
    return jnp.ones(shape, jnp.float32)


def flags(*shape: int) -> jax.Array:
    return jnp.zeros(shape, bool)


GOOD: dict[str, Any] = {"rewards": ones(T, N), "values": ones(T, N), "last_values": ones(N)}
TRUNCATED = GOOD | {"truncated": flags(T, N), "final_values": ones(T, N)}
NO_SOURCE = {"rewards": ones(T, N), "values": ones(T, N)}
NEXT = NO_SOURCE | {"next_values": ones(T, N)}
LONGER = {"rewards": ones(T, N), "values": ones(T + 1, N)}
RECURRENCE: dict[str, Any] = {"a": ones(T, N), "b": ones(T, N), "initial": ones(N), "reset": flags(T, N)}

# (what is wrong, the call, words the message must hold)
GAE_CASES: list[tuple[str, dict[str, Any], list[str]]] = [
    ("no source of the last value", NO_SOURCE, ["last_values", "next_values"]),
    ("last and next values", NEXT | {"last_values": ones(N)}, ["last_values", "next_values"]),
    ("T+1 values and last values", LONGER | {"last_values": ones(N)}, ["last_values", "values"]),
    ("T+1 values and next values", LONGER | {"next_values": ones(T, N)}, ["next_values", "values"]),
    ("truncated without final values", GOOD | {"truncated": flags(T, N)}, ["truncated", "final_values", "next_values"]),
    ("truncated, T+1 values, no final values", LONGER | {"truncated": flags(T, N)}, ["truncated", "final_values"]),
    (
        "final with next values",
        NEXT | {"truncated": flags(T, N), "final_values": ones(T, N)},
        ["final_values", "next_values"],
    ),
    ("final values without truncated", GOOD | {"final_values": ones(T, N)}, ["final_values", "truncated"]),
    (
        "final values with terminated only",
        GOOD | {"terminated": flags(T, N), "final_values": ones(T, N)},
        ["final_values", "truncated"],
    ),
    ("no time axis", {"rewards": jnp.float32(1), "values": jnp.float32(1), "last_values": 0.0}, ["rewards"]),
    ("axis too large", GOOD | {"axis": 2}, ["axis", "2"]),
    ("axis too small", GOOD | {"axis": -3}, ["axis", "-3"]),
    ("axis not an integer", GOOD | {"axis": 0.5}, ["axis"]),
    ("axis None", GOOD | {"axis": None}, ["axis"]),
    ("unknown implementation", GOOD | {"implementation": "cuda"}, ["implementation", "cuda", "triton", "xla"]),
    ("implementation of another type", GOOD | {"implementation": 3}, ["implementation"]),
    ("values of another batch", GOOD | {"values": ones(T, N + 1)}, ["values", "(5, 4)", "(5, 3)"]),
    ("values two rows longer", GOOD | {"values": ones(T + 2, N)}, ["values", "(7, 3)", "(5, 3)"]),
    ("values one row shorter", GOOD | {"values": ones(T - 1, N)}, ["values", "(4, 3)", "(5, 3)"]),
    (
        "values longer along the wrong axis",
        GOOD | {"values": ones(T + 1, N), "axis": 1, "last_values": ones(T)},
        ["values", "(6, 3)"],
    ),
    ("values of a lower rank", GOOD | {"values": ones(T)}, ["values", "(5,)"]),
    ("values of a higher rank", GOOD | {"values": ones(T, N, 1)}, ["values", "(5, 3, 1)"]),
    ("values of size 1", GOOD | {"values": ones(T, 1)}, ["values", "(5, 1)"]),
    ("terminated [T]", GOOD | {"terminated": flags(T)}, ["terminated", "(5,)", "(5, 3)"]),
    ("terminated [N]", GOOD | {"terminated": flags(N)}, ["terminated", "(3,)", "(5, 3)"]),
    ("terminated 0-d", GOOD | {"terminated": jnp.asarray(True)}, ["terminated"]),
    ("terminated of another size", GOOD | {"terminated": flags(T + 1, N)}, ["terminated", "(6, 3)", "(5, 3)"]),
    ("terminated of a higher rank", GOOD | {"terminated": flags(T, N, 1)}, ["terminated", "(5, 3, 1)"]),
    ("truncated [T]", TRUNCATED | {"truncated": flags(T)}, ["truncated", "(5,)", "(5, 3)"]),
    ("truncated of another size", TRUNCATED | {"truncated": flags(T, N - 1)}, ["truncated", "(5, 2)"]),
    ("mask [T]", GOOD | {"mask": flags(T)}, ["mask", "(5,)", "(5, 3)"]),
    ("mask of another size", GOOD | {"mask": flags(T, N + 1)}, ["mask", "(5, 4)"]),
    ("gamma [T]", GOOD | {"gamma": ones(T)}, ["gamma", "(5,)"]),
    ("gamma [N]", GOOD | {"gamma": ones(N)}, ["gamma", "(3,)"]),
    ("gamma [1]", GOOD | {"gamma": ones(1)}, ["gamma", "(1,)"]),
    ("gamma of another size", GOOD | {"gamma": ones(T + 1, N)}, ["gamma", "(6, 3)"]),
    ("lambda_ [T]", GOOD | {"lambda_": ones(T)}, ["lambda_", "(5,)"]),
    ("lambda_ of another size", GOOD | {"lambda_": ones(T, 2)}, ["lambda_", "(5, 2)"]),
    ("last_values per step", GOOD | {"last_values": ones(T, N)}, ["last_values", "(5, 3)", "(3,)"]),
    ("last_values of another size", GOOD | {"last_values": ones(N + 1)}, ["last_values", "(4,)", "(3,)"]),
    ("next_values one row longer", NEXT | {"next_values": ones(T + 1, N)}, ["next_values", "(6, 3)", "(5, 3)"]),
    ("next_values of a lower rank", NEXT | {"next_values": ones(N)}, ["next_values", "(3,)", "(5, 3)"]),
    ("final_values of another size", TRUNCATED | {"final_values": ones(T, 2)}, ["final_values", "(5, 2)", "(5, 3)"]),
    ("final_values of a lower rank", TRUNCATED | {"final_values": ones(N)}, ["final_values", "(3,)", "(5, 3)"]),
    *(
        (f"complex {name}", base | {name: base[name].astype(jnp.complex64)}, [name, "complex64"])
        for base, name in [
            (GOOD, "rewards"),
            (GOOD, "values"),
            (GOOD, "last_values"),
            (NEXT, "next_values"),
            (TRUNCATED, "final_values"),
            (TRUNCATED, "truncated"),
        ]
    ),
    ("complex gamma", GOOD | {"gamma": 1j}, ["gamma"]),
    ("complex lambda_", GOOD | {"lambda_": jnp.complex64(1)}, ["lambda_"]),
]
RECURRENCE_CASES: list[tuple[str, dict[str, Any], list[str]]] = [
    ("b without a time axis", {"a": jnp.float32(1), "b": jnp.float32(1)}, ["b"]),
    ("a of another size", RECURRENCE | {"a": ones(T + 1, N)}, ["a", "(6, 3)", "(5, 3)"]),
    ("a of a lower rank", RECURRENCE | {"a": ones(T)}, ["a", "(5,)", "(5, 3)"]),
    ("initial per step", RECURRENCE | {"initial": ones(T, N)}, ["initial", "(5, 3)", "(3,)"]),
    ("initial of another size", RECURRENCE | {"initial": ones(N + 1)}, ["initial", "(4,)", "(3,)"]),
    ("reset [T]", RECURRENCE | {"reset": flags(T)}, ["reset", "(5,)", "(5, 3)"]),
    ("reset of another size", RECURRENCE | {"reset": flags(T, N + 1)}, ["reset", "(5, 4)", "(5, 3)"]),
    ("axis too large", RECURRENCE | {"axis": 2}, ["axis", "2"]),
    ("axis not an integer", RECURRENCE | {"axis": "0"}, ["axis"]),
    (
        "unknown implementation",
        RECURRENCE | {"implementation": "pallas"},
        ["implementation", "pallas", "triton", "xla"],
    ),
    *(
        (f"complex {name}", RECURRENCE | {name: RECURRENCE[name].astype(jnp.complex64)}, [name, "complex64"])
        for name in ("a", "b", "initial", "reset")
    ),
]
# Not arrays at all: these cannot be traced, so they are tried eagerly only.
NOT_ARRAYS: list[tuple[str, dict[str, Any], list[str]]] = [
    ("rewards None", GOOD | {"rewards": None}, ["rewards"]),
    ("values None", GOOD | {"values": None}, ["values"]),
    ("rewards a string", GOOD | {"rewards": "reward"}, ["rewards"]),
    ("values a string", GOOD | {"values": "value"}, ["values"]),
    ("rewards strings", GOOD | {"rewards": np.full((T, N), "1.0")}, ["rewards"]),
    ("terminated a string", GOOD | {"terminated": "no"}, ["terminated"]),
    ("mask an object", GOOD | {"mask": object()}, ["mask"]),
    ("gamma a string", GOOD | {"gamma": "0.99"}, ["gamma"]),
    ("gamma None", GOOD | {"gamma": None}, ["gamma"]),
    ("lambda_ a tuple", GOOD | {"lambda_": (0.9, 0.8)}, ["lambda_"]),
    ("last_values a string", GOOD | {"last_values": "0"}, ["last_values"]),
]


def assert_message(message: str, words: list[str]) -> None:
    """Names stand as whole words; a shape is found in whatever brackets it is written."""
    for word in words:
        if word.startswith("("):
            numbers = re.findall(r"\d+", word)
            pattern = r"[(\[]\s*" + r",\s*".join(numbers) + r",?\s*[)\]]"
        else:
            pattern = rf"(?<![\w]){re.escape(word)}(?![\w])"
        assert re.search(pattern, message), f"no {word!r} in: {message}"
    assert "Traceback" not in message
    assert len(message) > 10


@pytest.mark.parametrize(
    ("call", "words"), [c[1:] for c in GAE_CASES + NOT_ARRAYS], ids=[c[0] for c in GAE_CASES + NOT_ARRAYS]
)
def test_gae(call: dict[str, Any], words: list[str]) -> None:
    with pytest.raises((TypeError, ValueError)) as error:
        rl_triton_jax.gae(**call)
    assert_message(str(error.value), words)


@pytest.mark.parametrize(("call", "words"), [c[1:] for c in RECURRENCE_CASES], ids=[c[0] for c in RECURRENCE_CASES])
def test_linear_recurrence(call: dict[str, Any], words: list[str]) -> None:
    with pytest.raises((TypeError, ValueError)) as error:
        rl_triton_jax.linear_recurrence(**call)
    assert_message(str(error.value), words)


def trace(fn: Callable[..., Any], call: dict[str, Any]) -> None:
    """Trace only: an error that waited for compilation or for the numbers would be missed."""
    arrays = {key: x for key, x in call.items() if isinstance(x, jax.Array)}
    static = {key: x for key, x in call.items() if key not in arrays}
    jax.eval_shape(jax.jit(lambda a: fn(**a, **static)), arrays)


@pytest.mark.parametrize(("call", "words"), [c[1:] for c in GAE_CASES], ids=[c[0] for c in GAE_CASES])
def test_gae_at_trace_time(call: dict[str, Any], words: list[str]) -> None:
    with pytest.raises((TypeError, ValueError)) as error:
        trace(rl_triton_jax.gae, call)
    assert_message(str(error.value), words)


@pytest.mark.parametrize(("call", "words"), [c[1:] for c in RECURRENCE_CASES], ids=[c[0] for c in RECURRENCE_CASES])
def test_linear_recurrence_at_trace_time(call: dict[str, Any], words: list[str]) -> None:
    with pytest.raises((TypeError, ValueError)) as error:
        trace(rl_triton_jax.linear_recurrence, call)
    assert_message(str(error.value), words)


def test_empty_input_is_still_checked() -> None:
    with pytest.raises(ValueError, match="last_values"):
        rl_triton_jax.gae(ones(0, 3), ones(0, 3))
    with pytest.raises(ValueError, match="values"):
        rl_triton_jax.gae(ones(5, 0), ones(4, 0), last_values=0.0)


def test_no_last_step_is_a_longer_one_when_there_are_none() -> None:
    # T = 0 with values [1, N] is T+1 rows.
    assert rl_triton_jax.gae(ones(0, 3), ones(1, 3)).advantages.shape == (0, 3)


def test_only_arrays_and_flags_are_positional() -> None:
    with pytest.raises(TypeError):
        rl_triton_jax.gae(ones(T, N), ones(T, N), None, None, ones(N))  # type: ignore[misc]
    with pytest.raises(TypeError):
        rl_triton_jax.linear_recurrence(ones(T, N), ones(T, N), ones(N))  # type: ignore[misc]


@pytest.mark.parametrize("missing", ["rewards", "values"])
def test_missing_arguments(missing: str) -> None:
    with pytest.raises(TypeError, match=missing):
        rl_triton_jax.gae(**{key: x for key, x in GOOD.items() if key != missing})


@pytest.mark.parametrize("unknown", ["done", "lam", "last_value", "bootstrap_value", "discount"])
def test_misspelt_arguments(unknown: str) -> None:
    call: dict[str, Any] = GOOD | {unknown: 0.9}
    with pytest.raises(TypeError, match=unknown):
        rl_triton_jax.gae(**call)


@pytest.mark.skipif(gpu_present(), reason="Triton runs on a GPU")
def test_triton_without_a_gpu_says_why() -> None:
    for call in (
        lambda: rl_triton_jax.gae(**GOOD, implementation="triton"),
        lambda: rl_triton_jax.linear_recurrence(**RECURRENCE, implementation="triton"),
        jax.jit(lambda: rl_triton_jax.gae(**GOOD, implementation="triton")),
    ):
        with pytest.raises((ValueError, RuntimeError, NotImplementedError), match=r"(?i)triton"):
            call()


def test_none_and_xla_never_fail() -> None:
    for implementation in (None, "xla"):
        assert rl_triton_jax.gae(**GOOD, implementation=implementation).advantages.shape == (T, N)
        assert rl_triton_jax.linear_recurrence(**RECURRENCE, implementation=implementation).shape == (T, N)


@pytest.mark.parametrize(
    ("function", "change", "words"),
    [
        (rl_triton_jax.gae, {"normalize": "no"}, ["gae", "normalize", "str"]),
        (rl_triton_jax.gae, {"normalize": 1}, ["gae", "normalize", "int"]),
        (rl_triton_jax.gae, {"with_returns": None}, ["gae", "with_returns", "NoneType"]),
        (rl_triton_jax.gae, {"axis": True}, ["gae", "axis", "bool"]),
        (rl_triton_jax.n_step_returns, {"n": True}, ["n_step_returns", "n", "bool"]),
        (rl_triton_jax.n_step_returns, {"n": 2.0}, ["n_step_returns", "n", "float"]),
    ],
)
def test_a_flag_is_true_or_false_and_a_number_no_flag(function: Any, change: dict[str, Any], words: list[str]) -> None:
    arguments: dict[str, Any] = {"values": jnp.zeros((3, 2)), "last_values": 0.0}
    with pytest.raises(TypeError) as error:
        function(jnp.zeros((3, 2)), **{**arguments, **change})
    assert_message(str(error.value), words)


def test_reverse_is_true_or_false() -> None:
    with pytest.raises(TypeError) as error:
        rl_triton_jax.linear_recurrence(0.5, jnp.zeros(3), reverse="no")  # type: ignore[arg-type]
    assert_message(str(error.value), ["linear_recurrence", "reverse", "str"])


@pytest.mark.parametrize(
    "name", ["retrace", "tree_backup", "general_off_policy_returns", "puffer_advantage", "q_lambda"]
)
def test_an_implementation_that_cannot_run_is_named_with_what_was_called(name: str) -> None:
    """Also where several functions share a kernel."""
    if rl_triton_jax.default_implementation() == "triton":
        pytest.skip("it can run here")
    case = next(c for c in cases((3, 2), 0) if c.name == name)
    with pytest.raises(ValueError, match=rf"^{name}: implementation='triton' needs"):
        getattr(rl_triton_jax, name)(**case.arguments, implementation="triton")


def test_symbolic_shapes_are_refused_by_name() -> None:
    """The error says which argument, and what to do."""
    (steps,) = jax.export.symbolic_shape("steps")
    shape = jax.ShapeDtypeStruct((steps, 2), jnp.float32)
    function = jax.jit(lambda r: rl_triton_jax.discounted_returns(r))
    with pytest.raises(
        ValueError, match=r"discounted_returns: `rewards` has the symbolic shape .*export once for each"
    ):
        jax.export.export(function)(shape)

"""The benchmarks: their gate, their arithmetic, and that everything runs where there is no GPU."""

from __future__ import annotations

import copy
import dataclasses
import importlib
import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks import check, compare, measure, report, run, shapes
from benchmarks.bench import Settings, make_case, measure_row, relative_error, why_no_chain
from benchmarks.floors import Floors, sets_to_rotate
from benchmarks.frameworks import FRAMEWORKS
from benchmarks.ops import all_ops
from benchmarks.ops.n_step_returns import NStepReturns
from benchmarks.problem import Inputs, Op, Problem, touched_bytes
from benchmarks.provider import Function, Provider
from benchmarks.providers import all_providers
from benchmarks.rows import Results, Row, empty_row, key_of, latest, load

GAE = all_ops()["gae"]
SMALL = shapes.Shape("time_major", 5, 3)
QUICK = Settings(measure.QUICK, (1, 2), Floors(measure.QUICK))


# ---- the whole runner


@pytest.fixture(scope="module")
def smoke(tmp_path_factory: pytest.TempPathFactory) -> Results:
    pytest.importorskip("torch")
    folder = str(tmp_path_factory.mktemp("results"))
    path = run.main(
        [
            "--quick",
            "--shapes",
            "smoke",
            "--providers",
            "ours_xla,ours_xla_triton,ours_torch,lax_scan_1",
            "--out",
            folder,
            "--name",
            "smoke",
        ],
        log=lambda _: None,
    )
    (results,) = load([path])
    return results


def test_a_run_writes_a_row_for_each_provider_and_shape(smoke: Results) -> None:
    on_gpu = "ours_xla_triton" not in smoke["header"]["unavailable"]
    providers = {"ours_xla", "ours_torch", "lax_scan_1"} | ({"ours_xla_triton"} if on_gpu else set())
    warm = {(row["provider"], row["T"], row["N"]) for row in smoke["rows"] if row["warm"] == "warm"}
    assert warm == {(name, T, N) for name in providers for T, N in ((7, 5), (17, 3))}


def test_rows_hold_every_field_and_a_time(smoke: Results) -> None:
    for row in smoke["rows"]:
        assert set(row) == set(Row.__annotations__)
        assert row["error"] is None
        assert row["max_rel_err"] is not None
        assert row["max_rel_err"] < 1e-5
        assert row["device_us"]
        assert row["call_us"]
        assert row["compile_s"]
        assert row["copy_us"]
        assert row["fraction_of_copy"]
        assert row["outputs"] == "advantages,returns"
        assert row["truncation"] is False
        if row["device_method"] == "wall":
            assert row["note"]
    chained = {row["provider"] for row in smoke["rows"] if row["marginal_us"] is not None}
    assert chained - {"ours_xla_triton"} == {"ours_xla"}


def test_the_header_says_where_and_with_what(smoke: Results) -> None:
    header = smoke["header"]
    assert header["versions"]["jax"]
    assert header["versions"]["python"]
    assert header["device"]
    assert header["date"]
    assert header["copy_gb_s"] > 0
    assert "empty_kernel_us" in header
    assert header["dropped"] == []


def test_a_spent_budget_drops_rows_and_says_so(tmp_path: Path) -> None:
    path = run.main(
        ["--quick", "--shapes", "smoke", "--suite", "jax", "--max-seconds", "0", "--out", str(tmp_path)],
        log=lambda _: None,
    )
    results = json.loads(path.read_text())
    assert results["rows"] == []
    assert any("associative_scan" in text and "budget" in text for text in results["header"]["dropped"])


def test_unknown_names_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    for arguments in (["--ops", "nope"], ["--providers", "nope"], ["--shapes", "nope"], ["--chains", "4,4"]):
        with pytest.raises(SystemExit):
            run.parse(arguments)
    assert "nope" in capsys.readouterr().err


def test_this_package_comes_first_and_rotation_after_the_strong_baseline() -> None:
    problem = GAE.problem(SMALL)
    by_name = all_providers()
    ranks = [
        run.Job(problem, by_name["ours_xla_triton"]).rank,
        run.Job(problem, by_name["associative_scan"]).rank,
        run.Job(problem, by_name["ours_xla_triton"], sets=3).rank,
        run.Job(problem, by_name["lax_scan_1"]).rank,
    ]
    assert ranks == sorted(ranks)
    assert len(set(ranks)) == len(ranks)


# ---- the gate


def _provider(change: Any) -> Provider:
    def make(problem: Problem) -> Function:
        right = all_providers()["lax_scan_1"].make(problem)
        return lambda inputs: change(list(right(inputs)))

    return Provider("changed", "jax", make, light=True)


@pytest.mark.parametrize(
    "change",
    [
        lambda outputs: [outputs[0] * 1.0001, outputs[1]],
        lambda outputs: [outputs[0], outputs[1].at[-1].add(0.01)],
        lambda outputs: [outputs[0].at[0, 0].set(np.nan), outputs[1]],
        lambda outputs: [outputs[1], outputs[0]],
        lambda outputs: outputs[:1],
    ],
)
def test_a_wrong_provider_is_refused_and_not_timed(change: Any) -> None:
    row = measure_row(GAE.problem(SMALL), _provider(change), QUICK)
    assert row["error"] is not None
    assert "refused" in row["error"]
    assert row["device_us"] is None
    assert row["call_us"] is None
    json.dumps(row, allow_nan=False)


def test_a_right_provider_is_timed() -> None:
    row = measure_row(GAE.problem(SMALL), _provider(lambda outputs: outputs), QUICK)
    assert row["error"] is None
    assert row["device_us"]


def test_a_failing_provider_is_a_row_with_an_error() -> None:
    def make(problem: Problem) -> Function:
        raise RuntimeError("no such luck")

    row = measure_row(GAE.problem(SMALL), Provider("failing", "jax", make), QUICK)
    assert row["error"] == "RuntimeError: no such luck"
    assert row["device_us"] is None


def test_relative_error_is_against_the_largest_value() -> None:
    assert relative_error([np.array([1.0, 8.5])], [np.array([1.0, 8.0])]) == 0.5 / 8
    assert relative_error([np.array([np.inf])], [np.array([1.0])]) == float("inf")
    assert relative_error([np.zeros((2, 1))], [np.zeros(2)]) == float("inf")


EACH_OP = pytest.mark.parametrize("op", all_ops().values(), ids=lambda op: op.name)


# Few steps, which compile fast, and columns enough for each flag to be set somewhere.
FLAT = (shapes.Shape("time_major", 9, 40), shapes.Shape("batch_major", 11, 40))


def _problems(op: Op, *flat: shapes.Shape) -> list[Problem]:
    return list(dict.fromkeys(op.problem(s, variant=v, actions=3) for v in op.variants for s in flat))


@EACH_OP
def test_jax_baselines_agree_with_the_loop(op: Op) -> None:
    """Untimed; the light run below does so for this package and for `lax.scan`."""
    import jax
    import jax.numpy as jnp

    provider = all_providers()["associative_scan" if op.first_order else "shifts"]
    for problem in _problems(op, FLAT[1]):
        assert provider.why_not_problem(problem) is None
        case = make_case(problem)
        outputs = jax.jit(provider.make(problem))({name: jnp.asarray(x) for name, x in case.inputs.items()})
        assert relative_error([np.asarray(x, np.float64) for x in outputs], case.expected) < 1e-5


@EACH_OP
@pytest.mark.parametrize("name", ["ours_torch", "torch_loop", "torch_doubling"])
def test_torch_agrees_with_the_loop(op: Op, name: str) -> None:
    torch = pytest.importorskip("torch")
    if torch.cuda.is_available():
        pytest.skip("compiles there")
    provider = all_providers()[name]
    for problem in _problems(op, *FLAT):
        if provider.why_not_problem(problem) is None:
            case = make_case(problem)
            outputs = provider.make(problem)({k: torch.tensor(x) for k, x in case.inputs.items()})
            assert relative_error([x.double().numpy() for x in outputs], case.expected) < 1e-5


@pytest.mark.parametrize("name", ["brax", "rlax", "torchrl_vectorised", "torchrl_loop"])
@pytest.mark.parametrize("variant", GAE.variants)
def test_peers_agree_with_the_loop(name: str, variant: Any) -> None:
    provider = all_providers()[name]
    why_not = provider.why_not()
    if why_not:
        pytest.skip(why_not)
    framework = FRAMEWORKS[provider.framework]
    for shape in FLAT:
        problem = GAE.problem(shape, variant=variant)
        if provider.why_not_problem(problem) is None:
            case = make_case(problem)
            arrays = framework.put(list(case.inputs.values()))
            outputs = provider.make(problem)(dict(zip(case.inputs, arrays, strict=True)))
            assert relative_error([framework.to_host(x) for x in outputs], case.expected) < 1e-5


def _stand_in(module: str, drop_in: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """This package's drop-in under the name of the library, whose signatures it has."""
    pytest.importorskip("torch")
    stand_in = importlib.import_module(f"rl_triton_jax.compat.{drop_in}")
    for part in (module, module.partition(".")[0]):
        monkeypatch.setitem(sys.modules, part, stand_in)


@pytest.mark.parametrize("variant", GAE.variants)
@pytest.mark.parametrize("name", ["rl_triton", "pufferlib"])
def test_libraries_that_are_not_on_hand_are_called_right(
    name: str, variant: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    import torch

    _stand_in({"pufferlib": "pufferlib.pufferl"}.get(name, name), name, monkeypatch)
    provider = all_providers()[name]
    assert provider.why_not() is None
    for op in (all_ops()[op] for op in provider.ops or ()):
        if variant not in op.variants:
            continue
        problem = op.problem(FLAT[1], variant=variant)
        assert provider.why_not_problem(op.problem(FLAT[0])) is not None  # time-major
        if provider.why_not_problem(problem):
            continue
        case = make_case(problem)
        assert provider.hold is not None
        held = {k: torch.tensor(x) for k, x in provider.hold(problem, case.inputs).items()}
        assert {x.dtype for x in held.values()} == {torch.float32}
        outputs = provider.make(problem)(held)
        assert relative_error([x.double().numpy() for x in outputs], case.expected) < 1e-5


def test_a_provider_is_timed_on_what_its_users_hold(monkeypatch: pytest.MonkeyPatch) -> None:
    _stand_in("rl_triton", "rl_triton", monkeypatch)
    row = measure_row(GAE.problem(shapes.Shape("batch_major", 5, 3)), all_providers()["rl_triton"], QUICK)
    assert row["error"] is None
    assert row["device_us"]


@EACH_OP
def test_every_op_has_flags_to_show_and_inputs_as_declared(op: Op) -> None:
    """Each flag on somewhere in the data of the tests above; bytes as declared once the final values are left out."""
    for problem in _problems(op, *FLAT):
        inputs = make_case(problem).inputs
        assert all(inputs[name].any() for name, kind in op.operands(problem).items() if kind == "flag")
        declared = sum(inputs[name].nbytes for name in op.operands(problem))
        assert problem.input_bytes == declared
        least = op.count_bytes(problem, inputs) - problem.output_bytes
        extra = inputs["cu_seqlens"].nbytes if "cu_seqlens" in inputs else 0
        assert 0 <= declared + extra - least <= (problem.elements * problem.itemsize if "final_values" in inputs else 0)


def _column(*numbers: float) -> np.ndarray:
    return np.array(numbers, np.float64)[:, None]


# Truncated at step 1 of four, where the final state is worth 1.2.
HAND: dict[str, np.ndarray] = {
    "rewards": _column(1, 2, 3, 4),
    "values": _column(0.5, 1, 1.5, 2),
    "last_values": np.array([2.5]),
    "terminated": _column(0, 0, 0, 0),
    "truncated": _column(0, 1, 0, 0),
    "final_values": _column(0, 1.2, 0, 0),
    "q_values": _column(0.5, 1, 1.5, 2),
    "next_expected_q": _column(1, 1.2, 2, 2.5),
    "coefficients": _column(9, 0.5, 9, 0.8),
    "target_probs": _column(9, 0.5, 9, 0.8),
    "log_rhos": np.log(_column(0.5, 1, 2, 1)),
    "next_q_values": np.array([[[0, 2]], [[0.2, 2.2]], [[1, 3]], [[2, 3]]]),
    "next_target_probs": np.full((4, 1, 2), 0.5),
    "inputs": _column(1, 2, 3, 4),
    "done": _column(0, 1, 0, 0),
    "a": _column(9, 0.5, 9, 0.25),
    "b": _column(1, 2, 3, 4),
    "reset": _column(0, 0, 1, 0),
    "cu_seqlens": np.array([0, 1, 4]),
}
# Worked out by hand with gamma = lambda = 1/2, the first output.
BY_HAND: dict[str, tuple[float, ...]] = {
    "gae": (1.4, 1.6, 3.3125, 3.25),
    "lambda_returns": (1.9, 2.6, 4.8125, 5.25),
    "discounted_returns": (2.3, 2.6, 5.625, 5.25),
    "vtrace": (1.2, 2.6, 4.8125, 5.25),
    "puffer_advantage": (0.7, 1.6, 3.3125, 3.25),
    "general_off_policy_returns": (1.9, 2.6, 5.3, 5.25),
    "retrace": (1.9, 2.6, 4.8125, 5.25),
    "tree_backup": (1.7, 2.6, 4.65, 5.25),
    "q_lambda": (2.275, 3.1, 5.125, 5.5),
    "eligibility_traces": (1, 2.25, 3, 4.75),
    "episodic_cumsum": (1, 3, 3, 7),
    "linear_recurrence": (1, 2.5, 3, 4.75),
}
HAND_SHAPE = shapes.Shape("time_major", 4, 1)


def _by_hand(op: Op, variant: Any = "truncation", gamma: float = 0.5, **changed: np.ndarray) -> list[np.ndarray]:
    problem = dataclasses.replace(op.problem(HAND_SHAPE, variant=variant, actions=2), gamma=gamma, lambda_=0.5)
    given = HAND | changed
    return [x[:, 0] for x in op.reference(problem, {name: given[name] for name in op.operands(problem)})]


@pytest.mark.parametrize("name", BY_HAND)
def test_the_loops_give_hand_computed_numbers(name: str) -> None:
    op = all_ops()[name]
    outputs = _by_hand(op, "truncation" if "truncation" in op.variants else "plain")
    assert len(outputs) == len(op.outputs)
    assert outputs[0] == pytest.approx(BY_HAND[name])


def test_second_outputs_and_both_flags_by_hand() -> None:
    assert _by_hand(GAE)[1] == pytest.approx([1.9, 2.6, 4.8125, 5.25])
    assert _by_hand(all_ops()["vtrace"])[1] == pytest.approx([0.9, 1.6, 4.125, 3.25])
    assert _by_hand(all_ops()["retrace"])[1] == pytest.approx([1.4, 1.6, 3.3125, 3.25])
    # Terminated wins: step 1 is worth its reward.
    for name in ("gae", "lambda_returns", "discounted_returns", "n_step_returns", "upgo", "general_off_policy_returns"):
        worth = _by_hand(all_ops()[name], terminated=HAND["truncated"])[0][1]
        assert worth == pytest.approx(1 if name == "gae" else 2)


def test_windows_by_hand() -> None:
    assert _by_hand(NStepReturns(2), "plain")[0] == pytest.approx([2.375, 4, 5.625, 5.25])
    assert _by_hand(NStepReturns(3), "plain")[0] == pytest.approx([3, 4.8125, 5.625, 5.25])
    assert _by_hand(NStepReturns(2))[0] == pytest.approx([2.3, 2.6, 5.625, 5.25])


def test_upgo_by_hand() -> None:
    """Step 3 does worse than its value of 9 and is not followed, step 1 does better and is."""
    assert _by_hand(all_ops()["upgo"], values=_column(0.5, 1, 1.5, 9))[0] == pytest.approx([2.3, 2.6, 7.5, 5.25])


def test_normalized_advantages_by_hand() -> None:
    """(1.4, 1.6, 3.3125, 3.25): mean 2.390625, squares about it 0.981, 0.625, 0.850, 0.739."""
    advantages, returns = _by_hand(all_ops()["gae_normalized"])
    assert advantages == pytest.approx([-1.108453, -0.884664, 1.031525, 0.961591], abs=1e-6)
    assert returns == pytest.approx(_by_hand(GAE)[1])


@pytest.mark.parametrize("variant", ["plain", "truncation"])
def test_gradients_are_differences_of_the_loop(variant: Any) -> None:
    """GAE is linear in rewards and values, so a difference over any distance is the derivative."""
    op = all_ops()["gae_gradient"]
    problem = op.problem(shapes.Shape("batch_major", 6, 2), variant=variant)
    inputs = op.make_inputs(problem)
    for name, t in (("terminated", 2), ("truncated", 4)):
        if name in inputs:
            inputs[name] = inputs[name].copy()
            inputs[name][0, t] = 1

    def loss(**changed: np.ndarray) -> float:
        advantages, returns = GAE.reference(GAE.problem(problem.shape, variant=variant), {**inputs, **changed})
        return float((advantages * inputs["advantages_bar"] + returns * inputs["returns_bar"]).sum())

    _, _, *gradients = op.reference(problem, inputs)
    for name, gradient in zip(("rewards", "values"), gradients, strict=True):
        for at in np.ndindex(gradient.shape):
            moved = inputs[name].astype(np.float64)
            moved[at] += 1
            assert gradient[at] == pytest.approx(loss(**{name: moved}) - loss(), abs=1e-9)


def test_packed_sequences_by_hand() -> None:
    """One of a token, worth 1.2 behind it, and one of three."""
    op = all_ops()["gae_packed"]
    problem = dataclasses.replace(op.problem(shapes.Shape("time_major", 2, 2)), gamma=0.5, lambda_=0.5)
    inputs = {name: HAND[name].ravel() for name in ("rewards", "values", "cu_seqlens")}
    advantages, returns = op.reference(problem, inputs | {"last_values": np.array([1.2, 2.5])})
    assert advantages == pytest.approx([1.1, 2.578125, 3.3125, 3.25])
    assert returns == pytest.approx(advantages + inputs["values"])


def test_one_packed_sequence_is_64_times_the_mean() -> None:
    op = all_ops()["gae_packed"]
    for T, N in ((16, 300), (7, 5), (3, 2), (4, 1), (1, 100)):
        problem = op.problem(shapes.Shape("batch_major", T, N))
        offsets = op.make_inputs(problem)["cu_seqlens"]
        lengths = np.diff(offsets)
        assert (problem.shape.dims, offsets[0], offsets[-1], len(lengths)) == ((T * N,), 0, T * N, N)
        assert lengths.min() >= 1
        assert lengths.max() == (T if N == 1 else min(64 * T, T * N // 2, T * N - N + 1))


# ---- what an op needs of the library


def test_what_the_library_lacks_is_unavailable_and_the_rest_is_planned(monkeypatch: pytest.MonkeyPatch) -> None:
    import rl_triton_jax

    monkeypatch.delattr(rl_triton_jax, "upgo")
    args = run.parse(
        ["--ops", "upgo,episodic_cumsum,n_step_returns,gae_packed", "--shapes", "512x256,b:256x512", "--light"]
    )
    providers = [all_providers()[name] for name in ("ours_xla", "associative_scan", "lax_scan_1", "shifts")]
    jobs, dropped, unavailable = run.plan(args, providers)
    planned = [(job.problem.op.name, job.provider.name) for job in jobs]
    expected = [
        ("upgo", "associative_scan"),
        ("upgo", "lax_scan_1"),
        ("episodic_cumsum", "ours_xla"),
        ("episodic_cumsum", "associative_scan"),
        ("episodic_cumsum", "lax_scan_1"),
        ("n_step_returns", "ours_xla"),
        ("n_step_returns", "shifts"),
        ("gae_packed", "ours_xla"),
        ("gae_packed", "associative_scan"),
    ]
    # Both layouts, but for packed sequences, which have none.
    assert sorted(planned) == sorted(2 * expected[:-2] + expected[-2:])
    assert dropped == []
    assert unavailable == {
        "upgo ours_xla": "rl_triton_jax has no upgo",
        "n_step_returns associative_scan": "no first-order recurrence",
        "n_step_returns lax_scan_1": "no first-order recurrence",
        "gae_packed lax_scan_1": "a serial walk over all sequences would take too long",
    }


@pytest.mark.parametrize("variant", ["plain", "truncation"])
def test_a_light_run_of_all_ops(variant: str, tmp_path: Path) -> None:
    """Prepared by threads, right, and with times of the device and of a call, nothing else."""
    pytest.importorskip("torch")
    options = ["--ops", "all", "--light", "--quick", "--shapes", "9x40", "--variants", variant]
    options += ["--providers", "ours_xla,ours_torch", "--workers", "2", "--actions", "3"]
    path = run.main([*options, "--out", str(tmp_path)], log=lambda _: None)
    (results,) = load([path])
    rows = results["rows"]
    assert [row["error"] for row in rows if row["error"]] == []
    measured = [row["op"] for row in rows if row["provider"] == "ours_xla"]
    assert measured == [op.name for op in all_ops().values() if variant in op.variants]
    assert len({key_of(row) for row in rows}) == len(rows)
    assert {row["actions"] for row in rows if row["op"] in ("retrace", "q_lambda")} == {3}
    assert {row["layout"] for row in rows if row["op"] == "gae_packed"} == ({"packed"} if variant == "plain" else set())
    names = [row["provider"] for row in rows]
    assert names == sorted(
        names, key=["ours_torch", "ours_xla"].index
    )  # the less important one behind all of the other
    for row in rows:
        assert row["device_us"]
        assert row["call_us"]
        assert (row["marginal_us"], row["graph_us"], row["warm"]) == (None, None, "warm")
    assert results["header"]["light"] is True


def test_batches_hold_at_most_so_many_jobs_and_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    jobs = [run.Job(GAE.problem(SMALL), all_providers()["ours_xla"])] * 5
    assert [len(batch) for batch in run.batches(jobs, 2)] == [2, 2, 1]
    monkeypatch.setattr(run.environment, "memory_bytes", lambda: 8 * 600)  # 267 bytes each
    assert [len(batch) for batch in run.batches(jobs, 4)] == [2, 2, 1]
    monkeypatch.setattr(run.environment, "memory_bytes", lambda: 1)
    assert [len(batch) for batch in run.batches(jobs, 4)] == [1] * 5


# ---- bytes and rotation


def _bytes(problem: Problem, **flags: np.ndarray) -> int:
    return problem.op.count_bytes(problem, problem.op.make_inputs(problem) | flags)


def test_bytes_of_gae_are_those_counted_by_hand() -> None:
    shape = shapes.Shape("time_major", 128, 4096)
    elements = 128 * 4096
    assert _bytes(GAE.problem(shape)) == 17 * elements + 4 * 4096 == 8_929_280
    assert _bytes(GAE.problem(shape, variant="first_output")) == 13 * elements + 4 * 4096
    assert _bytes(GAE.problem(shape, dtype="bfloat16")) == 9 * elements + 2 * 4096
    # One sector of eight float32 final values for each of two far truncations, none where terminated wins.
    truncated, terminated = np.zeros((2, *shape.dims), np.uint8)
    truncated[3, 7] = truncated[90, 4000] = truncated[50, 50] = terminated[50, 50] = 1
    problem = GAE.problem(shape, variant="truncation")
    assert _bytes(problem, truncated=truncated, terminated=terminated) == 18 * elements + 4 * 4096 + 2 * 32


def test_bytes_of_a_linear_recurrence() -> None:
    op = all_ops()["linear_recurrence"]
    assert _bytes(op.problem(SMALL)) == 13 * 15


def test_bytes_of_action_values_are_read_once() -> None:
    op = all_ops()["retrace"]
    # Rewards, action values, log-ratios and two results of 4, one flag, values and probabilities of six actions.
    assert _bytes(op.problem(SMALL)) == (5 * 4 + 1 + 2 * 6 * 4) * 15
    assert _bytes(op.problem(SMALL, variant="truncation", actions=2)) == (5 * 4 + 2 + 2 * 2 * 4) * 15


def test_touched_sectors() -> None:
    used = np.zeros(20, bool)
    assert touched_bytes(used, 4) == 0
    used[[0, 7, 19]] = True  # the last sector is a partial one
    assert touched_bytes(used, 4) == 64
    assert touched_bytes(used, 2) == 64


def test_rotation_covers_more_than_twice_the_cache() -> None:
    for size in (9_000_000, 38_000_000, 59_999_999):
        sets = sets_to_rotate(size, cache=60_000_000)
        assert sets * size > 120_000_000 >= (sets - 1) * size
    assert sets_to_rotate(200_000_000, cache=60_000_000) == 1
    assert sets_to_rotate(1000, cache=60_000_000) == 1


def test_coarse_copies_are_interpolated(monkeypatch: pytest.MonkeyPatch) -> None:
    floors, asked = Floors(measure.QUICK, coarse=True), set[int]()

    def measured(size: int, sets: int) -> float:
        asked.add(size)
        return size / 100

    monkeypatch.setattr(floors, "_measured", measured)
    for size in (2**20, 1_200_000, 1_400_000, 1_482_910, 1_500_000):
        assert floors.copy_us(size) == pytest.approx(size / 100)
    assert asked == {2**20, round(2**20.5), 2**21}


def test_rotated_calls_use_each_set_in_turn_and_hold_the_results() -> None:
    alive: list[int] = []

    class Result:
        def __init__(self, k: int) -> None:
            self.k = k
            alive.append(k)

        def __del__(self) -> None:
            alive.remove(self.k)

    one = measure.rotating(Result, [(0,), (1,), (2,)])
    seen = [one().k for _ in range(7)]
    assert seen == [0, 1, 2, 0, 1, 2, 0]
    assert sorted(alive) == [0, 1, 2]


# ---- chains and counts


@EACH_OP
@pytest.mark.parametrize("variant", ["plain", "truncation"])
def test_a_long_chain_stays_finite(op: Op, variant: Any) -> None:
    if variant not in op.variants:
        return
    problem = op.chained(op.problem(shapes.Shape("time_major", 40, 64), variant=variant, actions=2))
    case = make_case(problem)
    inputs: Inputs = case.inputs
    outputs: Sequence[np.ndarray] = ()
    for _ in range(64):
        outputs = op.reference(problem, inputs)
        inputs = op.feed(inputs, outputs)
    assert all(1e-30 < np.abs(x).max() < 1e30 for x in outputs)


def test_chains_too_long_or_too_large_are_left_out() -> None:
    ours, slow = all_providers()["ours_xla_triton"], all_providers()["associative_scan"]
    small = GAE.problem(shapes.Shape("time_major", 20, 256))
    large = GAE.problem(shapes.Shape("time_major", 1 << 20, 32))
    assert why_no_chain(small, ours, 64, 5.0) is None
    assert why_no_chain(small, slow, 16, 5.0) is None
    assert why_no_chain(small, ours, 64, 20_000.0) is not None
    assert why_no_chain(large, ours, 64, 100.0) is not None
    assert why_no_chain(large, slow, 16, 100.0) is not None
    assert why_no_chain(small, all_providers()["ours_torch"], 64, 5.0) is not None


def test_kernels_are_summed_by_call() -> None:
    timed = measure.by_call([1.0, 2.0, 1.0, 3.0, 1.0, 5.0, 1.0, 5.0], calls=4)
    assert (timed.us, timed.launches, timed.method) == (5.0, 2.0, "cupti")
    assert timed.spread == pytest.approx((6.0 - 3.5) / 3.5)
    uneven = measure.by_call([1.0, 2.0, 3.0], calls=2)
    assert (uneven.us, uneven.launches, uneven.method) == (3.0, 1.5, "cupti, mean")


def test_counts_adapt_to_the_cost_of_a_call() -> None:
    effort = measure.Effort(seconds=0.1, fewest=6, most=40)
    assert [effort.count(s) for s in (1e-5, 0.005, 0.05, 2.0)] == [40, 20, 6, 2]


def test_shape_texts() -> None:
    assert shapes.parse("targets,128x4096") == shapes.TARGETS
    assert shapes.parse("b:4096x128") == (shapes.Shape("batch_major", 128, 4096),)
    assert {s.name for s in shapes.SWEEP if s.layout == "batch_major"} >= {"4096x128", "16x524288"}
    assert set(shapes.TARGETS) | set(shapes.USERS) | set(shapes.ESTIMATORS) <= set(shapes.SWEEP)


# ---- report and check, on results made up here


def _row(T: int, N: int, provider: str, **fields: Any) -> Row:
    row: dict[str, Any] = (
        empty_row()
        | {
            "op": "gae",
            "layout": "time_major",
            "T": T,
            "N": N,
            "dtype": "float32",
            "provider": provider,
            "outputs": "advantages,returns",
            "truncation": False,
            "warm": "warm",
            "copy_us": 2.0,
        }
        | fields
    )
    return Row(**row)


@pytest.fixture
def made_up() -> Results:
    rows = [
        _row(20, 256, "ours_xla_triton", device_us=4.0, compile_s=0.05, marginal_us=1.0),
        _row(128, 4096, "ours_xla_triton", device_us=3.0, compile_s=0.05),
    ]
    rows.append(_row(128, 4096, "associative_scan", device_us=12.0, marginal_us=20.0, compile_s=0.7))
    header = {
        "device": "NVIDIA H200",
        "date": "2020-01-01T00:00:00+00:00",
        "commit": "abc",
        "quick": False,
        "versions": {"jax": "1.2.3"},
        "copy_gb_s": 4000.0,
        "empty_kernel_us": 0.5,
    }
    return Results(header=header, rows=rows)


@pytest.fixture
def said() -> list[str]:
    return []


def _write(path: Path, results: Results) -> str:
    path.write_text(json.dumps(results))
    return str(path)


@pytest.fixture
def targets(tmp_path: Path) -> str:
    """Met by `made_up` with room to spare: one bound of each kind."""
    defaults = {"device": "NVIDIA H200", "ops": ["gae"], "dtype": "float32", "truncation": False, "warm": "warm"}
    defaults |= {"metric": "device_us", "providers": [["ours_jax_triton", "ours_xla_triton"]]}
    found = [
        {"shapes": "20x256,128x4096", "max": 8},
        {"shapes": "20x256", "metric": "marginal_us", "max": 2},
        {"shapes": "128x4096", "of": {"provider": "associative_scan"}, "max": 0.5},
        {"shapes": "128x4096", "metric": "over_copy_us", "max": 2},
        {"shapes": "128x4096", "metric": "compile_s", "min": 0.025},
    ]
    path = tmp_path / "targets.json"
    path.write_text(json.dumps({"defaults": defaults, "targets": found}))
    return str(path)


def test_check_passes_when_every_target_is_met(tmp_path: Path, made_up: Results, targets: str, said: list[str]) -> None:
    assert check.main([_write(tmp_path / "r.json", made_up), "--targets", targets], log=said.append) == 0
    assert [line.split()[-4:] for line in said[1:-1]] == [
        ["4", "0.50", "met", "ours_xla_triton"],
        ["3", "0.38", "met", "ours_xla_triton"],
        ["1", "0.50", "met", "ours_xla_triton"],
        ["0.25", "0.50", "met", "ours_xla_triton"],
        ["1", "0.50", "met", "ours_xla_triton"],
        ["0.05", "2.00", "met", "ours_xla_triton"],
    ]
    assert said[-1] == "6 of 6 targets met"


@pytest.mark.parametrize(
    ("row", "field", "value"),
    [
        (0, "device_us", 1e6),
        (0, "marginal_us", 3.0),
        (1, "compile_s", 0.01),
        (2, "device_us", 5.9),
        (1, "copy_us", 0.9),
    ],
)
def test_check_fails_on_a_miss(
    row: int, field: str, value: float, tmp_path: Path, made_up: Results, targets: str, said: list[str]
) -> None:
    made_up["rows"][row] |= {field: value}  # type: ignore[misc]
    assert check.main([_write(tmp_path / "r.json", made_up), "--targets", targets], log=said.append) == 1
    assert sum("MISSED" in line for line in said) == 1


def test_a_light_run_counts_where_no_other_does(made_up: Results, targets: str) -> None:
    first = check.load_targets(Path(targets))[0]
    light = copy.deepcopy(made_up)
    light["header"] |= {"date": "2020-01-02T00:00:00+00:00", "light": True}
    light["rows"][0]["device_us"] = 7.0
    assert check.judge(first, [made_up, light]).measured == 4.0
    assert check.judge(first, [light]).measured == 7.0
    light["header"]["quick"] = True
    assert check.judge(first, [light]).measured is None


def test_a_run_measures_what_targets_look_at(tmp_path: Path, targets: str) -> None:
    """Every row that some target needs is planned, on this package's side and on the other."""
    jobs, dropped, unavailable = run.plan_targets(check.load_targets(), seed=0)
    planned = {(job.problem.label, job.provider.name) for job in jobs}
    assert len(planned) == len(jobs)
    # Without a GPU only the baselines are left.
    missing = {name.split()[-1] for name in unavailable} | {line.split(":")[0].split()[-1] for line in dropped}
    for target in check.load_targets():
        for key in target.rows():
            op, layout, T, N, dtype, provider, outputs, truncation, actions, _ = key
            problem = Problem(
                all_ops()[op], shapes.Shape(layout, T, N), dtype, tuple(outputs.split(",")), truncation, actions
            )
            assert (problem.label, provider) in planned or provider in missing, (problem.label, provider)
    args = ["--targets", targets, "--quick", "--workers", "2", "--out", str(tmp_path), "--name", "r"]
    (results,) = load([run.main(args, log=lambda _: None)])
    assert {(r["provider"], r["T"]) for r in results["rows"]} >= {("associative_scan", 20), ("associative_scan", 128)}
    assert not [row["error"] for row in results["rows"] if row["error"]]


def test_committed_targets_are_told_apart() -> None:
    labels = [(target.label, target.providers) for target in check.load_targets()]
    assert len(set(labels)) == len(labels) > 100


@pytest.mark.parametrize("device", ["NVIDIA H200", "another"])
def test_check_fails_on_what_was_not_measured(
    tmp_path: Path, made_up: Results, targets: str, said: list[str], device: str
) -> None:
    made_up["header"]["device"] = device
    if device == "NVIDIA H200":
        del made_up["rows"][0]
    assert check.main([_write(tmp_path / "r.json", made_up), "--targets", targets], log=said.append) == 1


def test_check_fails_on_a_wrong_row_of_ours(tmp_path: Path, made_up: Results, targets: str, said: list[str]) -> None:
    made_up["rows"].append(_row(7, 5, "ours_torch", error="refused: relative error 1"))
    assert check.main([_write(tmp_path / "r.json", made_up), "--targets", targets], log=said.append) == 1
    assert "FAILED ROW" in said[-1]


def test_the_newest_row_counts(made_up: Results, tmp_path: Path) -> None:
    newer = copy.deepcopy(made_up)
    newer["header"]["date"] = "2020-01-02T00:00:00+00:00"
    newer["rows"] = [_row(128, 4096, "ours_xla_triton", device_us=3.0)]
    paths = [Path(_write(tmp_path / "a.json", newer)), Path(_write(tmp_path / "b.json", made_up))]
    rows = latest(load(paths))
    assert rows[key_of(newer["rows"][0])]["device_us"] == 3.0
    assert len(rows) == len(made_up["rows"])


def test_report_prints_ratios_to_ours(tmp_path: Path, made_up: Results, said: list[str]) -> None:
    assert report.main([_write(tmp_path / "r.json", made_up)], log=said.append) == 0
    (line,) = (line for line in said[0].splitlines() if "associative_scan" in line)
    assert line.split()[:4] == ["128x4096", "associative_scan", "4.00", "12"]


def test_readme_block_is_written_and_found_stale(tmp_path: Path, made_up: Results, said: list[str]) -> None:
    results, readme = _write(tmp_path / "r.json", made_up), tmp_path / "README.md"
    readme.write_text(f"# Title\n\n{report.BEGIN}\nold\n{report.END}\n\nThe rest.\n")
    assert report.main([results, "--check-readme", str(readme)], log=said.append) == 1
    assert report.main([results, "--readme", str(readme)], log=said.append) == 0
    assert report.main([results, "--check-readme", str(readme)], log=said.append) == 0
    text = readme.read_text()
    assert text.startswith("# Title\n")
    assert text.endswith("The rest.\n")
    assert "old" not in text
    assert "| 128x4096 | 2 | 3 | 12 (4.0x) |" in text
    assert "| 20x256 | 1 (0.05 s) | - |" in text
    made_up["rows"][-1]["device_us"] = 15.0
    assert report.main([_write(tmp_path / "r.json", made_up), "--check-readme", str(readme)], log=said.append) == 1


def test_readme_without_marks_is_an_error(tmp_path: Path, made_up: Results, said: list[str]) -> None:
    (tmp_path / "README.md").write_text("nothing here")
    arguments = [_write(tmp_path / "r.json", made_up), "--readme", str(tmp_path / "README.md")]
    assert report.main(arguments, log=said.append) == 1


def test_light_runs_are_tables_of_their_own(made_up: Results) -> None:
    light = copy.deepcopy(made_up)
    light["header"] |= {"date": "2020-01-02T00:00:00+00:00", "light": True}
    light["rows"] = [
        _row(T, N, provider, op=op, actions=actions, truncation=truncation, device_us=us)
        for op, actions, truncation in (("upgo", None, False), ("retrace", 6, False), ("upgo", None, True))
        for T, N in ((128, 4096), (16, 32768))
        for provider, us in (("ours_xla_triton", 4.0), ("associative_scan", 10.0))
    ] + [_row(128, 4096, "ours_xla_triton", device_us=3.0)]
    block = report.readme_block([made_up, light])
    assert "All estimators, time-major, float32, with truncations, buffers reused" in block
    assert "|  | 16x32768 | 128x4096 |" in block
    assert "| `retrace`, 6 actions | 4 (2.5x) | 4 (2.5x) |" in block
    assert "| `gae` | - | 3 |" in block
    assert report.grouped(latest([made_up]).values())  # the full run's tables stay as they were
    assert report.readme_block([made_up]).splitlines()[2:8] == block.splitlines()[2:8]


def test_what_became_slower_is_told_from_noise(tmp_path: Path, made_up: Results, said: list[str]) -> None:
    made_up["rows"] = [
        _row(20, 256, "ours_xla_triton", device_us=1.0, call_us=10.0, device_spread=0.3),
        _row(128, 4096, "ours_xla_triton", device_us=4.0, device_spread=0.01),
        _row(7, 5, "ours_xla_triton", device_us=4.0),
    ]
    old, new = tmp_path / "old.json", tmp_path / "new.json"
    _write(old, made_up)
    made_up["rows"][0] |= {"device_us": 1.2, "call_us": 90.0}  # type: ignore[typeddict-item]
    made_up["rows"][1]["device_us"] = 3.0
    made_up["rows"][2] |= {"T": 8, "device_us": 99.0}  # type: ignore[typeddict-item]
    _write(new, made_up)
    assert compare.main([str(old), str(new)], log=said.append) == 0
    assert [line.split()[0] for line in said[:-1]] == ["9.00x", "1.20x", "0.75x"]
    said.clear()
    assert compare.main([str(new), str(old)], log=said.append) == 1
    assert [line for line in said if line.endswith("SLOWER")] == [said[0]]
    assert said[0].split()[:2] == ["1.33x", "device_us"]
    made_up["header"]["device"] = "another"
    _write(new, made_up)
    assert compare.main([str(old), str(new)], log=said.append) == 1
    assert "nothing to compare" in said[-1]


def test_quick_runs_are_no_measurements(made_up: Results) -> None:
    made_up["header"]["quick"] = True
    assert "No results" in report.readme_block([made_up])


def test_problems_are_values() -> None:
    """Data and references are made once per problem, so problems must be equal where they are the same."""
    assert GAE.problem(SMALL) == dataclasses.replace(GAE.problem(SMALL, seed=1), seed=0)
    assert make_case(GAE.problem(SMALL)) is make_case(GAE.problem(SMALL))


def test_several_devices(tmp_path: Path) -> None:
    """On virtual CPU devices: the script runs, its numbers are right, and only a spread time axis exchanges anything."""
    pytest.importorskip("torch")
    out = tmp_path / "devices.json"
    command = [sys.executable, "-m", "benchmarks.multi_gpu", "--virtual", "2", "--quick", "--out", str(out)]
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, cwd=Path(__file__).parents[1], timeout=300
    )
    assert done.returncode == 0, done.stderr[-2000:]
    rows = json.loads(out.read_text())["rows"]
    assert [(r["kind"], r["devices"]) for r in rows[:4]] == [("weak", 1), ("weak", 2), ("strong", 1), ("strong", 2)]
    assert [bool(r["collectives"]) for r in rows[:4]] == [False, False, False, True]
    assert {r["kind"] for r in rows[4:]} == {"torch, each device", "torch, a process for each device"}
    assert all(r["error"] <= 1e-6 for r in rows)

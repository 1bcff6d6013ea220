"""The benchmarks: their gate, their arithmetic, and that everything runs where there is no GPU."""

from __future__ import annotations

import copy
import dataclasses
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks import check, measure, report, run, shapes
from benchmarks.bench import Settings, make_case, measure_row, relative_error, why_no_chain
from benchmarks.floors import Floors, sets_to_rotate
from benchmarks.ops import all_ops
from benchmarks.problem import Inputs, Problem, touched_bytes
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


@pytest.mark.parametrize("shape", shapes.SMOKE, ids=lambda shape: f"{shape.layout}-{shape.name}")
@pytest.mark.parametrize("variant", ["plain", "truncation", "first_output"])
def test_baselines_agree_with_the_loop(shape: shapes.Shape, variant: Any) -> None:
    """Untimed and eager; `measure_row` repeats this for whatever is measured."""
    import jax.numpy as jnp

    problem = GAE.problem(shape, variant=variant)
    case = make_case(problem)
    arrays = {name: jnp.asarray(x) for name, x in case.inputs.items()}
    for name in ("associative_scan", "lax_scan_1"):
        outputs = all_providers()[name].make(problem)(arrays)
        assert relative_error([np.asarray(x, np.float64) for x in outputs], case.expected) < 1e-5


@pytest.mark.parametrize("op", all_ops().values(), ids=lambda op: op.name)
@pytest.mark.parametrize("name", ["torch_loop", "torch_doubling"])
def test_torch_baselines_agree_with_the_loop(op: Any, name: str) -> None:
    torch = pytest.importorskip("torch")
    if torch.cuda.is_available():
        pytest.skip("compiles there")
    for shape in shapes.SMOKE:
        case = make_case(op.problem(shape))
        outputs = all_providers()[name].make(case.problem)({k: torch.tensor(x) for k, x in case.inputs.items()})
        assert relative_error([x.double().numpy() for x in outputs], case.expected) < 1e-5


def test_the_loop_gives_hand_computed_numbers() -> None:
    """Rewards 1..4, values .5 to 2, last value 2.5, truncated at step 1 where the final state is worth 1.2."""
    problem = GAE.problem(shapes.Shape("time_major", 4, 1), variant="truncation")

    def column(*numbers: float) -> np.ndarray:
        return np.array(numbers)[:, None]

    inputs = {
        "rewards": column(1, 2, 3, 4),
        "values": column(0.5, 1, 1.5, 2),
        "last_values": np.array([2.5]),
        "terminated": column(0, 0, 0, 0),
        "truncated": column(0, 1, 0, 0),
        "final_values": column(0, 1.2, 0, 0),
    }
    advantages, returns = GAE.reference(problem, inputs)
    assert advantages[:2, 0] == pytest.approx([3.547814, 2.188])
    assert returns == pytest.approx(advantages + inputs["values"])
    inputs["terminated"] = inputs["truncated"]  # both flags: terminated wins
    assert GAE.reference(problem, inputs)[0][:2, 0] == pytest.approx([2.4305, 1])


# ---- bytes and rotation


def _bytes(problem: Problem, **flags: np.ndarray) -> int:
    dims = problem.shape.dims
    return problem.op.count_bytes(problem, {"terminated": np.zeros(dims, np.uint8), **flags})


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


@pytest.mark.parametrize("op", all_ops().values(), ids=lambda op: op.name)
def test_a_long_chain_stays_finite(op: Any) -> None:
    problem = op.chained(op.problem(shapes.Shape("time_major", 40, 64)))
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
    assert set(shapes.TARGETS) | set(shapes.USERS) <= set(shapes.SWEEP)


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
    limits = [(t["T"], t["N"], t["metric"], t["max"]) for t in check.load_targets()]
    rows = [
        _row(T, N, "ours_xla_triton", **{"device_us": 4.0, "compile_s": 0.05, metric: limit * 0.5})
        for T, N, metric, limit in limits
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


def test_check_passes_when_every_target_is_met(tmp_path: Path, made_up: Results, said: list[str]) -> None:
    assert check.main([_write(tmp_path / "r.json", made_up)], log=said.append) == 0
    assert sum("0.50" in line and " met " in line for line in said) == len(check.load_targets())


def test_check_fails_on_a_miss(tmp_path: Path, made_up: Results, said: list[str]) -> None:
    made_up["rows"][0]["device_us"] = 1e6
    assert check.main([_write(tmp_path / "r.json", made_up)], log=said.append) == 1
    assert sum("MISSED" in line for line in said) == 1


@pytest.mark.parametrize("device", ["NVIDIA H200", "another"])
def test_check_fails_on_what_was_not_measured(tmp_path: Path, made_up: Results, said: list[str], device: str) -> None:
    made_up["header"]["device"] = device
    if device == "NVIDIA H200":
        del made_up["rows"][0]
    assert check.main([_write(tmp_path / "r.json", made_up)], log=said.append) == 1


def test_check_fails_on_a_wrong_row_of_ours(tmp_path: Path, made_up: Results, said: list[str]) -> None:
    made_up["rows"].append(_row(7, 5, "ours_torch", error="refused: relative error 1"))
    assert check.main([_write(tmp_path / "r.json", made_up)], log=said.append) == 1
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


def test_quick_runs_are_no_measurements(made_up: Results) -> None:
    made_up["header"]["quick"] = True
    assert "No results" in report.readme_block([made_up])


def test_problems_are_values() -> None:
    """Data and references are made once per problem, so problems must be equal where they are the same."""
    assert GAE.problem(SMALL) == dataclasses.replace(GAE.problem(SMALL, seed=1), seed=0)
    assert make_case(GAE.problem(SMALL)) is make_case(GAE.problem(SMALL))

"""The benchmark of a whole training step: it trains with the estimator it was given, and refuses a wrong one."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

pytest.importorskip("flax")
pytest.importorskip("optax")

from benchmarks import train_step
from benchmarks.providers import all_providers
from benchmarks.train_step import SETTINGS, Sizes, estimator, main


def _problem(sizes: Sizes) -> Any:
    return train_step.all_ops()["gae"].problem(train_step.Shape("time_major", sizes.T, sizes.N))


def test_the_loss_of_the_first_minibatch_by_a_loop() -> None:
    """While the policy is the one that acted, the objective is the mean of normalised advantages: 0."""
    import flax.linen as nn

    sizes = Sizes(5, 4, minibatches=1, epochs=1)
    step, carry = SETTINGS["brax"].make(estimator("lax_scan_1", _problem(sizes)), sizes)
    loss = float(jax.jit(step)(carry)[0])

    (params, _), data, _ = carry
    critic = train_step._mlp((*[256] * 5, 1), nn.swish)
    values = np.asarray(critic.apply(params["value"], data["obs"])[..., 0], np.float64)  # [N, T + 1]
    rewards, ended = np.asarray(data["reward"], np.float64), np.asarray(data["terminated"])
    squares = []
    for n in range(sizes.N):
        carried = 0.0
        for t in reversed(range(sizes.T)):
            goes_on = 0.0 if ended[n, t] else 1.0
            carried = rewards[n, t] + goes_on * (0.99 * values[n, t + 1] + 0.99 * 0.95 * carried) - values[n, t]
            squares.append(carried**2)
    assert loss == pytest.approx(0.25 * np.mean(squares), rel=1e-5)


def test_every_estimator_trains_alike(tmp_path: Path) -> None:
    said: list[str] = []
    path = tmp_path / "r.json"
    assert main(["--settings", "brax", "--quick", "--out", str(path)], log=said.append) == 0
    rows = json.loads(path.read_text())["rows"]
    measured = {row["provider"] for row in rows if not row["error"]}
    assert measured >= {"ours_xla", "associative_scan", "lax_scan_16", "lax_scan_1"}
    losses = [row["loss"] for row in rows if not row["error"]]
    np.testing.assert_allclose(losses, losses[0], rtol=1e-3)
    assert all(row["step_us"] > 0 for row in rows if not row["error"])
    said.clear()
    assert main(["--show", str(path)], log=said.append) == 0
    assert said[0].count("\n") == 1 + len(measured)


def test_a_wrong_estimator_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def wrong(problem: Any) -> Any:
        right = all_providers()["lax_scan_1"].make(problem)
        # Right in the problem that the gate looks at, wrong where flags are booleans.
        return lambda inputs: [x * (1 + (inputs["terminated"].dtype == bool)) for x in right(inputs)]

    providers = dict(all_providers()) | {"ours_xla": dataclasses.replace(all_providers()["ours_xla"], make=wrong)}
    monkeypatch.setattr(train_step, "all_providers", lambda: providers)
    monkeypatch.setattr(train_step, "ESTIMATORS", ("ours_xla", "lax_scan_1"))
    said: list[str] = []
    assert main(["--settings", "brax", "--quick", "--out", str(tmp_path / "r.json")], log=said.append) == 1
    assert "refused: its loss" in said[0]

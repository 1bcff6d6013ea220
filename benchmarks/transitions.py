"""What the ops over steps with Gymnasium's flags share: `Walk` for their references, array functions for their baselines."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from .problem import Inputs, Op, Problem, arrays

State = tuple[np.ndarray, ...]

STATE_VALUES = arrays(rewards="normal", values="normal", terminated="flag", last_values="edge")
TRUNCATED = arrays(truncated="flag")
FINAL_VALUES = arrays(**TRUNCATED, final_values="normal")

# ---- for references: NumPy, float64, a step at a time


class Walk:
    """A problem's inputs as a float64 loop over steps sees them: `[T, N]` each, flags as bool."""

    def __init__(self, problem: Problem, inputs: Mapping[str, np.ndarray]) -> None:
        self.problem, self.inputs = problem, inputs
        self.T, self.N = problem.shape.T, problem.shape.N
        self._steps: dict[str, np.ndarray] = {}

    def __getitem__(self, name: str) -> np.ndarray:
        if name not in self._steps:
            self._steps[name] = self.problem.time_major(self.inputs[name])
        return self._steps[name]

    def flag(self, name: str) -> np.ndarray:
        if name not in self.inputs:
            return np.zeros((self.T, self.N), bool)
        return self.problem.time_major(self.inputs[name], bool)

    @functools.cached_property
    def ended(self) -> np.ndarray:
        return self.flag("terminated")

    @functools.cached_property
    def cut(self) -> np.ndarray:
        return self.flag("truncated")

    @functools.cached_property
    def stops(self) -> np.ndarray:
        return self.ended | self.cut

    @functools.cached_property
    def ends(self) -> np.ndarray:
        """Where no step follows: at flags, and at T - 1."""
        ends = self.stops.copy()
        ends[-1] = True
        return ends

    def next_value(self, t: int) -> np.ndarray:
        """V'(t). Without values it has no meaning but where a step is the last."""
        following = self.inputs["last_values"].astype(np.float64)
        if t + 1 < self.T and "values" in self.inputs:
            following = self["values"][t + 1]
        if "final_values" in self.inputs:
            following = np.where(self.cut[t], self["final_values"][t], following)
        return np.where(self.ended[t], 0.0, following)

    def over_actions(self, combine: Callable[[int], np.ndarray], join: Callable[[Any, Any], Any]) -> np.ndarray:
        """`combine(action)`, an array of all steps, joined over the actions."""
        assert self.problem.actions
        return self.problem.time_major(functools.reduce(join, map(combine, range(self.problem.actions))))

    def run(self, step: Callable[..., State], states: int | None = None) -> list[np.ndarray]:
        """`step(t, *state of the step walked before) -> state at t`, zeros at first; the first ones are the outputs."""
        state: State = (np.zeros(self.N),) * (states or len(self.problem.op.outputs))
        outputs = [np.empty((self.T, self.N)) for _ in self.problem.outputs]
        for t in reversed(range(self.T)) if self.problem.op.backward else range(self.T):
            state = step(t, *state)
            for output, x in zip(outputs, state, strict=False):
                output[t] = x
        return [self.problem.back(x) for x in outputs]


# ---- for baselines: whole arrays, `xp` is `jax.numpy` or `torch`


def later(xp: Any, problem: Problem, x: Any, edge: Any) -> Any:
    """Row t of the result is row t + 1 of x, the last one `edge`."""
    return xp.concatenate((x[problem.steps(1, None)], edge), axis=problem.shape.axis)


def earlier(xp: Any, problem: Problem, x: Any, edge: Any) -> Any:
    """Row t of the result is row t - 1 of x, the first one `edge`."""
    return xp.concatenate((edge, x[problem.steps(None, -1)]), axis=problem.shape.axis)


def stops(inputs: Inputs) -> Any:
    ended = inputs["terminated"] != 0
    return ended | (inputs["truncated"] != 0) if "truncated" in inputs else ended


def ends(xp: Any, problem: Problem, inputs: Inputs) -> Any:
    """Where no step follows: at flags, and at T - 1."""
    stop = stops(inputs)
    last = xp.ones_like(stop[problem.steps(-1, None)])
    return xp.concatenate((stop[problem.steps(None, -1)], last), axis=problem.shape.axis)


def bootstrap(xp: Any, inputs: Inputs, following: Any) -> Any:
    """V'(t), given what it is where no flag is set."""
    if "final_values" in inputs:
        following = xp.where(inputs["truncated"] != 0, inputs["final_values"], following)
    return xp.where(inputs["terminated"] != 0, 0.0, following)


def next_values(xp: Any, problem: Problem, inputs: Inputs) -> Any:
    """V'(t) where there are values."""
    return bootstrap(xp, inputs, later(xp, problem, inputs["values"], problem.edge(inputs["last_values"])))


def td_errors(xp: Any, problem: Problem, inputs: Inputs) -> Any:
    return inputs["rewards"] + problem.gamma * next_values(xp, problem, inputs) - inputs["values"]


def mixed_returns(xp: Any, problem: Problem, inputs: Inputs, v_next: Any) -> tuple[Any, Any]:
    """The recurrence of lambda-returns."""
    end = ends(xp, problem, inputs)
    b = inputs["rewards"] + problem.gamma * xp.where(end, v_next, (1 - problem.lambda_) * v_next)
    return xp.where(end, 0.0, xp.full_like(b, problem.gamma * problem.lambda_)), b


def clipped_ratio(xp: Any, inputs: Any) -> Any:
    """min(1, rho); NumPy as well."""
    ratio = xp.exp(inputs["log_rhos"])
    return xp.where(ratio < 1, ratio, 1.0)


# ---- off-policy targets for action values


class OffPolicy(Op):
    """Retrace and its relatives, which differ in the trace coefficient of the action taken."""

    outputs = ("targets", "td_errors")
    inputs_if_truncated = TRUNCATED
    fed = ("q_values", "rewards")

    def trace(self, xp: Any, problem: Problem, inputs: Any) -> Any:
        """What the action of a step multiplies the trace with; `inputs` may be a `Walk`, `xp` NumPy."""
        raise NotImplementedError

    def reference(self, problem: Problem, inputs: Mapping[str, np.ndarray]) -> list[np.ndarray]:
        walk = Walk(problem, inputs)
        trace = self.trace(np, problem, walk)
        if "next_expected_q" in inputs:
            expected = walk["next_expected_q"]
        else:
            q, p = inputs["next_q_values"], inputs["next_target_probs"]
            expected = walk.over_actions(lambda a: q[..., a].astype(np.float64) * p[..., a], np.add)

        def step(t: int, _: np.ndarray, error: np.ndarray) -> State:
            delta = walk["rewards"][t] + problem.gamma * np.where(walk.ended[t], 0, expected[t]) - walk["q_values"][t]
            if t + 1 < walk.T:
                delta += np.where(walk.stops[t], 0, problem.gamma * trace[t + 1] * error)
            return walk["q_values"][t] + delta, delta

        return walk.run(step)

    def recurrence(self, xp: Any, problem: Problem, inputs: Inputs) -> tuple[Any, Any]:
        if "next_expected_q" in inputs:
            expected = inputs["next_expected_q"]
        else:
            expected = (inputs["next_q_values"] * inputs["next_target_probs"]).sum(-1)
        trace = self.trace(xp, problem, inputs)
        trace = later(xp, problem, trace, xp.zeros_like(trace[problem.steps(-1, None)]))
        delta = inputs["rewards"] + problem.gamma * bootstrap(xp, inputs, expected) - inputs["q_values"]
        return xp.where(stops(inputs), 0.0, problem.gamma * trace), delta

    def finish(self, xp: Any, problem: Problem, y: Any, inputs: Inputs) -> Sequence[Any]:
        return [y + inputs["q_values"], y]

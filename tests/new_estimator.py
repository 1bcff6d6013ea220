"""An estimator that the library does not have, written as its users would: one description, and its maths on chip.

    G_t = min(r_t, cap) + gamma_t G_{t+1},  G_{t+1} = 0 after a terminated step, and beyond the last step

Run as a program (with TRITON_INTERPRET=1), it puts the chip functions in their place and checks the kernels against a loop.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
from rl_triton_jax.kernels import entry
from rl_triton_jax.kernels import plan as planning

from rl_triton_jax import problem as canonical_form
from rl_triton_jax.estimator import Estimator, Operand, Role
from rl_triton_jax.front import FrontEnd
from rl_triton_jax.launch import interpret


def coefficients(xp: Any, x: Any, near: Any, first: Any) -> Any:
    return x["gamma"], xp.minimum(x["rewards"], x["cap"]), x["terminated"]


def finish(xp: Any, x: Any, near: Any, first: Any, y: Any, before: Any) -> Any:
    return (y,)


CAPPED_RETURNS = Estimator(
    name="capped_returns",
    operands=(
        Operand("rewards"),
        Operand("terminated", Role.FLAG),
        Operand("gamma", Role.DECAY),
        Operand("cap", Role.DECAY),
        Operand("mask", Role.MASK),
    ),
    outputs=("returns",),
    coefficients=coefficients,
    finish=finish,
)


def capped_returns(
    front: FrontEnd, rewards: Any, terminated: Any = None, *, gamma: Any, cap: Any, mask: Any = None, axis: int = 0
) -> Any:
    """The function that `offered_by` gives to a front end."""
    operands = {"rewards": rewards, "terminated": terminated, "gamma": gamma, "cap": cap, "mask": mask}
    (returns,) = front.call(CAPPED_RETURNS, operands, axis=axis)
    return returns


def loop(rewards: np.ndarray, terminated: np.ndarray, gamma: float, cap: float) -> np.ndarray:
    """Time first, in float64."""
    out = np.zeros(rewards.shape)
    later = np.zeros(rewards.shape[1:])
    for t in reversed(range(len(rewards))):
        later = np.minimum(rewards[t].astype(np.float64), cap) + gamma * np.where(terminated[t], 0, later)
        out[t] = later
    return out


def main() -> None:
    import new_estimator_on_chip

    sys.modules[f"{entry.__package__}.coefficients.capped_returns"] = new_estimator_on_chip
    rng = np.random.default_rng(0)
    for shape, axis in (((37, 5), 0), ((3, 21), 1), ((9, 70), 0)):
        rewards = rng.standard_normal(shape).astype(np.float32)
        terminated = rng.random(shape) < 0.2
        inputs = [rewards, terminated, 0.9, 0.5]
        strides = tuple(s // 4 for s in rewards.strides)
        number = canonical_form.View("float32", (0, 0), by_value=True)
        views = [canonical_form.View("float32", strides), canonical_form.View("bool", strides), number, number, None]
        result = (canonical_form.View("float32", strides), 0)
        problem = canonical_form.canonical(CAPPED_RETURNS, shape, axis, views, [result], True, "float32")
        plan = planning.plan(problem, planning.Device(warp=4), canonical_form.flags(CAPPED_RETURNS))
        out = np.full(shape, np.nan, np.float32)
        interpret.run(plan, problem, inputs, [out])
        expected = loop(np.moveaxis(rewards, axis, 0), np.moveaxis(terminated, axis, 0), 0.9, 0.5)
        np.testing.assert_allclose(np.moveaxis(out, axis, 0), expected, rtol=1e-5, atol=1e-5)
    print("right")


if __name__ == "__main__":
    main()

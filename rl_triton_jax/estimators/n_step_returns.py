"""n-step returns, with work linear in T for every n.

    G_t = sum_{i<k} (prod_{j<i} gamma_{t+j}) r_{t+i} + (prod_{j<k} gamma_{t+j}) V'(t+k-1)

where k = n, or fewer steps where a flag is set or the steps run out; V'(t) after the rule in `bootstrap`. Sutton and
Barto, "Reinforcement Learning" (2018), ch. 7.

Each step is a map y -> r + gamma y (y -> r + gamma V' where it ends), and G_t is n maps composed. Time is cut into
blocks of n steps; a window of n is the end of one block and the beginning of the next, so two walks that start anew at
each block give every window (van Herk 1992; Gil and Werman 1993).
"""

from __future__ import annotations

import functools
from typing import Any

from ..estimator import Estimator, Operand, Role
from ..formula import beside
from ..front import FrontEnd
from ..problem import integer
from .bootstrap import check_sources, next_value

# The longest n done by the schedule *windows*, in one kernel. It walks 2n steps in each program: beyond this, the recurrences of
# the formula, whose programs share a walk, are the safer choice on few columns.
LONGEST_WINDOW = 64


def _sooner(xp: Any, x: Any, by: int, axis: int, T: int) -> Any:
    """Row t of the result is row min(t + by, T-1) of x."""
    by = min(by, T - 1)
    if by == 0:
        return x
    repeated = xp.broadcast(xp.slice(x, T - 1, T, axis), tuple(by if k == axis else s for k, s in enumerate(x.shape)))
    return xp.concat([xp.slice(x, by, T, axis), repeated], axis)


def windows(
    n: int,
    xp: Any,
    x: dict[str, Any],
    edges: dict[str, Any],
    mask: Any,
    shape: tuple[int, ...],
    axis: int,
    accumulate: str,
) -> Any:
    """The formula; see the top of this file."""
    T = shape[axis]
    n = min(n, T)
    index = xp.arange(shape, axis, x["rewards"])
    last = index == T - 1
    order = real = None
    if mask is not None:  # the real rows brought to the front are the sequence with the others cut out
        real = xp.broadcast(mask, shape)
        order = xp.compressing(real, axis)
        names = ("rewards", "values", "terminated", "truncated", "next_values", "final_values", "gamma")
        given = {name: x[name] for name in names if x[name] is not None}
        x = {**x, **{name: xp.take(xp.broadcast(value, shape), order, axis) for name, value in given.items()}}
        real = xp.take(real, order, axis)
        seen = xp.cast(real, accumulate)
        last = beside(xp, seen, xp.zero_edge(seen, axis), shape, axis, True) == 0  # and every row behind it
    near = None
    if x["values"] is not None:
        edge = edges.get("values", x["last_values"])
        edge = xp.zero_edge(x["values"], axis) if edge is None else edge
        near = xp.where(last, edge, beside(xp, x["values"], edge, shape, axis, True))
    v_next = xp.broadcast(next_value(xp, x, near), shape)
    if real is not None:  # behind the last real row there is nothing; what lies there must not become a factor
        v_next = xp.where(real, v_next, 0)
    gamma = xp.broadcast(x["gamma"], shape)
    ends = xp.broadcast(xp.any_of(last, x["terminated"], x["truncated"]), shape)
    opens, closes = xp.broadcast(index % n == 0, shape), xp.broadcast(index % n == n - 1, shape)
    constant = x["rewards"] + xp.where(ends, gamma * v_next, 0)
    ended = xp.cast(ends, accumulate)

    def walk(a: Any, b: Any, reset: Any, backward: bool) -> Any:
        return xp.recurrence(a, xp.broadcast(b, shape), reset, None, axis, backward)

    def before(value: Any, start: Any) -> Any:
        """`value` one step earlier; `start` at the first step of a block."""
        return xp.where(opens, start, beside(xp, value, xp.zero_edge(value, axis), shape, axis, False))

    # The rest of the block from each step on: its maps applied to 0, their factor, and whether one of them ends.
    rest = walk(gamma, constant, ends | closes, True)
    factor = walk(gamma, xp.where(closes & xp.invert(ends), gamma, 0), ends | closes, True)
    settled = walk(1, ended, ends | closes, True) != 0

    # The block up to each step, its maps applied to the value of the next state.
    product = before(walk(gamma, xp.where(opens & xp.invert(ends), gamma, 0), ends | opens, False), 1)
    dead = before(walk(1, ended, ends | opens, False), 0) != 0
    product, constant = xp.where(dead, 0, product), xp.where(dead, 0, constant)
    bootstrap = xp.where(ends | dead, 0, gamma * v_next)
    begun = walk(1, product * constant, opens, False) + product * bootstrap

    beyond = xp.where(settled, 0, _sooner(xp, xp.where(closes, v_next, begun), n - 1, axis, T))
    returns = rest + factor * beyond
    return (returns if order is None else xp.untake(returns, order, axis),)


def coefficients(xp: Any, x: Any, near: Any, first: Any) -> Any:
    ends = xp.any_of(first, x["terminated"], x["truncated"])
    v_next = next_value(xp, x, near["values"])
    return x["gamma"], x["rewards"] + xp.where(ends, x["gamma"] * v_next, 0), ends


def finish(xp: Any, x: Any, near: Any, first: Any, y: Any, before: Any) -> Any:
    return (y,)


@functools.lru_cache(maxsize=64)
def n_step_estimator(n: int | None, longest_window: int = LONGEST_WINDOW) -> Estimator:
    """The estimator of one n; None for as many steps as there are, which is one recurrence."""
    return Estimator(
        name="n_step_returns",
        operands=(
            Operand("rewards"),
            Operand("values", near=True, edge="last_values"),
            Operand("terminated", Role.FLAG),
            Operand("truncated", Role.FLAG),
            Operand("last_values", Role.EDGE),
            Operand("next_values"),
            Operand("final_values", only_where="truncated"),
            Operand("gamma", Role.DECAY),
            Operand("mask", Role.MASK),
        ),
        outputs=("returns",),
        coefficients=coefficients,
        finish=finish,
        uses_first=True,
        whole=None if n is None else functools.partial(windows, n),
        window=n if n is not None and n <= longest_window else 0,
    )


N_STEP_RETURNS = n_step_estimator(None)


def n_step_returns(
    front: FrontEnd,
    rewards: Any,
    values: Any = None,
    terminated: Any = None,
    truncated: Any = None,
    *,
    n: int,
    last_values: Any = None,
    next_values: Any = None,
    final_values: Any = None,
    gamma: Any = 0.99,
    mask: Any = None,
    axis: int = 0,
    implementation: str | None = None,
) -> Any:
    """n-step returns (Sutton and Barto 2018, ch. 7), with work linear in T for every n.

        G_t = sum_{i<k} (prod_{j<i} gamma_{t+j}) r_{t+i} + (prod_{j<k} gamma_{t+j}) V'(t+k-1)

    where k = n, or fewer steps where a flag is set or the steps run out before. V'(t), the value of the next state, is 0 where
    terminated; else final_values[t] where truncated; else V_{t+1}, with `last_values` after the last step (or next_values[t]
    everywhere). n = 1 gives one-step targets, n >= T discounted returns. On a GPU it is one kernel for n <= 64 and n >= T, but
    for a mask; else a few: a recurrence each.

    Args:
      rewards: `[T, *batch]`, or any shape with the steps along `axis`; integers are promoted to float.
      values: V(s_t), shaped as `rewards`; with one more step (T+1) its last row is V(s_T). Not needed with `next_values`.
      terminated: s_{t+1} is terminal, its value is 0. Any dtype, non-zero is true; as many axes as `rewards`, size-1 axes
        broadcast; None means never.
      truncated: the episode was cut off after step t. Needs `final_values` or `next_values`.
      n: number of steps, at least 1; a Python integer.
      last_values: `[*batch]` or a number: V(s_T). Exactly one of `last_values`, `next_values` or T+1 `values` must be given.
      next_values: shaped as `rewards`: V(s_{t+1}) for every step, before any reset.
      final_values: shaped as `rewards`, read only where truncated and not terminated; elsewhere it may hold anything.
      gamma: discount, a number or an array with as many axes as `rewards` (size-1 axes broadcast). May be traced.
      mask: True at real steps; results there are those of the sequence with the masked steps cut out (n counts real
        steps), and 0 at masked steps. Costs a sort.
      axis: which axis holds the steps. Every other axis is batch.
      implementation: None (best for the platform), "triton" or "xla".

    Returns:
      G, shaped as `rewards`, in the promoted floating dtype of rewards and values (float32 where none is floating).

    Raises:
      TypeError: an argument is no array (or number, where one will do), or has a dtype that cannot be used; `n` is no integer.
      ValueError: `n` < 1; a shape does not fit; no source of V(s_T) or two; neither `values` nor `next_values`;
        `truncated` without `final_values` or `next_values`; `axis` out of range; `implementation` cannot run here.
    """
    steps = integer("n_step_returns", "n", n)
    if steps < 1:
        raise ValueError(f"n_step_returns: `n` must be at least 1, got {steps}")
    check_sources(
        "n_step_returns",
        rewards=rewards,
        values=values,
        truncated=truncated,
        last_values=last_values,
        next_values=next_values,
        final_values=final_values,
        axis=axis,
    )
    if values is None and next_values is None:
        raise ValueError("n_step_returns: pass `values` (V(s_t)) or `next_values` (V(s_{t+1})) for every step")
    operands = {
        "rewards": rewards,
        "values": values,
        "terminated": terminated,
        "truncated": truncated,
        "last_values": last_values,
        "next_values": next_values,
        "final_values": final_values,
        "gamma": gamma,
        "mask": mask,
    }
    try:
        everything = steps >= rewards.shape[axis]
    except (AttributeError, IndexError, TypeError):
        everything = False  # `front.call` says what is wrong with them
    estimator = n_step_estimator(None if everything else steps)
    (returns,) = front.call(estimator, operands, axis=axis, implementation=implementation)
    return returns

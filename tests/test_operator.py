"""The algebra under every schedule: composing steps y -> a y + b with resets, in exact rationals.

(a1, b1, f1) then (a2, b2, f2) is (a1 a2, b2 where f2 else a2 b1 + b2, f1 or f2).
"""

from __future__ import annotations

from fractions import Fraction
from functools import reduce
from typing import Any

import hypothesis.strategies as st
import numpy as np
import oracle
import pytest
from hypothesis import given, settings

recurrence = pytest.importorskip("rl_triton_jax.recurrence", reason="no plain form of the operator is exposed")
combine = recurrence.combine

Element = tuple[Any, Any, bool]
numbers = st.fractions(min_value=-3, max_value=3, max_denominator=7)
elements = st.tuples(numbers, numbers, st.booleans())
IDENTITY: Element = (Fraction(1), Fraction(0), False)


def select(condition: bool, x: Any, y: Any) -> Any:
    return x if condition else y


def then(earlier: Element, later: Element) -> Element:
    return tuple(combine(earlier, later, select))


def by_hand(earlier: Element, later: Element) -> Element:
    (a1, b1, f1), (a2, b2, f2) = earlier, later
    return a1 * a2, b2 if f2 else a2 * b1 + b2, f1 or f2


def walk(steps: list[Element], y: Any) -> Any:
    for a, b, reset in steps:
        y = b if reset else a * y + b
    return y


def apply(element: Element, y: Any) -> Any:
    a, b, reset = element
    return b if reset else a * y + b


@settings(max_examples=80)
@given(elements, elements)
def test_definition(x: Element, y: Element) -> None:
    assert then(x, y) == by_hand(x, y)


@settings(max_examples=80)
@given(elements, elements, elements)
def test_associative(x: Element, y: Element, z: Element) -> None:
    assert then(then(x, y), z) == then(x, then(y, z))


@given(elements)
def test_identity(x: Element) -> None:
    assert then(IDENTITY, x) == x == then(x, IDENTITY)


@given(elements, elements, numbers)
def test_reset_absorbs_what_came_before(x: Element, y: Element, start: Fraction) -> None:
    later = (y[0], y[1], True)
    assert then(x, later)[1:] == (y[1], True)
    assert apply(then(x, later), start) == y[1]


@given(st.lists(elements, min_size=1, max_size=12), numbers, st.data())
def test_any_bracketing_is_the_serial_walk(steps: list[Element], start: Fraction, data: st.DataObject) -> None:
    expected = walk(steps, start)
    assert apply(reduce(then, steps), start) == expected
    tree = list(steps)
    while len(tree) > 1:
        i = data.draw(st.integers(0, len(tree) - 2))
        tree[i : i + 2] = [then(tree[i], tree[i + 1])]
    assert apply(tree[0], start) == expected


@given(st.lists(elements, min_size=1, max_size=8), numbers)
def test_prefixes_are_the_steps_of_the_walk(steps: list[Element], start: Fraction) -> None:
    total, y = steps[0], start
    for i, step in enumerate(steps):
        total = step if i == 0 else then(total, step)
        y = apply(step, y)
        assert apply(total, start) == y


def test_reset_selects_and_does_not_multiply() -> None:
    nan = float("nan")
    _, b, reset = then((nan, nan, False), (nan, 2.0, True))
    assert (b, reset) == (2.0, True)
    _, b, reset = then((0.5, nan, True), (float("inf"), 3.0, True))
    assert (b, reset) == (3.0, True)


def test_a_coefficient_of_zero_is_no_reset() -> None:
    # 0 * NaN stays NaN: arithmetic, not a flag; and a product that underflows is not a reset either.
    assert np.isnan(then((0.5, float("nan"), False), (0.0, 1.0, False))[1])
    total = reduce(then, [(1e-200, 1.0, False)] * 3)
    assert total[0] == 0.0
    assert total[2] is False


def test_the_operator_on_arrays() -> None:
    problem = oracle.recurrence_problem(0, (17, 5), dtype=np.float64)
    rows = list(zip(problem["a"], problem["b"], problem["reset"], strict=True))
    y, total = [], None
    for row in rows:
        total = row if total is None else combine(total, row, np.where)
        y.append(np.where(total[2], total[1], total[0] * problem["initial"] + total[1]))
    oracle.assert_close(np.stack(y), oracle.linear_recurrence(**problem), 1e-14)

"""Schedule *windows*: every step's map composed with those of the next WINDOW - 1 steps, and applied to a value beyond.

Steps are maps (a, b, reset) as everywhere; `finish` gives the value that follows a step. Time is cut into blocks of
WINDOW steps. A window is the end of one block and the beginning of the next, so a program, which owns one block of its
columns, walks the beginning of the next block forward (what its maps make of the value that follows each step goes to
scratch memory, at the row whose window ends there) and then its own block backward. Every step is walked twice,
whatever WINDOW is.
"""

import triton
import triton.language as tl

from .combine import madd
from .operands import (
    all_fixed,
    all_offsets,
    beside,
    column_offsets,
    edges,
    load_guards,
    load_steps,
    number,
)


@triton.jit
def maps(
    ins,
    ints,
    fixed,
    o_ops,
    edge,
    t,
    live,
    like,
    T,
    STEP: tl.constexpr,
    FINISH: tl.constexpr,
    OPS: tl.constexpr,
    NEAR: tl.constexpr,
    HAS: tl.constexpr,
    LEVELS: tl.constexpr,
    ACC: tl.constexpr,
):
    """(a, b, reset, value that follows) of step `t`, in whole blocks; a step that is not live ends and gives 0."""
    guards = load_guards(ins, ints, fixed, o_ops, t, live, OPS, len(HAS), LEVELS, ACC)
    x = load_steps(ins, ints, fixed, guards, o_ops, t, live, OPS, len(HAS), LEVELS, ACC, False)
    near = beside(ins, ints, fixed, o_ops, t + 1, live & (t + 1 < T), edge, OPS, NEAR, LEVELS, ACC)
    first = live & (t == T - 1)
    a, b, reset = STEP(x, near, first, HAS)
    follows = FINISH(x, near, first, like, like, HAS)[0]
    return like + a, like + b, (reset | (live == 0)), like + follows


@triton.jit
def windows(
    ins,
    outs,
    ints,
    STEP: tl.constexpr,
    FINISH: tl.constexpr,
    OPS: tl.constexpr,
    NEAR: tl.constexpr,
    EDGES: tl.constexpr,
    OUTS: tl.constexpr,
    HAS: tl.constexpr,
    LEVELS: tl.constexpr,
    ACC: tl.constexpr,
    WINDOW: tl.constexpr,
    U: tl.constexpr,
    BN: tl.constexpr,
):
    T = tl.full([], 0, tl.int64) + ints[0]
    N = ints[1]
    # Blocks and columns in one axis of the grid: the others are too short for either.
    across = tl.cdiv(N, BN)
    i_n = (tl.program_id(0) % across).to(tl.int64) * BN + tl.arange(0, BN)[None, :]  # [1, BN]
    m_n = i_n < N
    like = tl.zeros([1, BN], ACC)
    o_ops = all_offsets(ints, i_n, OPS, len(OPS), LEVELS)
    fixed = all_fixed(ins, ints, i_n, m_n, OPS, len(HAS), LEVELS, ACC, False)
    edge = edges(ins, ints, i_n, m_n, like, OPS, EDGES, False, LEVELS, ACC, False)
    scratch = outs[len(outs) - 1] + i_n
    start = (tl.program_id(0) // across).to(tl.int64) * WINDOW
    stop = tl.minimum(start + WINDOW, T)

    # The beginning of the next block: its maps so far, as a*y + b, and whether one of them was an end.
    b_a = like + 1
    b_b = like
    ended = m_n & (i_n < 0)
    for s in tl.range(0, WINDOW - 1, U):
        steps = ()
        for i in tl.static_range(U):
            t = i_n * 0 + start + WINDOW + s + i
            live = m_n & (t < T) & (t < start + 2 * WINDOW - 1)
            steps = steps + (
                maps(ins, ints, fixed, o_ops, edge, t, live, like, T, STEP, FINISH, OPS, NEAR, HAS, LEVELS, ACC),
            )
        for i in tl.static_range(U):
            t = i_n * 0 + start + 1 + s + i
            a, b, reset, follows = steps[i]
            b_b = tl.where(ended, b_b, madd(b_a, b, b_b))
            b_a = tl.where(ended, b_a, b_a * a)
            ended = ended | reset
            value = tl.where(ended, b_b, madd(b_a, follows, b_b))
            tl.store(scratch + t * N, value, mask=m_n & (t < stop))
    tl.debug_barrier()

    # This block, from its last step back.
    b_a = like + 1
    b_b = like
    ended = m_n & (i_n < 0)
    beyond_last = like
    for s in tl.range(0, WINDOW, U):
        steps = ()
        beyond = ()
        for i in tl.static_range(U):
            t = i_n * 0 + start + WINDOW - 1 - s - i
            live = m_n & (t < T) & (t >= start)
            steps = steps + (
                maps(ins, ints, fixed, o_ops, edge, t, live, like, T, STEP, FINISH, OPS, NEAR, HAS, LEVELS, ACC),
            )
            beyond = beyond + (tl.load(scratch + t * N, mask=live & (t > start), other=0),)
        for i in tl.static_range(U):
            t = i_n * 0 + start + WINDOW - 1 - s - i
            live = m_n & (t < T) & (t >= start)
            a, b, reset, follows = steps[i]
            beyond_last = tl.where(t == start + WINDOW - 1, follows, beyond_last)
            reset = reset & live
            b_b = tl.where(live, tl.where(reset, b, madd(a, b_b, b)), b_b)
            b_a = tl.where(live, a * b_a, b_a)
            ended = ended | reset
            y = tl.where(t == start, beyond_last, beyond[i])
            out = tl.where(ended, b_b, madd(b_a, y, b_b))
            o = column_offsets(ints, i_n, OUTS, 0, LEVELS) + t * number(ints, OUTS[0][3], 1 + LEVELS)
            tl.store(outs[OUTS[0][0]] + o, out.to(outs[OUTS[0][0]].dtype.element_ty), mask=live)

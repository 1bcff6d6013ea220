"""Schedule *windows_rows*: as *windows*, where time is contiguous in memory: threads side by side hold steps side by side.

Each step walks its own window forward, from arrays that are read once for every place in the window: shifted by one step
each time, so that all but the first reading find them in the cache nearest to the processor. The work grows with WINDOW, and for
long windows *windows* is better.
"""

import triton
import triton.language as tl

from .combine import madd
from .operands import all_fixed, all_offsets, column_offsets, edges, number
from .windows import maps


@triton.jit
def windows_rows(
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
    R: tl.constexpr,
    BT: tl.constexpr,
):
    T = tl.full([], 0, tl.int64) + ints[0]
    N = ints[1]
    # Tiles of one row follow one another: what a window reads of the next tile is read soon again.
    tiles = tl.cdiv(T, BT)
    i_n = (tl.program_id(0) // tiles).to(tl.int64) * R + tl.arange(0, R)[:, None]  # [R, 1]
    t = (tl.program_id(0) % tiles).to(tl.int64) * BT + tl.arange(0, BT)[None, :]  # [1, BT]
    m_n = i_n < N
    like = tl.zeros([R, BT], ACC)
    o_ops = all_offsets(ints, i_n, OPS, len(OPS), LEVELS)
    fixed = all_fixed(ins, ints, i_n, m_n, OPS, len(HAS), LEVELS, ACC, False)
    edge = edges(ins, ints, i_n, m_n, tl.zeros([R, 1], ACC), OPS, EDGES, False, LEVELS, ACC, False)
    b_a = like + 1
    b_b = like
    ended = m_n & (t < 0)
    follows = like
    tl.static_assert(WINDOW % U == 0)
    for s in tl.range(0, WINDOW, U):
        steps = ()
        for i in tl.static_range(U):  # all loads first: none waits for another
            t_i = t + s + i
            live = m_n & (t_i < T)
            steps = steps + (
                maps(ins, ints, fixed, o_ops, edge, t_i, live, like, T, STEP, FINISH, OPS, NEAR, HAS, LEVELS, ACC),
            )
        for i in tl.static_range(U):
            a, b, reset, follows = steps[i]
            b_b = tl.where(ended, b_b, madd(b_a, b, b_b))
            b_a = tl.where(ended, b_a, b_a * a)
            ended = ended | reset
    out = tl.where(ended, b_b, madd(b_a, follows, b_b))
    o = column_offsets(ints, i_n, OUTS, 0, LEVELS) + t * number(ints, OUTS[0][3], 1 + LEVELS)
    tl.store(outs[OUTS[0][0]] + o, out.to(outs[OUTS[0][0]].dtype.element_ty), mask=m_n & (t < T))

"""Schedule *rows*: time contiguous in memory, neighbouring steps in neighbouring lanes.

A tile is [R, BT]: R columns times BT consecutive steps in memory order, scanned along time; longer walks carry from tile to
tile. Tiles start at multiples of BT, so vector loads stay aligned; places beyond T hold the identity.
"""

import triton
import triton.language as tl

from .combine import apply, compose, encode
from .operands import (
    all_fixed,
    all_offsets,
    beside,
    column_offsets,
    fold_totals,
    load,
    load_fixed,
    load_steps,
    load_where,
    number,
)


@triton.jit
def rows(
    ins,
    outs,
    ints,
    STEP: tl.constexpr,
    FINISH: tl.constexpr,
    OPS: tl.constexpr,
    NEAR: tl.constexpr,
    EDGES: tl.constexpr,
    INIT: tl.constexpr,
    MASK: tl.constexpr,
    OUTS: tl.constexpr,
    HAS: tl.constexpr,
    LEVELS: tl.constexpr,
    BACKWARD: tl.constexpr,
    ACC: tl.constexpr,
    MODE: tl.constexpr,
    PARTS: tl.constexpr,
    FOLD: tl.constexpr,
    R: tl.constexpr,
    BT: tl.constexpr,
    FULL: tl.constexpr,
    STAGES: tl.constexpr,
):
    T = ints[0]
    N = ints[1]
    X: tl.constexpr = len(HAS)
    MASKED: tl.constexpr = OPS[MASK][1] != 0
    i_n = tl.program_id(0).to(tl.int64) * R + tl.arange(0, R)[:, None]  # [R, 1]
    i_t = tl.arange(0, BT)[None, :]  # [1, BT]
    m_n = i_n < N
    o_ops = all_offsets(ints, i_n, OPS, X, LEVELS)
    fixed = all_fixed(ins, ints, i_n, m_n, OPS, X, LEVELS, ACC, FULL)
    zero = tl.zeros([R, 1], ACC)
    zeros = tl.zeros([R, BT], ACC)

    y = zero + load_fixed(ins, ints, i_n, m_n, OPS, INIT, LEVELS, ACC, FULL)
    near = ()
    for j in tl.static_range(len(NEAR)):
        near = near + (zero + load_fixed(ins, ints, i_n, m_n, OPS, EDGES[j], LEVELS, ACC, FULL),)
    edge = near

    tiles = tl.cdiv(T, BT)
    first = tl.full([], 0, tl.int32)
    last = first + tiles
    if MODE != 0:
        i_p = tl.program_id(1)
        span = tl.cdiv(tiles, PARTS)
        first = i_p * span
        last = tl.minimum(first + span, tiles)
        if MODE == 2:
            y = fold_totals(ins, i_p, i_n, m_n, N, y, 1, PARTS, FOLD)
    total_a = zero + 1.0
    total_b = zero

    for k in tl.range(first, last, num_stages=STAGES):
        start = (tl.full([], 0, tl.int64) + ((tiles - 1 - k) if BACKWARD else k)) * BT
        t = start + i_t  # [1, BT]
        live = (t < T) & m_n  # [R, BT]
        x = load_steps(ins, ints, fixed, o_ops, t, live, OPS, X, LEVELS, ACC, FULL)
        # Operands at the step walked just before, by loads shifted by one (they hit the cache).
        t_near = (t + 1) if BACKWARD else (t - 1)
        inner = (t_near >= 0) & (t_near < T) & m_n
        if MASKED:
            m = load(
                ins,
                column_offsets(ints, i_n, OPS, MASK, LEVELS) + t * number(ints, OPS[MASK][3], 1 + LEVELS),
                live,
                OPS,
                MASK,
                ACC,
                FULL,
            )
            m = m & live
            o_m = column_offsets(ints, i_n, OPS, MASK, LEVELS) + t_near * number(ints, OPS[MASK][3], 1 + LEVELS)
            real = load(ins, o_m, inner, OPS, MASK, ACC, False) & inner
        else:
            m = live
        b_near = beside(ins, ints, fixed, o_ops, t_near, inner, edge, OPS, NEAR, LEVELS, ACC)
        if MASKED:
            # The last real row before, found by scanning (coded) selections.
            fills = ()
            for j in tl.static_range(len(NEAR)):
                b_a = tl.where(real, float("nan"), zeros + 1.0)
                b_b = tl.where(real, b_near[j], 0.0)
                s_a, s_b = tl.associative_scan((b_a, b_b), 1, compose, reverse=BACKWARD)
                fills = fills + (apply(s_a, s_b, near[j]),)
            b_near = fills
        if MASKED:
            after = ()
            for j in tl.static_range(len(NEAR)):
                end = (t == start) if BACKWARD else (t == start + BT - 1)
                after = after + (tl.sum(tl.where(end, b_near[j], 0.0), 1)[:, None],)
            near = after
        x = load_where(ins, ints, x, o_ops, t, live, OPS, X, LEVELS, ACC)

        a, b, reset = STEP(x, b_near, HAS)
        b_a, b_b = encode(zeros + a, zeros + b, reset)
        b_a = tl.where(m, b_a, 1.0)
        b_b = tl.where(m, b_b, 0.0)
        s_a, s_b = tl.associative_scan((b_a, b_b), 1, compose, reverse=BACKWARD)
        end = (t == start) if BACKWARD else (t == start + BT - 1)
        if MODE == 1:
            last_a = tl.sum(tl.where(end, s_a, 0.0), 1)[:, None]
            last_b = tl.sum(tl.where(end, s_b, 0.0), 1)[:, None]
            total_a, total_b = compose(total_a, total_b, last_a, last_b)
        else:
            b_y = apply(s_a, s_b, y)
            y = tl.sum(tl.where(end, b_y, 0.0), 1)[:, None]
            results = FINISH(x, b_near, b_y, HAS)
            for j in tl.static_range(len(OUTS)):
                o = column_offsets(ints, i_n, OUTS, j, LEVELS) + t * number(ints, OUTS[j][3], 1 + LEVELS)
                out = results[OUTS[j][5]]
                if MASKED:
                    out = tl.where(m, out, 0.0)
                out = (zeros + out).to(outs[OUTS[j][0]].dtype.element_ty)
                if FULL:
                    tl.store(outs[OUTS[j][0]] + o, out)
                else:
                    tl.store(outs[OUTS[j][0]] + o, out, mask=live)

    if MODE == 1:
        o_p = tl.program_id(1).to(tl.int64) * N + i_n
        tl.store(outs[0] + o_p, total_a, mask=m_n)
        tl.store(outs[0] + o_p + tl.full([], PARTS, tl.int64) * N, total_b, mask=m_n)

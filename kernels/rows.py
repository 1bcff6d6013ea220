"""Schedule *rows*: time contiguous in memory, neighbouring steps in neighbouring lanes.

A tile is [R, BT]: R columns times BT consecutive steps in memory order, scanned along time; longer walks carry from tile to
tile. Tiles start at multiples of BT, so vector loads stay aligned; places beyond T hold the identity.
"""

import triton
import triton.language as tl

from .combine import apply, at, compose, compose_both, encode, mark
from .operands import (
    all_fixed,
    all_offsets,
    beside,
    column_offsets,
    edges,
    fold_totals,
    load,
    load_fixed,
    load_guards,
    load_steps,
    number,
)
from .statistics import fold, merge, store_summary


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
    FIRST: tl.constexpr,
    LOOKBACK: tl.constexpr,
    ACC: tl.constexpr,
    MODE: tl.constexpr,
    PARTS: tl.constexpr,
    FOLD: tl.constexpr,
    R: tl.constexpr,
    BT: tl.constexpr,
    FULL: tl.constexpr,
    GUARDED: tl.constexpr,
    SINGLE: tl.constexpr,
    SUMMARY: tl.constexpr,
    STAGES: tl.constexpr,
):
    T = ints[0]
    N = ints[1]
    X: tl.constexpr = len(HAS)
    MASKED: tl.constexpr = OPS[MASK][1] != 0
    SEEN: tl.constexpr = MASKED and FIRST
    i_n = tl.program_id(0).to(tl.int64) * R + tl.arange(0, R)[:, None]  # [R, 1]
    i_t = tl.arange(0, BT)[None, :]  # [1, BT]
    m_n = i_n < N
    o_ops = all_offsets(ints, i_n, OPS, len(OPS), LEVELS)
    fixed = all_fixed(ins, ints, i_n, m_n, OPS, X, LEVELS, ACC, FULL)
    zero = tl.zeros([R, 1], ACC)
    zeros = tl.zeros([R, BT], ACC)

    y = zero + load_fixed(ins, ints, i_n, m_n, OPS, INIT, LEVELS, ACC, FULL)
    edge = edges(ins, ints, i_n, m_n, zero, OPS, EDGES, SEEN, LEVELS, ACC, FULL)
    near = edge

    tiles = tl.cdiv(T, BT)
    if SINGLE:
        tiles = tl.full([], 1, tl.int32)  # a constant: no loop remains
    first = tl.full([], 0, tl.int32)
    last = first + tiles
    if MODE != 0:
        i_p = tl.program_id(1)
        span = tl.cdiv(tiles, PARTS)
        first = i_p * span
        last = tl.minimum(first + span, tiles)
        if MODE == 2:
            y = fold_totals(ins, i_p, i_n, m_n, N, y, 1, PARTS, FOLD)
    total_a = zero + 1
    total_b = zero
    summary = (zeros, zeros, zeros, zeros)

    for k in tl.range(first, last, num_stages=STAGES):
        start = (tl.full([], 0, tl.int64) + ((tiles - 1 - k) if BACKWARD else k)) * BT
        t = start + i_t  # [1, BT]
        live = (t < T) & m_n  # [R, BT]
        guards = load_guards(ins, ints, fixed, o_ops, t, live, OPS, X, LEVELS, ACC)
        x = load_steps(ins, ints, fixed, guards, o_ops, t, live, OPS, X, LEVELS, ACC, FULL)
        # Operands at the step walked just before, by loads shifted by one (they hit the cache).
        t_near = (t + 1) if BACKWARD else (t - 1)
        inner = (t_near >= 0) & (t_near < T) & m_n
        b_near = beside(ins, ints, fixed, o_ops, t_near, inner, edge, OPS, NEAR, LEVELS, ACC)
        end = (t == start) if BACKWARD else (t == start + BT - 1)
        begins = ((t == T - 1) if BACKWARD else (t == 0)) & m_n
        if MASKED:
            by_m = number(ints, OPS[MASK][3], 1 + LEVELS)
            m = load(ins, o_ops[MASK] + t * by_m, live, OPS, MASK, ACC, FULL) & live
            real = load(ins, o_ops[MASK] + t_near * by_m, inner, OPS, MASK, ACC, False) & inner
            # The last real row before, found by scanning (coded) selections.
            if SEEN:
                b_near = b_near + (zeros + 1,)
            fills = ()
            after = ()
            for j in tl.static_range(len(near)):
                b_a = mark(zeros + 1, real, ACC)
                b_b = tl.where(real, b_near[j], 0)
                s_a, s_b = tl.associative_scan((b_a, b_b), 1, compose, reverse=BACKWARD)
                fill = apply(s_a, s_b, near[j])
                fills = fills + (fill,)
                after = after + (at(end, fill, 1),)
            b_near = fills
            near = after
            if SEEN:
                begins = b_near[len(NEAR)] == 0
        else:
            m = live

        a, b, reset = STEP(x, b_near, begins, HAS)
        b_a, b_b = encode(zeros + a, zeros + b, reset, ACC)
        b_a = tl.where(m, b_a, 1)
        b_b = tl.where(m, b_b, 0)
        if LOOKBACK and MODE != 1:
            e_a, e_b, s_a, s_b = tl.associative_scan((zeros + 1, zeros, b_a, b_b), 1, compose_both, reverse=BACKWARD)
            before = apply(e_a, e_b, y)
        else:
            s_a, s_b = tl.associative_scan((b_a, b_b), 1, compose, reverse=BACKWARD)
            before = zeros
        if MODE == 1:
            total_a, total_b = compose(total_a, total_b, at(end, s_a, 1), at(end, s_b, 1))
        else:
            b_y = apply(s_a, s_b, y)
            y = at(end, b_y, 1)
            results = FINISH(x, b_near, begins, b_y, before, HAS)
            if SUMMARY >= 0:
                here = (m & live).to(ACC) + zeros
                summary = merge(
                    summary[0], summary[1], summary[2], summary[3], here, zeros + results[SUMMARY], zeros, zeros
                )
            for j in tl.static_range(len(OUTS)):
                o = column_offsets(ints, i_n, OUTS, j, LEVELS) + t * number(ints, OUTS[j][3], 1 + LEVELS)
                out = results[OUTS[j][5]]
                if MASKED:
                    out = tl.where(m, out, 0)
                out = (zeros + out).to(outs[OUTS[j][0]].dtype.element_ty)
                if FULL:
                    tl.store(outs[OUTS[j][0]] + o, out)
                else:
                    tl.store(outs[OUTS[j][0]] + o, out, mask=live)

    if SUMMARY >= 0 and MODE != 1:
        i_all = tl.program_id(1) * tl.num_programs(0) + tl.program_id(0)
        store_summary(outs[len(outs) - 1], i_all, tl.num_programs(0) * PARTS, fold(summary))
    if MODE == 1:
        o_p = tl.program_id(1).to(tl.int64) * N + i_n
        tl.store(outs[0] + o_p, total_a, mask=m_n)
        tl.store(outs[0] + o_p + tl.full([], PARTS, tl.int64) * N, total_b, mask=m_n)

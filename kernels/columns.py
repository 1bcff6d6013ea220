"""Schedule *columns*: neighbouring columns in neighbouring lanes, time walked in registers.

A tile is [C, BN]: BN columns times C slabs of L consecutive steps. Each element walks its slab serially in registers; with
C > 1 the slabs' totals are scanned over C and the carry is applied in a second, load-free walk of the same registers.
C = 1 is the plain serial walk (many columns), C > 1 fills the machine when columns are few. All loads of a tile are issued
before any arithmetic or store: the compiler never moves a load over a store.
"""

import triton
import triton.language as tl

from .combine import apply, at, compose, compose_both, madd, mark
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
    pick,
    select,
)
from .statistics import fold, merge, store_summary, summarize


@triton.jit
def advance(
    x,
    m,
    near,
    first,
    like,
    STEP: tl.constexpr,
    OPS: tl.constexpr,
    NEAR: tl.constexpr,
    HAS: tl.constexpr,
    MASKED: tl.constexpr,
    SEEN: tl.constexpr,
    ACC: tl.constexpr,
):
    """Coefficients of one step, whether it is the walk's first, and what is near the next one.

    A masked step changes nothing.
    """
    if SEEN:
        first = near[len(NEAR)] == 0
    a, b, reset = STEP(x, near, first, HAS)
    after = pick(x, like, OPS, NEAR, SEEN, ACC)
    if MASKED:
        a = tl.where(m, a, 1)
        b = tl.where(m, b, 0)
        reset = reset & m
        after = select(m, after, near)
    return a, b, reset, first, after


@triton.jit
def columns(
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
    C: tl.constexpr,
    L: tl.constexpr,
    BN: tl.constexpr,
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
    i_n = tl.program_id(0).to(tl.int64) * BN + tl.arange(0, BN)[None, :]  # [1, BN]
    i_c = tl.arange(0, C)[:, None]  # [C, 1]
    m_n = i_n < N
    m_cn = m_n & (i_c >= 0)  # [C, BN]
    o_ops = all_offsets(ints, i_n, OPS, len(OPS), LEVELS)
    fixed = all_fixed(ins, ints, i_n, m_n, OPS, X, LEVELS, ACC, FULL)
    zero = tl.zeros([1, BN], ACC)
    zeros = tl.zeros([C, BN], ACC)

    # The steps of this program, and what it starts from.
    first = tl.full([], 0, tl.int64)
    last = first + T
    y = zero + load_fixed(ins, ints, i_n, m_n, OPS, INIT, LEVELS, ACC, FULL)
    edge = edges(ins, ints, i_n, m_n, zero, OPS, EDGES, SEEN, LEVELS, ACC, FULL)
    near = edge
    if MODE != 0:
        i_p = tl.program_id(1)
        span = tl.cdiv(tl.cdiv(T, PARTS), C * L) * (C * L)
        first = i_p.to(tl.int64) * span
        last = tl.minimum(first + span, last)
        if MODE == 2:
            y = fold_totals(ins, i_p, i_n, m_n, N, y, 0, PARTS, FOLD)
        # A masked walk is never split: `near` could lie any number of ranges away.
        near = beside(
            ins,
            ints,
            fixed,
            o_ops,
            (T - first) if BACKWARD else (first - 1),
            m_n & (i_n * 0 + first > 0) & (i_n * 0 + first <= T),
            edge,
            OPS,
            NEAR,
            LEVELS,
            ACC,
        )
    total_a = zero + 1
    total_b = zero
    summary = (zeros, zeros, zeros, zeros)
    # Flags that guard loads are read a tile ahead, so that those loads are issued with all others. (In a pipelined loop the
    # compiler does so itself, which values carried around the loop would prevent.)
    AHEAD: tl.constexpr = GUARDED and STAGES == 1
    ahead = ()
    for i in tl.static_range(L):
        o_t = first + i_c * L + i
        t = (T - 1 - o_t) if BACKWARD else o_t
        if AHEAD:
            ahead = ahead + (load_guards(ins, ints, fixed, o_ops, t, m_cn & (o_t < last), OPS, X, LEVELS, ACC),)
        else:
            ahead = ahead + (fixed,)

    stop = last
    if SINGLE:
        stop = first + C * L  # a constant, when first is: no loop remains
    for s in tl.range(first, stop, C * L, num_stages=STAGES):
        o_s = s + i_c * L  # [C, 1], each slab's first step
        rows = ()
        ms = ()
        for i in tl.static_range(L):
            t = (T - 1 - o_s - i) if BACKWARD else (o_s + i)
            live = m_cn & (o_s + i < last)
            guards = ahead[i]
            if GUARDED and not AHEAD:
                guards = load_guards(ins, ints, fixed, o_ops, t, live, OPS, X, LEVELS, ACC)
            rows = rows + (load_steps(ins, ints, fixed, guards, o_ops, t, live, OPS, X, LEVELS, ACC, FULL),)
            if MASKED:
                ms = ms + (
                    load(ins, o_ops[MASK] + t * number(ints, OPS[MASK][3], 1 + LEVELS), live, OPS, MASK, ACC, FULL),
                )
            else:
                ms = ms + (live,)
        if AHEAD and not SINGLE:
            following = ()
            for i in tl.static_range(L):
                o_t = o_s + C * L + i
                t = (T - 1 - o_t) if BACKWARD else o_t
                live = m_cn & (o_t < last)
                following = following + (load_guards(ins, ints, fixed, o_ops, t, live, OPS, X, LEVELS, ACC),)
            ahead = following
        # What is near each slab's first step.
        if C == 1:
            b_near = near
        elif MASKED:
            # The last real row of the slabs before, found by scanning (coded) selections.
            b_near = ()
            after = ()
            for j in tl.static_range(len(near)):
                b_a = zeros + 1
                b_b = zeros
                for i in tl.static_range(L):
                    b_a = mark(b_a, ms[i], ACC)
                    b_b = tl.where(ms[i], pick(rows[i], zeros, OPS, NEAR, SEEN, ACC)[j], b_b)
                e_a, e_b, s_a, s_b = tl.associative_scan((zeros + 1, zeros, b_a, b_b), 0, compose_both)
                b_near = b_near + (apply(e_a, e_b, near[j]),)
                after = after + (at(i_c == C - 1, apply(s_a, s_b, near[j]), 0),)
            near = after
        else:
            b_near = beside(
                ins,
                ints,
                fixed,
                o_ops,
                (T - o_s) if BACKWARD else (o_s - 1),
                m_cn & (o_s > 0) & (o_s <= last),
                edge,
                OPS,
                NEAR,
                LEVELS,
                ACC,
            )

        # Totals of the slabs, and the carry into each. The compiler shares these coefficients with the walk below.
        if C > 1 or MODE == 1:
            b_a = zeros + 1
            b_b = zeros
            walked = b_near
            for i in tl.static_range(L):
                a, b, reset, _, walked = advance(
                    rows[i], ms[i], walked, o_s + i == 0, zeros, STEP, OPS, NEAR, HAS, MASKED, SEEN, ACC
                )
                b_b = tl.where(reset, b, madd(a, b_b, b))
                b_a = mark(a * b_a, reset, ACC)
            if MODE == 1:
                if C > 1:
                    b_a, b_b = tl.associative_scan((b_a, b_b), 0, compose)
                total_a, total_b = compose(total_a, total_b, at(i_c == C - 1, b_a, 0), at(i_c == C - 1, b_b, 0))
                if C == 1:
                    near = walked
            else:
                e_a, e_b, s_a, s_b = tl.associative_scan((zeros + 1, zeros, b_a, b_b), 0, compose_both)
                carry = apply(e_a, e_b, y)
                y = at(i_c == C - 1, apply(s_a, s_b, y), 0)
        else:
            carry = y

        if MODE != 1:
            walked = b_near
            summarized = ()
            real = ()
            for i in tl.static_range(L):
                a, b, reset, begins, after = advance(
                    rows[i], ms[i], walked, o_s + i == 0, zeros, STEP, OPS, NEAR, HAS, MASKED, SEEN, ACC
                )
                before = carry
                carry = tl.where(reset, b, madd(a, carry, b))
                results = FINISH(rows[i], walked, begins, carry, before, HAS)
                t = (T - 1 - o_s - i) if BACKWARD else (o_s + i)
                live = m_cn & (o_s + i < last)
                if SUMMARY >= 0:
                    summarized = summarized + (zeros + results[SUMMARY],)
                    real = real + (live & ms[i],)
                for j in tl.static_range(len(OUTS)):
                    o = column_offsets(ints, i_n, OUTS, j, LEVELS) + t * number(ints, OUTS[j][3], 1 + LEVELS)
                    out = results[OUTS[j][5]]
                    if MASKED:
                        out = tl.where(ms[i], out, 0)
                    out = (zeros + out).to(outs[OUTS[j][0]].dtype.element_ty)
                    if FULL:
                        tl.store(outs[OUTS[j][0]] + o, out)
                    else:
                        tl.store(outs[OUTS[j][0]] + o, out, mask=live)
                walked = after
            if SUMMARY >= 0:
                n, pivot, mean, square = summarize(summarized, real, zeros)
                summary = merge(summary[0], summary[1], summary[2], summary[3], n, pivot, mean, square)
            if C == 1:
                y = carry
                near = walked

    if SUMMARY >= 0 and MODE != 1:
        i_all = tl.program_id(1) * tl.num_programs(0) + tl.program_id(0)
        store_summary(outs[len(outs) - 1], i_all, tl.num_programs(0) * PARTS, fold(summary))

    if MODE == 1:
        o_p = tl.program_id(1).to(tl.int64) * N + i_n
        tl.store(outs[0] + o_p, total_a, mask=m_n)
        tl.store(outs[0] + o_p + tl.full([], PARTS, tl.int64) * N, total_b, mask=m_n)

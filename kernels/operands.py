"""Reading operands: strides from codes, offsets of columns, and the loads that a schedule issues."""

import triton
import triton.language as tl

from .combine import apply, at, compose, madd

# Kinds of operand, by how it varies. The numbers are part of the descriptors that `plan` makes.
ABSENT: tl.constexpr = tl.constexpr(0)
STEPS: tl.constexpr = tl.constexpr(1)  # along time
COLUMNS: tl.constexpr = tl.constexpr(2)  # over columns only
ONE: tl.constexpr = tl.constexpr(3)  # one number behind a pointer
VALUE: tl.constexpr = tl.constexpr(4)  # one number, passed by value
EXPECT: tl.constexpr = tl.constexpr(5)  # along time: the sum over actions of a product of two arrays
MAXIMUM: tl.constexpr = tl.constexpr(6)  # along time: the maximum over actions of an array

# What a split walk does: all of it, the totals of one range of steps, or one range given the totals before it.
WHOLE: tl.constexpr = tl.constexpr(0)
TOTALS: tl.constexpr = tl.constexpr(1)
APPLY: tl.constexpr = tl.constexpr(2)


@triton.jit
def number(ints, CODE: tl.constexpr, FIRST: tl.constexpr):
    """The stride that `CODE` stands for: 0, 1, or an entry of the table that starts at ints[FIRST]."""
    if CODE == 0:
        return tl.full([], 0, tl.int64)
    elif CODE == 1:
        return tl.full([], 1, tl.int64)
    else:
        return tl.full([], 0, tl.int64) + ints[FIRST + CODE - 2]


@triton.jit
def column_offsets(ints, n, D: tl.constexpr, K: tl.constexpr, LEVELS: tl.constexpr):
    """Offsets of columns `n` (any shape, int64) in the operand described by D. Batch axes are numbered from the innermost."""
    o_n = n * 0
    rest = n
    for i in tl.static_range(LEVELS):
        if i == LEVELS - 1:
            index = rest
        else:
            index = rest % ints[2 + i]
            rest = rest // ints[2 + i]
        if D[K][6 + i] == 1:
            o_n = o_n + index  # kept free of a multiplication: the compiler sees contiguity
        elif D[K][6 + i] > 1:
            o_n = o_n + index * number(ints, D[K][6 + i], 1 + LEVELS)
    if D[K][4] != 0:
        o_n = o_n + number(ints, D[K][4], 1 + LEVELS)
    return o_n


@triton.jit
def convert(x, D: tl.constexpr, K: tl.constexpr, ACC: tl.constexpr):
    if D[K][2]:
        return x != 0
    else:
        return x.to(ACC)


@triton.jit
def load(ins, o, live, D: tl.constexpr, K: tl.constexpr, ACC: tl.constexpr, FULL: tl.constexpr):
    """One block of an operand at offsets `o`; dead places read 0."""
    if FULL:
        x = tl.load(ins[D[K][0]] + o)
    else:
        x = tl.load(ins[D[K][0]] + o, mask=live, other=0)
    return convert(x, D, K, ACC)


@triton.jit
def load_fixed(
    ins, ints, n, live, D: tl.constexpr, K: tl.constexpr, LEVELS: tl.constexpr, ACC: tl.constexpr, FULL: tl.constexpr
):
    """An operand that does not vary along time, or the neutral value of one that was not given."""
    if D[K][1] == 0:
        if D[K][2]:
            return tl.full([], 0, tl.int1)
        else:
            return tl.full([], 0, ACC)
    elif D[K][1] == 3:
        return convert(tl.load(ins[D[K][0]]), D, K, ACC)
    elif D[K][1] == 4:
        return tl.full([], 0, ACC) + ins[D[K][0]]  # passed as ACC
    else:
        return load(ins, column_offsets(ints, n, D, K, LEVELS), live, D, K, ACC, FULL)


@triton.jit
def all_fixed(
    ins, ints, n, live, OPS: tl.constexpr, X: tl.constexpr, LEVELS: tl.constexpr, ACC: tl.constexpr, FULL: tl.constexpr
):
    """Every operand that does not vary along time, loaded once; a placeholder for each that does."""
    fixed = ()
    for k in tl.static_range(X):
        if OPS[k][1] == 1 or OPS[k][1] >= 5:
            fixed = fixed + (tl.full([], 0, ACC),)
        else:
            fixed = fixed + (load_fixed(ins, ints, n, live, OPS, k, LEVELS, ACC, FULL),)
    return fixed


@triton.jit
def all_offsets(ints, n, OPS: tl.constexpr, ROWS: tl.constexpr, LEVELS: tl.constexpr):
    """Column offsets of every row of the table that varies along time; a placeholder for each that does not."""
    offsets = ()
    for k in tl.static_range(ROWS):
        if OPS[k][1] == 1:
            offsets = offsets + (column_offsets(ints, n, OPS, k, LEVELS),)
        else:
            offsets = offsets + (n,)
    return offsets


@triton.jit
def fold_some(
    folded,
    ins,
    o_q,
    o_p,
    by_q,
    by_p,
    live,
    COUNT: tl.constexpr,
    OPS: tl.constexpr,
    K: tl.constexpr,
    ACC: tl.constexpr,
    FULL: tl.constexpr,
):
    """`folded` with COUNT more actions; their loads do not wait for one another."""
    Q: tl.constexpr = OPS[K][0]
    P: tl.constexpr = OPS[K][0] + 1
    qs = ()
    ps = ()
    for i in tl.static_range(COUNT):
        qs = qs + (load(ins, o_q + i * by_q, live, OPS, Q, ACC, FULL),)
        if OPS[K][1] == 5:
            ps = ps + (load(ins, o_p + i * by_p, live, OPS, P, ACC, FULL),)
    for i in tl.static_range(COUNT):
        if OPS[K][1] == 5:
            folded = madd(qs[i], ps[i], folded)
        else:
            folded = tl.where((qs[i] > folded) | (qs[i] != qs[i]), qs[i], folded)
    return folded


@triton.jit
def fold_actions(
    ins,
    ints,
    offsets,
    t,
    live,
    OPS: tl.constexpr,
    K: tl.constexpr,
    LEVELS: tl.constexpr,
    ACC: tl.constexpr,
    FULL: tl.constexpr,
):
    """An operand that is a sum or a maximum over actions: its arrays are rows of the table from D[0] on, D[3] actions."""
    Q: tl.constexpr = OPS[K][0]
    COUNT: tl.constexpr = OPS[K][3]
    U: tl.constexpr = COUNT if COUNT <= 16 else 8
    by_q = number(ints, OPS[Q][5], 1 + LEVELS)
    o_q = offsets[Q] + t * number(ints, OPS[Q][3], 1 + LEVELS)
    by_p = by_q
    o_p = o_q
    if OPS[K][1] == 5:
        by_p = number(ints, OPS[Q + 1][5], 1 + LEVELS)
        o_p = offsets[Q + 1] + t * number(ints, OPS[Q + 1][3], 1 + LEVELS)
        folded = tl.zeros(live.shape, ACC)
    else:
        folded = tl.full(live.shape, float("-inf"), ACC)
    if COUNT <= U:
        folded = fold_some(folded, ins, o_q, o_p, by_q, by_p, live, COUNT, OPS, K, ACC, FULL)
    else:
        for i in tl.range(0, COUNT // U * U, U):
            folded = fold_some(folded, ins, o_q + i * by_q, o_p + i * by_p, by_q, by_p, live, U, OPS, K, ACC, FULL)
        if COUNT % U > 0:
            i = COUNT // U * U
            folded = fold_some(
                folded, ins, o_q + i * by_q, o_p + i * by_p, by_q, by_p, live, COUNT % U, OPS, K, ACC, FULL
            )
    return folded


@triton.jit
def load_guards(
    ins, ints, fixed, offsets, t, live, OPS: tl.constexpr, X: tl.constexpr, LEVELS: tl.constexpr, ACC: tl.constexpr
):
    """The flags at times `t` that say whether other operands are read there; placeholders for all else."""
    guards = ()
    for k in tl.static_range(X):
        if OPS[k][1] == 1 and OPS[k][2] == 2:
            o = offsets[k] + t * number(ints, OPS[k][3], 1 + LEVELS)
            guards = guards + (load(ins, o, live, OPS, k, ACC, False),)
        else:
            guards = guards + (fixed[k],)
    return guards


@triton.jit
def load_steps(
    ins,
    ints,
    fixed,
    guards,
    offsets,
    t,
    live,
    OPS: tl.constexpr,
    X: tl.constexpr,
    LEVELS: tl.constexpr,
    ACC: tl.constexpr,
    FULL: tl.constexpr,
):
    """All operands at times `t`. Memory that a guard excludes is not read: it costs nothing."""
    x = ()
    for k in tl.static_range(X):
        if OPS[k][1] == 1 and OPS[k][2] != 2:
            o = offsets[k] + t * number(ints, OPS[k][3], 1 + LEVELS)
            if OPS[k][5] < 0:
                x = x + (load(ins, o, live, OPS, k, ACC, FULL),)
            else:
                x = x + (load(ins, o, live & guards[OPS[k][5]], OPS, k, ACC, False),)
        elif OPS[k][1] >= 5:
            x = x + (fold_actions(ins, ints, offsets, t, live, OPS, k, LEVELS, ACC, FULL),)
        else:
            x = x + (guards[k],)
    return x


@triton.jit
def edges(
    ins,
    ints,
    n,
    live,
    like,
    OPS: tl.constexpr,
    EDGES: tl.constexpr,
    SEEN: tl.constexpr,
    LEVELS: tl.constexpr,
    ACC: tl.constexpr,
    FULL: tl.constexpr,
):
    """What is near the first step of the walk: values from beyond it, 0 where there are none."""
    edge = ()
    for j in tl.static_range(len(EDGES)):
        v = load_fixed(ins, ints, n, live, OPS, EDGES[j], LEVELS, ACC, FULL)
        edge = edge + (tl.broadcast_to(v.to(ACC), like.shape),)
    if SEEN:
        edge = edge + (tl.full(like.shape, 0, ACC),)
    return edge


@triton.jit
def beside(
    ins,
    ints,
    fixed,
    offsets,
    t,
    inner,
    edge,
    OPS: tl.constexpr,
    NEAR: tl.constexpr,
    LEVELS: tl.constexpr,
    ACC: tl.constexpr,
):
    """The near operands (flags as numbers) at times `t` where `inner`; their edge values (V(s_T), say) elsewhere."""
    near = ()
    for j in tl.static_range(len(NEAR)):
        if OPS[NEAR[j]][1] == 1:
            o = offsets[NEAR[j]] + t * number(ints, OPS[NEAR[j]][3], 1 + LEVELS)
            v = load(ins, o, inner, OPS, NEAR[j], ACC, False).to(ACC)
        else:
            v = fixed[NEAR[j]].to(ACC)
        near = near + (tl.where(inner, v, edge[j]),)
    return near


@triton.jit
def pick(x, like, OPS: tl.constexpr, NEAR: tl.constexpr, SEEN: tl.constexpr, ACC: tl.constexpr):
    """The operands of one step that the next step of the walk wants to know; with SEEN, also a 1: there was a step."""
    near = ()
    for j in tl.static_range(len(NEAR)):
        near = near + (tl.broadcast_to(x[NEAR[j]].to(ACC), like.shape),)
    if SEEN:
        near = near + (tl.full(like.shape, 1, ACC),)
    return near


@triton.jit
def select(m, x, y):
    """Element-wise `where` over two tuples."""
    z = ()
    for j in tl.static_range(len(x)):
        z = z + (tl.where(m, x[j], y[j]),)
    return z


@triton.jit
def fold_totals(ins, i_p, i_n, m_n, N, y, AXIS: tl.constexpr, PARTS: tl.constexpr, FOLD: tl.constexpr):
    """The carry into range `i_p` of a split walk: the totals of the ranges before it (the last input), applied to y.

    FOLD >= PARTS pads the tile to the size of the program's warps.
    """
    i_q = tl.expand_dims(tl.arange(0, FOLD), 1 - AXIS)
    o_q = i_q.to(tl.int64) * N + i_n
    m_q = (i_q < i_p) & m_n
    b_a = tl.load(ins[len(ins) - 1] + o_q, mask=m_q, other=1)
    b_b = tl.load(ins[len(ins) - 1] + o_q + tl.full([], PARTS, tl.int64) * N, mask=m_q, other=0)
    s_a, s_b = tl.associative_scan((b_a, b_b), AXIS, compose)
    return at(i_q == FOLD - 1, apply(s_a, s_b, y), AXIS)

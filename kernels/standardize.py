"""Schedule *standardize*: the second pass of a standardised result, (x - mean) / (std + 1e-8) from the summaries of the first.

Tiles are [BT, BN], steps by columns; BN = 1 or BT = 1 may be the shorter side, whichever axis memory runs along. A few programs
for each multiprocessor walk over all tiles, so that the summaries are merged a few hundred times, not once for each tile.
"""

import triton
import triton.language as tl

from .operands import column_offsets, convert, number
from .statistics import fold_all


@triton.jit
def standardize(
    ins,
    outs,
    ints,
    OPS: tl.constexpr,
    MASK: tl.constexpr,
    LEVELS: tl.constexpr,
    ACC: tl.constexpr,
    BT: tl.constexpr,
    BN: tl.constexpr,
    LANES: tl.constexpr,
):
    """Inputs: the raw result, the summaries, perhaps the mask. `OPS` describes the first (row 0) and the last (row MASK)."""
    T = tl.full([], 0, tl.int64) + ints[0]
    N = tl.full([], 0, tl.int64) + ints[1]
    programs = ints[len(ints) - 1]
    MASKED: tl.constexpr = OPS[MASK][1] != 0
    n, pivot, mean, square = fold_all(ins[1], programs, LANES, ACC)
    deviation = tl.sqrt(square / tl.maximum(n, 1)) + 1e-8
    across = tl.cdiv(N, BN)
    for k in tl.range(tl.program_id(0).to(tl.int64), across * tl.cdiv(T, BT), tl.num_programs(0)):
        t = k // across * BT + tl.arange(0, BT)[:, None]
        i_n = k % across * BN + tl.arange(0, BN)[None, :]
        live = (t < T) & (i_n < N)
        o = column_offsets(ints, i_n, OPS, 0, LEVELS) + t * number(ints, OPS[0][3], 1 + LEVELS)
        x = tl.load(ins[0] + o, mask=live, other=0)
        y = ((x - pivot) - mean) / deviation
        if MASKED:
            o_m = column_offsets(ints, i_n, OPS, MASK, LEVELS) + t * number(ints, OPS[MASK][3], 1 + LEVELS)
            y = tl.where(convert(tl.load(ins[OPS[MASK][0]] + o_m, mask=live, other=0), OPS, MASK, ACC), y, 0)
        tl.store(outs[0] + o, y.to(outs[0].dtype.element_ty), mask=live)

"""The scan operator, with resets that select.

An element (a, b) stands for the map y -> a*y + b. A *reset* is the map y -> b whatever y is, NaN and infinity included,
so it cannot be a multiplication by 0. It is coded as a = NaN: a map whose true `a` is NaN sends every y to NaN, which is
the reset with b = NaN, so the code takes no value away. Two operands pass through a scan instead of three, and a product
that underflows to 0 is never mistaken for a reset. Integers hold no NaN and no infinity: there the code is a = 0, and the
multiplication is a select.
"""

import triton
import triton.language as tl


@triton.jit
def madd(a, b, c):
    """a*b + c, in one rounding where these are floating-point numbers.

    Said here rather than left to the compiler: XLA's does not contract, Triton's did so by default up to 3.9.
    """
    if a.dtype.is_floating():
        a, b = tl.broadcast(a, b)
        a, c = tl.broadcast(a, c)
        b, c = tl.broadcast(b, c)
        return tl.fma(a, b, c)
    else:
        return a * b + c


@triton.jit
def mark(a, reset, ACC: tl.constexpr):
    """`a`, or the code of a reset."""
    if tl.float32 == ACC or tl.float64 == ACC:
        return tl.where(reset, float("nan"), a)
    else:
        return tl.where(reset, tl.full([], 0, ACC), a)


@triton.jit
def encode(a, b, reset, ACC: tl.constexpr):
    """(a, b, reset) as a coded pair; a NaN in `a` that is no reset moves into `b`."""
    return mark(a, reset, ACC), tl.where((a != a) & (reset == 0), a, b)


@triton.jit
def apply(a, b, y):
    """The value of the coded map (a, b) at y."""
    return tl.where(a != a, b, madd(a, y, b))


@triton.jit
def compose(a1, b1, a2, b2):
    """First map 1, then map 2 (both coded), in the order of the walk."""
    return tl.where(a2 != a2, a2, a2 * a1), tl.where(a2 != a2, b2, madd(a2, b1, b2))


@triton.jit
def compose_both(ea1, eb1, ia1, ib1, ea2, eb2, ia2, ib2):
    """Exclusive (e) and inclusive (i) prefixes in one scan; an element starts as (identity, itself).

    Shifting an inclusive scan by one would need a gather, and the layout that a gather asks for spreads to every load and
    store of the kernel, with a trip through shared memory for each.
    """
    ea, eb = compose(ia1, ib1, ea2, eb2)
    ia, ib = compose(ia1, ib1, ia2, ib2)
    return ea, eb, ia, ib


@triton.jit
def at(m, x, AXIS: tl.constexpr):
    """The one entry along AXIS where `m` is set, that axis kept."""
    return tl.expand_dims(tl.sum(tl.where(m, x, tl.zeros_like(x)), AXIS), AXIS)

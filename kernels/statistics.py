"""Mean and deviation of a result, taken while it is made, without cancellation.

A *summary* of some numbers is (how many, one of them, their mean less that one, the sum of their squared deviations). The
mean is kept as an offset from one of the numbers because a float32 near 1000 cannot tell a mean to a hundredth of a
deviation of 0.01; the offset can. Two summaries merge after Chan, Golub and LeVeque (1979).
"""

import triton
import triton.language as tl


@triton.jit
def merge(n_1, pivot_1, mean_1, square_1, n_2, pivot_2, mean_2, square_2):
    """The summary of two sets of numbers; one of an empty set changes nothing."""
    n = n_1 + n_2
    share = n_2 / tl.maximum(n, 1)
    apart = (pivot_2 - pivot_1) + (mean_2 - mean_1)
    mean = mean_1 + apart * share
    square = square_1 + square_2 + apart * apart * (n_1 * share)
    pivot = tl.where(n_1 == 0, pivot_2, pivot_1)
    mean = tl.where(n_1 == 0, mean_2, tl.where(n_2 == 0, mean_1, mean))
    square = tl.where(n_1 == 0, square_2, tl.where(n_2 == 0, square_1, square))
    return n, pivot, mean, square


@triton.jit
def summarize(values, ms, like):
    """The summary of a tuple of blocks, element by element; `ms` says which are real."""
    n = like
    pivot = like
    total = like
    square = like
    for i in tl.static_range(len(values)):
        pivot = tl.where(ms[i] & (n == 0), values[i], pivot)
        n = tl.where(ms[i], n + 1, n)
        total = tl.where(ms[i], total + (values[i] - pivot), total)
    mean = total / tl.maximum(n, 1)
    for i in tl.static_range(len(values)):
        apart = (values[i] - pivot) - mean
        square = tl.where(ms[i], square + apart * apart, square)
    return n, pivot, mean, square


@triton.jit
def fold(summary):
    """One summary out of a block's, as scalars."""
    n, pivot, mean, square = tl.reduce(summary, 1, merge)
    return tl.reduce((n, pivot, mean, square), 0, merge)


@triton.jit
def store_summary(pointer, i_p, programs, summary):
    """Writes the summary of program `i_p`: four rows of one number for each program."""
    for i in tl.static_range(4):
        tl.store(pointer + i * programs + i_p, summary[i])


@triton.jit
def fold_all(pointer, programs, LANES: tl.constexpr, ACC: tl.constexpr):
    """The summary of what all programs summarized."""
    i_q = tl.arange(0, LANES)[None, :]
    zero = tl.zeros([1, LANES], ACC)
    summary = (zero, zero, zero, zero)
    for s in tl.range(0, programs, LANES):
        m_q = s + i_q < programs
        part = ()
        for i in tl.static_range(4):
            part = part + (tl.load(pointer + i * programs + s + i_q, mask=m_q, other=0),)
        summary = merge(summary[0], summary[1], summary[2], summary[3], part[0], part[1], part[2], part[3])
    return fold(summary)

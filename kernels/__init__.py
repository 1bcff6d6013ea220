"""Triton kernels for first-order linear recurrences. Knows Triton and numbers, no framework and no estimator.

Importing this package does not import Triton: `plan` is plain Python, the kernel modules are loaded by the launchers.

Vocabulary, the same in every file here:

* **walk**: the order in which time steps are visited. `s = 0, 1, ...` counts steps along the walk; `t = T-1-s` when the
  walk goes backward in time, else `t = s`.
* **column**: one independent recurrence; `n` in [0, N) numbers them over all batch axes.
* **carry**: `y` at the step walked just before; **near**: an operand's value there (V_{t+1} in a backward walk).
* **step / finish**: the estimator's two on-chip functions (`coefficients/<estimator>.py`):
  `step(x, near, first, HAS) -> (a, b, reset)` and `finish(x, near, first, y, before, HAS) -> outputs`. `x` holds the
  operands, `near` those of them whose neighbour is wanted (flags as numbers), `first` is true at the first (real) step of the
  walk, `before` is the carry; `HAS[k]` says whether operand k was given. Coefficients are tensors, constants too (`tl.full`).
  FIRST and LOOKBACK say whether `first` under a mask and `before` are wanted at all: they cost something in some schedules.
* **descriptor** of an operand, a constexpr tuple `(slot, kind, flag, time, offset, where, *levels)`: which pointer, how it
  varies (kinds in `operands.py`), whether it is a truth value (2: one that guards the loads of another), then *codes* for its
  strides along time and over the batch axes (innermost first): 0 and 1 stand for themselves, k >= 2 for entry k-2 of the
  stride table. So a new shape of the same layout reuses the compiled kernel. `where`: the flag that must be set for it to
  be read; for a result, which one it is; for an array with an action axis, its stride there. An operand folded over
  actions is described by (its first array's row in the table, kind, 0, number of actions, 0, -1).
* `i_` an index, `o_` offsets, `m_` a mask, `b_` a block of values, `BN`/`BT`/`R` block sizes, capitals for constexprs.
"""

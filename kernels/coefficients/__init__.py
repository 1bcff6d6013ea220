"""One file per estimator: its `step` and `finish` as `@triton.jit` functions."""

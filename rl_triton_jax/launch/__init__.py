"""Launchers: each runs a `kernels.plan.Plan` in one world. None of them knows an estimator or a schedule.

`kernel` turns a launch into something Triton compiles; `jax_triton` and `xla_triton` are the two routes from JAX, `torch`
launches on CUDA tensors, `interpret` runs the kernels on a CPU through Triton's interpreter (tests).
"""

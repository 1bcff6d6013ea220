"""Kernel entry points with exactly the parameters of one call.

A schedule takes its pointers as tuples; jax-triton and XLA's Triton call pass a flat list of them. So the entry is made per
(schedule, number of inputs, of outputs, of integers), as a small function that packs its parameters into tuples. Triton
reads the source of a function through `inspect`, hence the entry in `linecache`.
"""

import functools
import importlib
import linecache

import triton
import triton.language as tl


@functools.cache
def estimator_functions(name: str, schedule: str):
    """The `step` and `finish` of an estimator; windows look at the value that `follows` a step instead."""
    module = importlib.import_module(f"{__package__}.coefficients.{name}")
    return module.step, module.follows if schedule.startswith("windows") else module.finish


def _pack(names):
    return "(" + "".join(f"{name}, " for name in names) + ")"


@functools.cache
def make_entry(schedule: str, n_in: int, n_out: int, n_ints: int, constants: tuple[str, ...], static_ints: bool):
    """The `@triton.jit` function `(i0.., o0.., n0.., *constants)`; `static_ints` makes the integers constexpr."""
    body = getattr(importlib.import_module(f"{__package__}.{schedule}"), schedule)
    ins, outs, ints = ([f"{c}{k}" for k in range(n)] for c, n in (("i", n_in), ("o", n_out), ("n", n_ints)))
    static = ": tl.constexpr"
    parameters = [*ins, *outs, *(n + static * static_ints for n in ints), *(c + static for c in constants)]
    name = f"{schedule}_{n_in}_{n_out}"
    arguments = ", ".join([_pack(ins), _pack(outs), _pack(ints), *body.arg_names[3:]])
    source = f"def {name}({', '.join(parameters)}):\n    {schedule}({arguments})\n"
    file = f"<rl_triton_jax.{name}.{n_ints}.{'static' if static_ints else 'dynamic'}>"
    linecache.cache[file] = (len(source), None, source.splitlines(True), file)
    scope = {"tl": tl, schedule: body, "__name__": __name__}
    exec(compile(source, file, "exec"), scope)
    return triton.jit(scope[name])

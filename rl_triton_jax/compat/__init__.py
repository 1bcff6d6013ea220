"""Drop-ins for other libraries: their names, argument order, defaults and layouts, and their numbers.

One module for each library, imported by itself (`from rl_triton_jax.compat import brax`), so that nothing is loaded that is
not used; none needs the library it stands in for. A drop-in is a front end like any other: it rearranges arguments for the
estimators of `rl_triton_jax` or `rl_triton_jax.torch` and holds no recurrence of its own. Where the library is known to be
wrong, its numbers still come out, after one warning that names the right call; `corrected=True` gives the right ones.
"""

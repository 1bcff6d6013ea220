"""Credit assignment for reinforcement learning: fused Triton kernels as JAX primitives, the same kernels for torch, XLA anywhere.

    advantages, returns = rl_triton_jax.gae(rewards, values, terminated, last_values=last_values)

inside or outside `jax.jit`. `rl_triton_jax.torch` offers the same functions for torch tensors.
"""

from jax import export as _export

from ._version import __version__
from .estimators.gae import GAE
from .estimators.gae import gae as _gae
from .estimators.linear_recurrence import linear_recurrence as _linear_recurrence
from .front import offered_by
from .jax_front import JAX
from .launch.from_jax import EXPORT_CHECKS, default_implementation, launch_route

gae = offered_by(JAX, _gae)
linear_recurrence = offered_by(JAX, _linear_recurrence)

_export.register_namedtuple_serialization(GAE, serialized_name="rl_triton_jax.GAE")

__all__ = ["EXPORT_CHECKS", "GAE", "__version__", "default_implementation", "gae", "launch_route", "linear_recurrence"]

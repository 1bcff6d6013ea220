"""Credit assignment for reinforcement learning: fused Triton kernels as JAX primitives, the same kernels for torch, XLA anywhere.

    advantages, returns = rl_triton_jax.gae(rewards, values, terminated, last_values=last_values)

inside or outside `jax.jit`. `rl_triton_jax.torch` offers the same functions for torch tensors.
"""

from jax import export as _export

from ._version import __version__
from .estimators.discounted_returns import discounted_returns as _discounted_returns
from .estimators.eligibility_traces import eligibility_traces as _eligibility_traces
from .estimators.episodic_cumsum import episodic_cumsum as _episodic_cumsum
from .estimators.gae import GAE
from .estimators.gae import gae as _gae
from .estimators.gae_packed import gae_packed as _gae_packed
from .estimators.lambda_returns import lambda_returns as _lambda_returns
from .estimators.lambda_returns import q_lambda as _q_lambda
from .estimators.linear_recurrence import linear_recurrence as _linear_recurrence
from .estimators.n_step_returns import n_step_returns as _n_step_returns
from .estimators.off_policy import Retrace
from .estimators.off_policy import general_off_policy_returns as _general_off_policy_returns
from .estimators.off_policy import retrace as _retrace
from .estimators.off_policy import tree_backup as _tree_backup
from .estimators.upgo import upgo as _upgo
from .estimators.vtrace import VTrace
from .estimators.vtrace import puffer_advantage as _puffer_advantage
from .estimators.vtrace import vtrace as _vtrace
from .front import offered_by
from .jax_front import JAX
from .launch.from_jax import EXPORT_CHECKS, default_implementation, launch_route

discounted_returns = offered_by(JAX, _discounted_returns)
eligibility_traces = offered_by(JAX, _eligibility_traces)
episodic_cumsum = offered_by(JAX, _episodic_cumsum)
gae = offered_by(JAX, _gae)
gae_packed = offered_by(JAX, _gae_packed)
general_off_policy_returns = offered_by(JAX, _general_off_policy_returns)
lambda_returns = offered_by(JAX, _lambda_returns)
linear_recurrence = offered_by(JAX, _linear_recurrence)
n_step_returns = offered_by(JAX, _n_step_returns)
puffer_advantage = offered_by(JAX, _puffer_advantage)
q_lambda = offered_by(JAX, _q_lambda)
retrace = offered_by(JAX, _retrace)
tree_backup = offered_by(JAX, _tree_backup)
upgo = offered_by(JAX, _upgo)
vtrace = offered_by(JAX, _vtrace)

for _result in (GAE, Retrace, VTrace):
    _export.register_namedtuple_serialization(_result, serialized_name=f"rl_triton_jax.{_result.__name__}")

__all__ = [
    "EXPORT_CHECKS",
    "GAE",
    "Retrace",
    "VTrace",
    "__version__",
    "default_implementation",
    "discounted_returns",
    "eligibility_traces",
    "episodic_cumsum",
    "gae",
    "gae_packed",
    "general_off_policy_returns",
    "lambda_returns",
    "launch_route",
    "linear_recurrence",
    "n_step_returns",
    "puffer_advantage",
    "q_lambda",
    "retrace",
    "tree_backup",
    "upgo",
    "vtrace",
]

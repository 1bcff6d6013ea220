"""Generalised advantage estimation over sequences of any length, packed one behind the other (RLHF).

A packed buffer is one row of steps in which every sequence's last token ends an episode: `gae` with flags made from the
offsets. The kernels split the row over the machine by steps and not by sequences, so lengths do not matter.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..front import FrontEnd
from ..problem import INTEGERS, dtype_name, is_array, is_number
from .gae import GAE, gae


def gae_packed(
    front: FrontEnd,
    rewards: Any,
    values: Any,
    cu_seqlens: Any,
    *,
    last_values: Any,
    gamma: Any = 0.99,
    lambda_: Any = 0.95,
    mask: Any = None,
    implementation: str | None = None,
) -> GAE:
    """`gae` over packed sequences, from offsets: the same as `gae` on each sequence by itself.

        A_t = delta_t + gamma_t lambda_t A_{t+1},    delta_t = r_t + gamma_t V_{t+1} - V_t    within each sequence,

    where V after the last token of sequence s is last_values[s] and A there is 0 (Schulman et al. 2016, arXiv:1506.02438).

    Args:
      rewards: `[total]`: all sequences, one behind the other.
      values: `[total]`: V(s_t).
      cu_seqlens: `[S + 1]`, integers: sequence s is rows cu_seqlens[s] to cu_seqlens[s + 1] (exclusive). They rise from 0; a
        sequence may be empty. Rows from cu_seqlens[S] on, if any, belong to no sequence and hold numbers of no meaning.
      last_values: `[S]` or a number: the value of the state after each sequence; 0 where it terminated.
      gamma: discount, a number or `[total]`. May be traced.
      lambda_: trace decay in the same forms.
      mask: `[total]`: True at real tokens; results there are those of each sequence with the masked tokens cut out, and 0 at
        masked tokens.
      implementation: None (best for the platform), "triton" or "xla".

    Returns:
      GAE(advantages, returns), `[total]` each, in the promoted floating dtype of rewards and values.

    Raises:
      TypeError: an argument is no array, or has a dtype that cannot be used; `cu_seqlens` are not integers.
      ValueError: a shape does not fit, NumPy `cu_seqlens` do not rise from 0 or exceed the total (others are not looked at),
        or `implementation` cannot run here.
    """
    name = "gae_packed"
    for label, x in (("rewards", rewards), ("values", values), ("cu_seqlens", cu_seqlens)):
        if not is_array(x):
            raise TypeError(f"{name}: `{label}` must be an array, got {type(x).__name__}")
        if len(x.shape) != 1:
            raise ValueError(f"{name}: `{label}` has shape {list(x.shape)}; expected one axis")
    if dtype_name(cu_seqlens) not in INTEGERS[1:]:
        raise TypeError(f"{name}: `cu_seqlens` must be integers, got {dtype_name(cu_seqlens)}")
    if cu_seqlens.shape[0] == 0:
        raise ValueError(f"{name}: `cu_seqlens` has shape [0]; expected [S + 1]: 0 and the end of each sequence")
    if values.shape != rewards.shape:
        raise ValueError(
            f"{name}: `values` has shape {list(values.shape)}; expected {list(rewards.shape)}, as `rewards`"
        )
    if isinstance(cu_seqlens, np.ndarray):  # on the host already: looking costs no wait
        rises = cu_seqlens[0] == 0 and np.all(cu_seqlens[1:] >= cu_seqlens[:-1])
        if not rises or cu_seqlens[-1] > rewards.shape[0]:
            raise ValueError(
                f"{name}: `cu_seqlens` must rise from 0 to at most {rewards.shape[0]}, the length of `rewards`; got "
                f"{cu_seqlens[0]} ... {cu_seqlens[-1]}"
            )
    sequences = cu_seqlens.shape[0] - 1
    if not is_number(last_values):
        if not is_array(last_values):
            raise TypeError(f"{name}: `last_values` must be an array or a number, got {type(last_values).__name__}")
        if tuple(last_values.shape) not in ((), (sequences,)):
            raise ValueError(
                f"{name}: `last_values` has shape {list(last_values.shape)}; expected [{sequences}] (one for each sequence of "
                "`cu_seqlens`) or a number"
            )
    if mask is not None and not is_array(mask):
        raise TypeError(f"{name}: `mask` must be an array, got {type(mask).__name__}")
    if mask is not None and mask.shape != rewards.shape:
        raise ValueError(f"{name}: `mask` has shape {list(mask.shape)}; expected {list(rewards.shape)}, as `rewards`")
    ends, finals = front.sequence_ends(cu_seqlens, last_values, mask, values)
    return gae(
        front,
        rewards,
        values,
        None,
        ends,
        last_values=0.0,
        final_values=finals,
        gamma=gamma,
        lambda_=lambda_,
        mask=mask,
        implementation=implementation,
    )

"""The few things that measuring needs of JAX and of torch."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np

from .problem import Inputs
from .provider import Function


class Framework(Protocol):
    """How one framework places arrays, makes something callable and waits for it."""

    name: str

    def put(self, arrays: Sequence[np.ndarray]) -> list[Any]:
        """On the device, in memory of their own: a second call gives other buffers."""
        ...

    def compile(
        self, names: Sequence[str], function: Function, arrays: Sequence[Any]
    ) -> tuple[Callable[..., Any], float]:
        """A callable of the arrays, and the seconds until it could be called."""
        ...

    def block(self, results: Any) -> None: ...

    def to_host(self, x: Any) -> np.ndarray:
        """In float64."""
        ...


class JaxFramework:
    name = "jax"

    def put(self, arrays: Sequence[np.ndarray]) -> list[Any]:
        import jax.numpy as jnp

        return [jnp.array(x, copy=True) for x in arrays]

    def compile(
        self, names: Sequence[str], function: Function, arrays: Sequence[Any]
    ) -> tuple[Callable[..., Any], float]:
        import jax

        start = time.perf_counter()
        compiled = jax.jit(lambda *xs: tuple(function(dict(zip(names, xs, strict=True))))).lower(*arrays).compile()
        return compiled, time.perf_counter() - start

    def block(self, results: Any) -> None:
        import jax

        jax.block_until_ready(results)

    def to_host(self, x: Any) -> np.ndarray:
        return np.asarray(x).astype(np.float64)


class TorchFramework:
    name = "torch"

    def put(self, arrays: Sequence[np.ndarray]) -> list[Any]:
        import torch

        device = "cuda" if torch.cuda.is_available() else "cpu"

        def one(x: np.ndarray) -> Any:
            if x.dtype.name == "bfloat16":  # NumPy's is not torch's; through float32 it is exact
                return torch.tensor(x.astype(np.float32), device=device).to(torch.bfloat16)
            return torch.tensor(x, device=device)

        return [one(x) for x in arrays]

    def compile(
        self, names: Sequence[str], function: Function, arrays: Sequence[Any]
    ) -> tuple[Callable[..., Any], float]:
        def call(*xs: Any) -> Any:
            return function(dict(zip(names, xs, strict=True)))

        start = time.perf_counter()
        self.block(call(*arrays))  # the first call compiles
        return call, time.perf_counter() - start

    def block(self, results: Any) -> None:
        import torch

        if torch.cuda.is_available():
            torch.cuda.synchronize()

    def to_host(self, x: Any) -> np.ndarray:
        import torch

        return x.detach().to("cpu", torch.float64).numpy()


FRAMEWORKS: dict[str, Framework] = {"jax": JaxFramework(), "torch": TorchFramework()}


def pullback(
    function: Callable[[Inputs], Sequence[Any]], inputs: Inputs, names: Sequence[str], cotangents: Sequence[Any]
) -> list[Any]:
    """The function's results, and behind them `cotangents` pulled back to the inputs of these names (reverse mode)."""
    if type(inputs[names[0]]).__module__.partition(".")[0] == "torch":
        import torch

        leaves = {name: inputs[name].detach().requires_grad_() for name in names}
        results = function({**inputs, **leaves})
        return [*(x.detach() for x in results), *torch.autograd.grad(results, list(leaves.values()), cotangents)]
    import jax

    results, back = jax.vjp(lambda xs: tuple(function({**inputs, **xs})), {name: inputs[name] for name in names})
    (gradients,) = back(tuple(cotangents))
    return [*results, *(gradients[name] for name in names)]

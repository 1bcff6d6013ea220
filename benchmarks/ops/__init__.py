"""The ops that can be measured: every module in this folder holds one as `OP`."""

from __future__ import annotations

import functools
import importlib
import pkgutil

from ..problem import Op


@functools.cache
def all_ops() -> dict[str, Op]:
    modules = (importlib.import_module(f"{__name__}.{info.name}") for info in pkgutil.iter_modules(__path__))
    return {module.OP.name: module.OP for module in modules}

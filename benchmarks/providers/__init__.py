"""The providers: every module in this folder lists some as `PROVIDERS`."""

from __future__ import annotations

import functools
import importlib
import pkgutil

from ..provider import Provider


@functools.cache
def all_providers() -> dict[str, Provider]:
    modules = (importlib.import_module(f"{__name__}.{info.name}") for info in pkgutil.iter_modules(__path__))
    found = [provider for module in modules for provider in module.PROVIDERS]
    return {provider.name: provider for provider in sorted(found, key=lambda p: p.priority)}

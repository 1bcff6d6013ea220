"""One warning for each thing to know, not one for each call."""

from __future__ import annotations

import sys
import warnings
from pathlib import Path

_given: set[str] = set()
_PACKAGE = str(Path(__file__).resolve().parents[1])
_DECORATORS = ("contextlib.py",)  # torch.no_grad


def warn_once(message: str) -> None:
    """Warns at the line that called the drop-in, the first time this process comes by with this message."""
    if message in _given:
        return
    _given.add(message)
    level, frame = 1, sys._getframe()
    while frame.f_back is not None and (
        frame.f_code.co_filename.startswith(_PACKAGE) or frame.f_code.co_filename.endswith(_DECORATORS)
    ):
        level, frame = level + 1, frame.f_back
    warnings.warn(message, UserWarning, stacklevel=level)

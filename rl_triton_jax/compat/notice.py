"""One warning for each thing to know, not one for each call."""

from __future__ import annotations

import warnings

_given: set[str] = set()


def warn_once(message: str) -> None:
    """Warns at the line that called the drop-in, the first time this process comes by with this message."""
    if message not in _given:
        _given.add(message)
        warnings.warn(message, UserWarning, stacklevel=3)

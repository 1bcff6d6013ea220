"""Which front end the caller's arrays are for."""

from __future__ import annotations

import sys
from typing import Any


def is_torch(*arrays: Any) -> bool:
    """Whether any of them is a torch tensor; torch is not imported to find out."""
    torch = sys.modules.get("torch")
    return torch is not None and any(isinstance(x, torch.Tensor) for x in arrays)

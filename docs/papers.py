"""A hook of mkdocs: the papers that docstrings name become links."""

from __future__ import annotations

import re
from typing import Any

ARXIV = re.compile(r"(?<![/\w])arXiv:(\d{4}\.\d{5})")


def on_page_content(html: str, **_: Any) -> str:
    return ARXIV.sub(r'<a href="https://arxiv.org/abs/\1">arXiv:\1</a>', html)

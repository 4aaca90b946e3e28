"""What an installation needs for more than servers and SDK."""

from __future__ import annotations

import sys
from importlib.util import find_spec


def require(extra: str, *modules: str) -> None:
    """ImportError, with what to install, when one of an extra's modules is missing."""
    for name in modules:
        # A module that is loaded may have no spec: kombu puts an object in its place.
        if sys.modules.get(name) is None and find_spec(name) is None:
            raise ImportError(f"{name} is missing; pip install 'escrowmq[{extra}]'")

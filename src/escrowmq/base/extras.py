"""Checks that optional dependencies are installed."""

from __future__ import annotations

import sys
from importlib.util import find_spec


def require_extra(extra: str, *modules: str) -> None:
    """Raise ImportError, with what to install, if a module of an extra is missing."""
    for name in modules:
        # A module that is loaded may have no spec: kombu puts an object in its place.
        if sys.modules.get(name) is None and find_spec(name) is None:
            raise ImportError(f"{name} is missing; pip install 'escrowmq[{extra}]'")

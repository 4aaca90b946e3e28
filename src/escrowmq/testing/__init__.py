"""What users' tests stand on: `Broker`, a broker inside a test's process (docs/testing.md), and the
pytest plug-in. Nothing here runs in production."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from escrowmq.testing.kit.accounts import Account
    from escrowmq.testing.kit.broker import AioBroker, Broker

__all__ = ["Account", "AioBroker", "Broker"]

_HOMES = {"Account": "accounts", "AioBroker": "broker", "Broker": "broker"}
"""Loaded when they are used: every run of pytest imports this package."""


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module 'escrowmq.testing' has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(f"escrowmq.testing.kit.{_HOMES[name]}"), name)

"""Testing tools for users: `Broker`, a broker inside a test's process (docs/testing.md), and the
pytest plug-in; `delivery`, a message for the unit test of a handler. Nothing here runs in
production."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from escrowmq.client.made_deliveries import (
        AioMadeDelivery,
        MadeDelivery,
        aio_delivery,
        delivery,
    )
    from escrowmq.testing.kit.accounts import Account
    from escrowmq.testing.kit.broker import AioBroker, Broker

__all__ = [
    "Account",
    "AioBroker",
    "AioMadeDelivery",
    "Broker",
    "MadeDelivery",
    "aio_delivery",
    "delivery",
]

_HOMES = {
    "Account": "testing.kit.accounts",
    "AioBroker": "testing.kit.broker",
    "AioMadeDelivery": "client.made_deliveries",
    "Broker": "testing.kit.broker",
    "MadeDelivery": "client.made_deliveries",
    "aio_delivery": "client.made_deliveries",
    "delivery": "client.made_deliveries",
}
"""The module of each public name; it is imported on first use, because every run of pytest imports
this package."""


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module 'escrowmq.testing' has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(f"escrowmq.{_HOMES[name]}"), name)

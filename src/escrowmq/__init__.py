"""EscrowMQ: transactional messaging that speaks Apache RocketMQ.

>>> with escrowmq.Producer(nameserver, group="orders") as producer:
...     sent = producer.send("paid", b"order 1")
...     with producer.transaction("paid", b"order 2") as tx:
...         pass  # change the database here: both happen, or neither
>>> with escrowmq.Consumer(nameserver, group="mailer", topic="paid", tags="*") as consumer:
...     for message in consumer:  # acknowledged when the next one is asked for
...         break

`escrowmq.aio` has the same names for asyncio, `escrowmq.errors` every exception.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from escrowmq import aio as aio
    from escrowmq import errors as errors
    from escrowmq.client.blocking.admin import Admin
    from escrowmq.client.blocking.consumer import Consumer
    from escrowmq.client.blocking.delivery import Delivery
    from escrowmq.client.blocking.producer import Producer
    from escrowmq.client.blocking.transaction import Transaction
    from escrowmq.client.client_settings import Credentials
    from escrowmq.client.core.hooks import Interceptor
    from escrowmq.client.core.message import Message, ReceivedMessage
    from escrowmq.client.core.routes import MessageQueue
    from escrowmq.client.core.sending import Outcome, SendResult, SendStatus
    from escrowmq.client.tls import Tls

__all__ = [
    "Admin",
    "Consumer",
    "Credentials",
    "Delivery",
    "Interceptor",
    "Message",
    "MessageQueue",
    "Outcome",
    "Producer",
    "ReceivedMessage",
    "SendResult",
    "SendStatus",
    "Tls",
    "Transaction",
]

_HOMES = {
    "Admin": "escrowmq.client.blocking.admin",
    "Consumer": "escrowmq.client.blocking.consumer",
    "Credentials": "escrowmq.client.client_settings",
    "Delivery": "escrowmq.client.blocking.delivery",
    "Interceptor": "escrowmq.client.core.hooks",
    "Message": "escrowmq.client.core.message",
    "MessageQueue": "escrowmq.client.core.routes",
    "Outcome": "escrowmq.client.core.sending",
    "Producer": "escrowmq.client.blocking.producer",
    "ReceivedMessage": "escrowmq.client.core.message",
    "SendResult": "escrowmq.client.core.sending",
    "SendStatus": "escrowmq.client.core.sending",
    "Tls": "escrowmq.client.tls",
    "Transaction": "escrowmq.client.blocking.transaction",
}
"""The module of each name. Names are loaded on first use: servers and tools import this package
too, and need no client."""


def __getattr__(name: str) -> object:
    if name == "__version__":
        from escrowmq.base.release import RELEASE

        return RELEASE
    if name in ("aio", "errors"):
        return importlib.import_module(f"escrowmq.{name}")
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'escrowmq' has no attribute {name!r}")
    found: object = getattr(importlib.import_module(home), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])

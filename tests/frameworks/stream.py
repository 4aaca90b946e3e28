"""What the tests of FastStream's broker stand on."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from faststream import FastStream, TestApp
from pydantic import BaseModel

from escrowmq.integrations.faststream import (
    EscrowMQBroker,
)

JSON = {"content-type": "application/json"}


class Order(BaseModel):
    id: str
    amount: int


class Mail(BaseModel):
    order: str


def new_broker(**settings: Any) -> EscrowMQBroker:
    return EscrowMQBroker(group="shop", logger=None, **settings)


def run(broker: EscrowMQBroker, work: Callable[[], Awaitable[None]]) -> None:
    """Run an application with the broker around some work."""

    async def go() -> None:
        async with TestApp(FastStream(broker, logger=None)):
            await work()

    asyncio.run(go())

"""The mail service: one mail for each order, however often its event comes."""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
from collections.abc import AsyncIterator

from sqlalchemy.ext.asyncio import AsyncSession, async_sessionmaker, create_async_engine

import escrowmq
import escrowmq.aio
from escrowmq.integrations.sqlalchemy import consume_once

from .orders import TOPIC
from .tables import Mail


@contextlib.asynccontextmanager
async def mailing(database: str, nameserver: str | None = None) -> AsyncIterator[None]:
    """Mails are written inside the block."""
    engine = create_async_engine(database)

    # By the order, and not by the message: a customer's second try may be a message of its own.
    @consume_once(async_sessionmaker(engine), key=lambda message: message.key_list[0])
    async def mail(message: escrowmq.ReceivedMessage, session: AsyncSession) -> None:
        order = json.loads(message.body)
        session.add(Mail(order_id=order["id"], text=f"Thank you for {order['amount']} euros."))

    async with escrowmq.aio.Consumer(nameserver, group="shop-mailer", topic=TOPIC, handler=mail):
        yield
    await engine.dispose()


async def run(database: str, nameserver: str | None = None) -> None:
    """Write mails until the process is told to end."""
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    async with mailing(database, nameserver):
        print("mailer ready", flush=True)
        await stop.wait()

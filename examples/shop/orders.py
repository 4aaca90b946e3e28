"""The orders service: FastAPI, PostgreSQL, and an event with each order."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator

from fastapi import FastAPI, HTTPException
from pydantic import BaseModel
from sqlalchemy import select
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import async_sessionmaker, create_async_engine

import escrowmq
import escrowmq.aio
from escrowmq.integrations.sqlalchemy import AsyncOutbox

from .tables import Order

TOPIC = "paid"


class NewOrder(BaseModel):
    """What a customer sends; whoever sends it again, with the same id, orders once."""

    id: str
    amount: int


def create_app(database: str, nameserver: str | None = None) -> FastAPI:
    """The service. Without a name server, NAMESRV_ADDR says where it is."""
    engine = create_async_engine(database)
    sessions = async_sessionmaker(engine)
    outbox: AsyncOutbox

    @contextlib.asynccontextmanager
    async def lifespan(_app: FastAPI) -> AsyncIterator[None]:
        nonlocal outbox
        async with escrowmq.aio.Producer(
            nameserver, group="shop-orders", topics=[TOPIC]
        ) as producer:
            outbox = AsyncOutbox(producer, engine)  # answers checks from here on
            yield
        await engine.dispose()

    app = FastAPI(title="Orders", lifespan=lifespan)

    # The transaction is here, and not in a dependency: FastAPI leaves those when the answer is on
    # its way, too late to say that there is no order.
    @app.post("/orders", status_code=201)
    async def place(order: NewOrder) -> NewOrder:
        try:
            async with sessions() as session, outbox.transaction(session) as tx:
                session.add(Order(id=order.id, amount=order.amount))
                await tx.send(TOPIC, order.model_dump_json().encode(), keys=[order.id])
        except IntegrityError as error:
            raise HTTPException(409, f"the order {order.id!r} is there already") from error
        return order

    @app.get("/orders")
    async def orders() -> list[str]:
        async with sessions() as session:
            return list(await session.scalars(select(Order.id).order_by(Order.id)))

    return app

"""The examples of docs/frameworks.md run as they stand."""

from __future__ import annotations

import asyncio
import contextlib
import re
from pathlib import Path
from typing import Annotated, Any

import sqlalchemy as sa
from fastapi import Depends, FastAPI, Request
from fastapi.testclient import TestClient
from faststream import FastStream, TestApp
from sqlalchemy.ext.asyncio import (
    AsyncEngine,
    AsyncSession,
    async_sessionmaker,
    create_async_engine,
)
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

import escrowmq
import escrowmq.aio
from escrowmq.integrations.faststream import EscrowMQBroker, EscrowMQMessage, TestEscrowMQBroker
from escrowmq.integrations.sqlalchemy import add_tables
from escrowmq.testing import Broker

PAGE = Path(__file__).resolve().parents[2] / "docs" / "frameworks.md"


def _block(word: str) -> Any:
    """The one example with a word in it."""
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    (found,) = (block for block in blocks if word in block)
    return compile(found, str(PAGE), "exec", dont_inherit=True)


def test_the_example_with_faststream_runs() -> None:
    names: dict[str, Any] = {"__name__": "example"}
    exec(_block("async def mail"), names)
    broker, mail = names["broker"], names["mail"]

    async def go() -> None:
        async with TestEscrowMQBroker(broker):
            await broker.publish({"id": "o-1"}, "paid", tag="card")
            mail.mock.assert_called_once_with({"id": "o-1"})

    asyncio.run(go())


class Base(DeclarativeBase):
    pass


class Order(Base):
    __tablename__ = "orders"
    id: Mapped[str] = mapped_column(primary_key=True)


class Booking(Base):
    __tablename__ = "bookings"
    id: Mapped[int] = mapped_column(primary_key=True)
    order_id: Mapped[str]


def _service(tmp_path: Path) -> dict[str, Any]:
    """The names of the example with an outbox, and those that it stands on."""
    engine = create_async_engine(f"sqlite+aiosqlite:///{tmp_path / 'shop.db'}")
    broker = EscrowMQBroker(group="shop", logger=None)
    names: dict[str, Any] = {
        "__name__": "example", "engine": engine, "broker": broker, "Order": Order,
        "Booking": Booking, "app": FastStream(broker, logger=None), "AsyncSession": AsyncSession,
        "async_sessionmaker": async_sessionmaker, "EscrowMQMessage": EscrowMQMessage,
    }  # fmt: skip
    exec(_block("on_startup"), names)
    return names


async def _make_tables(engine: AsyncEngine) -> None:
    metadata = sa.MetaData()
    add_tables(metadata)
    async with engine.begin() as connection:
        await connection.run_sync(metadata.create_all)
        await connection.run_sync(Base.metadata.create_all)


async def _booked(engine: AsyncEngine) -> list[str]:
    async with AsyncSession(engine) as session:
        return sorted(await session.scalars(sa.select(Booking.order_id)))


def test_an_outbox_in_faststream_is_there_before_the_messages_that_waited(
    escrowmq_broker: Broker, tmp_path: Path
) -> None:
    keys = [f"o-{n}" for n in range(20)]
    for key in keys:
        escrowmq_broker.send("wanted", key.encode())
    names = _service(tmp_path)

    async def go() -> None:
        await _make_tables(names["engine"])
        async with TestApp(names["app"]):
            await escrowmq_broker.aio.wait_consumed("orders")
            await escrowmq_broker.aio.wait_delivered("ordered", len(keys))
            await escrowmq_broker.aio.wait_consumed("books")
        assert await _booked(names["engine"]) == sorted(keys)
        await names["engine"].dispose()

    asyncio.run(go())
    # The clock stood still: what a handler without an outbox gives back would come after 10 s.
    assert sorted(escrowmq_broker.delivered("ordered")) == sorted(key.encode() for key in keys)


def test_what_is_handled_once_runs_in_faststreams_test_broker(tmp_path: Path) -> None:
    names = _service(tmp_path)

    async def go() -> None:
        await _make_tables(names["engine"])
        async with TestEscrowMQBroker(names["broker"]) as tested:
            await tested.publish("o-1", "ordered")
            await tested.publish("o-2", "ordered")
            names["book"].mock.assert_called_with("o-2")
        assert await _booked(names["engine"]) == ["o-1", "o-2"]
        async with AsyncSession(names["engine"]) as session:
            noted = await session.execute(sa.text("select * from escrowmq_handled"))
            assert {"books"} <= {str(each) for row in noted for each in row}
        await names["engine"].dispose()

    asyncio.run(go())


def test_the_example_with_celery_is_one_of_our_transport() -> None:
    names: dict[str, Any] = {}
    exec(_block("Celery("), names)
    with names["app"].connection_for_write() as connection:
        assert connection.transport.driver_type == "escrowmq"


def test_the_example_with_fastapi_runs(escrowmq_broker: Broker) -> None:
    names: dict[str, Any] = {
        "contextlib": contextlib, "FastAPI": FastAPI, "Request": Request, "Depends": Depends,
        "Annotated": Annotated, "escrowmq": escrowmq,
    }  # fmt: skip
    exec(_block("FastAPI("), names)
    with TestClient(names["app"]) as client:
        answer = client.post("/hellos", params={"name": "you"})
    assert answer.status_code == 202
    assert [m.message_id for m in escrowmq_broker.messages("hellos")] == [answer.json()]


def test_a_service_starts_while_its_broker_is_away(escrowmq_broker: Broker) -> None:
    escrowmq_broker.stop()

    @contextlib.asynccontextmanager
    async def lifespan(app: FastAPI) -> Any:
        async with escrowmq.aio.Producer(group="shop") as producer:
            app.state.producer = producer
            yield

    app = FastAPI(lifespan=lifespan)

    @app.get("/send")
    async def send() -> str:
        sent: escrowmq.SendResult = await app.state.producer.send("paid", b"x")
        return sent.status.name

    with TestClient(app) as client:
        escrowmq_broker.start()
        assert client.get("/send").json() == "OK"

"""The examples of docs/outbox.md run as they stand."""

from __future__ import annotations

import ast
import asyncio
import inspect
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from django.db import connections
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

import escrowmq
from escrowmq.integrations.sqlalchemy import AsyncOutbox
from tests.interop.process import until
from tests.interop.servers import Server
from tests.sdk.reading import delivered

from . import test_django
from .conftest import Place
from .test_django import using

__all__ = ["using"]

PAGE = Path(__file__).resolve().parents[2] / "docs" / "outbox.md"
BLOCKS = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)


class Base(DeclarativeBase):
    pass


class Order(Base):
    __tablename__ = "orders"
    id: Mapped[str] = mapped_column(sa.String(40), primary_key=True)


class Booking(Base):
    __tablename__ = "bookings"
    id: Mapped[str] = mapped_column(sa.String(80), primary_key=True)


class DjangoOrder:
    """What stands for a model."""

    class objects:  # noqa: N801 - Django's name
        @staticmethod
        def create(id: str) -> None:  # noqa: A002
            test_django.add(id)


def block(text: str) -> str:
    (found,) = [each for each in BLOCKS if text in each]
    return str(found)


def run(text: str, names: dict[str, Any]) -> None:
    code = compile(block(text), str(PAGE), "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    if code.co_flags & inspect.CO_COROUTINE:
        raise AssertionError("it is awaited; use run_awaited")
    exec(code, names)


async def run_awaited(text: str, names: dict[str, Any]) -> None:
    code = compile(block(text), str(PAGE), "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    await eval(code, names)


def sent(server: Server, text: bytes) -> bool:
    return any(message.body == text for message in delivered(server, "paid"))


def prepared(server: Server, place: Place) -> dict[str, Any]:
    with escrowmq.Admin(server.nameserver) as admin:
        admin.topics.create("paid", queues=4)
    engine = sa.create_engine(place.url)
    Base.metadata.create_all(engine)
    engine.dispose()
    return {"nameserver": server.nameserver, "database": place.url, "Order": Order,
            "Booking": Booking, "escrowmq": escrowmq}  # fmt: skip


def test_the_first_example_is_short_and_the_next_ones_follow_from_it(
    server: Server, new_place: Callable[[str], Place]
) -> None:
    assert len(block("create_engine").strip().splitlines()) <= 15
    names = prepared(server, new_place("sqlite"))
    run("create_engine", names)
    until("order 1", lambda: sent(server, b"order 1"))
    run("outbox.send(session,", names)
    until("order 2", lambda: sent(server, b"order 2"))
    run("@consume_once(sessionmaker", names)

    def booked() -> int | None:
        with names["engine"].connect() as connection:
            count: int | None = connection.scalar(sa.select(sa.func.count()).select_from(Booking))
            return count

    until("both are booked", lambda: (booked() or 0) >= 2)
    names["consumer"].close()
    names["producer"].close()
    names["engine"].dispose()


def test_the_example_of_asyncio(server: Server, new_place: Callable[[str], Place]) -> None:
    place = new_place("postgresql")

    async def go() -> None:
        engine = create_async_engine(place.async_url)
        names = {**prepared(server, place), "engine": engine, "AsyncSession": AsyncSession}
        setup = names["escrowmq"].aio.Producer(server.nameserver, group="async-setup")
        async with setup as producer:
            await AsyncOutbox(producer, engine).create_tables()
        await run_awaited("AsyncOutbox(producer, engine)", names)
        await engine.dispose()

    asyncio.run(go())
    until("order 3", lambda: sent(server, b"order 3"))


def test_the_example_of_domain_events(server: Server, new_place: Callable[[str], Place]) -> None:
    place = new_place("postgresql")
    names = {**prepared(server, place), "Order": Order}

    async def go() -> None:
        engine = create_async_engine(place.async_url)
        async with escrowmq.aio.Producer(server.nameserver, group="async-events") as producer:
            outbox = AsyncOutbox(producer, engine)
            await outbox.create_tables()
            run("object_session(order)", {**names, "outbox": outbox})
            async with AsyncSession(engine) as session:
                session.add(Order(id="o-9"))
                await session.commit()
        await engine.dispose()

    try:
        asyncio.run(go())
    finally:
        # What `run` has listened with is in nobody's hands: all listeners of this test's class go.
        Order.__mapper__.dispatch.after_insert.clear()
    until("the event", lambda: sent(server, b"o-9"))


def test_the_example_of_django(server: Server, using: str) -> None:
    connections["default"] = connections[using].copy("default")  # for this thread
    with escrowmq.Producer(server.nameserver, group="django-orders") as producer:
        run("transaction.atomic():", {"producer": producer, "Order": DjangoOrder})
        until("order 4", lambda: sent(server, b"order 4"))
    connections["default"].close()
    del connections["default"]


def test_the_example_for_users_of_celery(server: Server, using: str) -> None:
    page = PAGE.with_name("coming-from-celery.md").read_text()
    (text,) = [
        one for one in re.findall(r"```python\n(.*?)```", page, re.DOTALL) if "atomic" in one
    ]
    connections["default"] = connections[using].copy("default")  # for this thread
    names: dict[str, Any] = {"escrowmq": escrowmq, "nameserver": server.nameserver}
    before = len(delivered(server, "paid"))
    try:
        exec(compile(text, str(PAGE), "exec"), {**names, "Order": DjangoOrder}, names)
        names["producer"].close()
        until("order 1", lambda: len(delivered(server, "paid")) == before + 1)
    finally:
        connections["default"].close()
        del connections["default"]


def test_the_example_without_an_orm(server: Server, new_place: Callable[[str], Place]) -> None:
    place = new_place("postgresql")
    names = prepared(server, place)
    with escrowmq.Producer(server.nameserver, group="plain-orders") as producer:
        from escrowmq.integrations.dbapi import Outbox
        from escrowmq.integrations.dbapi.addresses import make_connector

        Outbox(producer, make_connector(place.address)).create_tables()
        run("psycopg.connect(address)", {**names, "producer": producer, "address": place.address})
        until("order 5", lambda: sent(server, b"order 5"))

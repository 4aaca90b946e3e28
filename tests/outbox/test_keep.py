"""`when_away="keep"`: a broker that cannot be reached does not stop the database."""

from __future__ import annotations

import asyncio
import contextlib
import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from django.db import transaction
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session

import escrowmq
from escrowmq.codec.record import decode_records
from escrowmq.errors import EscrowMQError, TooManyKept, UsageError
from escrowmq.integrations import dbapi
from escrowmq.integrations.dbapi.addresses import make_connector
from escrowmq.integrations.outbox.circuit import CircuitState
from escrowmq.integrations.sqlalchemy import AsyncOutbox, Outbox
from tests.interop import wire
from tests.interop.drivers import unique
from tests.interop.process import Process, until
from tests.interop.servers import EscrowServer

from .conftest import Place
from .test_check_from_db import address_of
from .test_django import add, using
from .test_sqlalchemy import Base, Order, orders

__all__ = ["using"]

TIMEOUT_MS = 2_000


class Cluster:
    """A name server that stays, and a broker that comes and goes."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._names = EscrowServer(folder / "names", verb="nameserver")
        self.nameserver = self._names.nameserver
        self.broker: EscrowServer | None = None
        self.topic = unique("T")
        self.start()
        with escrowmq.Admin(self.nameserver) as admin:
            admin.topics.create(self.topic, queues=1)

    def start(self) -> None:
        """Start the broker, on its store."""
        self.broker = EscrowServer(
            self._folder / "broker",
            verb="broker",
            nameserver=self.nameserver,
            transactionTimeOut=1_000,
            transactionCheckInterval=1_000,
        )

    def kill(self) -> None:
        """kill -9 for the broker."""
        assert self.broker is not None
        self.broker.kill()
        self.broker = None

    def close(self) -> None:
        """End all."""
        if self.broker is not None:
            self.broker.kill()
        self._names.kill()

    def bodies(self) -> list[str]:
        """What is delivered, in order."""
        assert self.broker is not None
        fields = {
            "consumerGroup": "reader", "topic": self.topic, "queueId": "0", "queueOffset": "0",
            "maxMsgNums": "32", "sysFlag": "4", "commitOffset": "0", "suspendTimeoutMillis": "0",
            "subscription": "*", "subVersion": "0", "expressionType": "TAG",
        }  # fmt: skip
        found: list[str] = []
        while True:
            fields["queueOffset"] = str(len(found))
            reply = wire.ask(self.broker.address, 11, fields)
            if reply.code != 0:
                return found
            found += [stored.body.decode() for stored in decode_records(reply.body)]

    def wait(self, *expected: str) -> None:
        """Until these are delivered, and no others."""
        until(f"{len(expected)} messages", lambda: len(self.bodies()) >= len(expected))
        assert self.bodies() == list(expected)


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    found = Cluster(tmp_path)
    yield found
    found.close()


@pytest.fixture
def producer(cluster: Cluster, group: str) -> Iterator[escrowmq.Producer]:
    with escrowmq.Producer(cluster.nameserver, group=group, timeout_ms=TIMEOUT_MS) as made:
        yield made


class Shop:
    """Takes orders with plain connections."""

    def __init__(self, producer: escrowmq.Producer, place: Place, topic: str, **more: Any) -> None:
        self._connect = make_connector(address_of(place))
        self._topic = topic
        self.outbox = dbapi.Outbox(producer, self._connect, when_away="keep", **more)
        self.outbox.create_tables()

    def prepare(self) -> None:
        """Make the table."""
        connection = self._connect()
        connection.cursor().execute("create table orders (id varchar(40) primary key)")
        connection.commit()
        connection.close()

    def take(self, *numbers: str) -> float:
        """One transaction with so many orders and messages; how long it took."""
        with contextlib.closing(self._connect()) as connection:
            begun = time.monotonic()
            with self.outbox.transaction(connection) as tx:
                for number in numbers:
                    connection.cursor().execute(f"insert into orders (id) values ('{number}')")
                    tx.send(self._topic, number.encode(), keys=[number])
            return time.monotonic() - begun

    def orders(self) -> list[str]:
        """What was committed."""
        connection = self._connect()
        cursor = connection.cursor()
        cursor.execute("select id from orders order by id")
        found = [row[0] for row in cursor.fetchall()]
        connection.close()
        return found

    @property
    def state(self) -> CircuitState:
        """Of the circuit."""
        circuit = self.outbox._handover._circuit
        assert circuit is not None
        return circuit.state


@pytest.fixture
def shop(cluster: Cluster, producer: escrowmq.Producer, place: Place) -> Iterator[Shop]:
    found = Shop(producer, place, cluster.topic)
    found.prepare()
    yield found
    found.outbox.close()


def test_orders_are_taken_while_the_broker_is_gone_and_told_in_order_when_it_is_back(
    cluster: Cluster, shop: Shop
) -> None:
    shop.take("1")
    cluster.wait("1")
    cluster.kill()
    shop.take("2", "3")  # finds that out
    times = [shop.take(str(number)) for number in range(4, 9)]
    assert max(times) < TIMEOUT_MS / 1000 / 2  # and the others do not wait for it
    assert shop.outbox.kept().count == 7
    assert shop.outbox.kept().oldest_ms >= 0
    cluster.start()
    cluster.wait("1", "2", "3", "4", "5", "6", "7", "8")
    until("nothing is kept", lambda: shop.outbox.kept().count == 0)
    until("the circuit closes", lambda: shop.state is CircuitState.CLOSED)
    shop.take("9")
    cluster.wait("1", "2", "3", "4", "5", "6", "7", "8", "9")
    assert shop.orders() == [str(number) for number in range(1, 10)]


def test_what_is_rolled_back_keeps_nothing(cluster: Cluster, shop: Shop) -> None:
    cluster.kill()
    shop.take("1")
    connection = shop._connect()
    with pytest.raises(KeyError), shop.outbox.transaction(connection) as tx:
        tx.send(cluster.topic, b"never")
        with tx.savepoint():
            tx.send(cluster.topic, b"nor this")
        raise KeyError
    with shop.outbox.transaction(connection) as tx:
        tx.send(cluster.topic, b"2")
        with pytest.raises(KeyError), tx.savepoint():
            tx.send(cluster.topic, b"never")
            raise KeyError
    connection.close()
    assert shop.outbox.kept().count == 2
    cluster.start()
    cluster.wait("1", "2")


def test_what_a_process_left_behind_the_next_one_hands_over(
    cluster: Cluster, shop: Shop, group: str, place: Place
) -> None:
    cluster.kill()
    shop.take("1")
    shop.outbox.close()  # as if it had died: nobody relays any more
    cluster.start()
    with escrowmq.Producer(cluster.nameserver, group=group, timeout_ms=TIMEOUT_MS) as producer:
        other = Shop(producer, place, cluster.topic)
        assert other.state is CircuitState.DRAINING  # so that its own messages overtake none
        other.take("2")
        cluster.wait("1", "2")
        other.outbox.close()


def test_so_much_is_kept_and_no_more(
    cluster: Cluster, producer: escrowmq.Producer, place: Place
) -> None:
    shop = Shop(producer, place, cluster.topic, kept_max=2)
    shop.prepare()
    cluster.kill()
    shop.take("1", "2")
    with pytest.raises(TooManyKept, match="2 are allowed"):
        shop.take("3")
    assert shop.orders() == ["1", "2"]
    cluster.start()
    cluster.wait("1", "2")

    def has_room() -> bool:
        try:
            shop.take("3")
        except TooManyKept:
            return False  # its rows are gone, and the relay has not said so yet
        return True

    until("room", has_room)
    cluster.wait("1", "2", "3")
    shop.outbox.close()


def test_many_hand_over_at_once_and_nothing_goes_twice(
    cluster: Cluster, shop: Shop, group: str, place: Place
) -> None:
    cluster.kill()
    for number in range(30):
        shop.take(f"{number:02}")
    shop.outbox.close()
    cluster.start()
    counts: list[int] = []
    errors: list[BaseException] = []
    connect = make_connector(address_of(place))

    def relay() -> None:
        with escrowmq.Producer(cluster.nameserver, group=group, timeout_ms=30_000) as producer:
            outbox = dbapi.Outbox(producer, connect)
            while outbox.kept().count:
                try:
                    counts.append(outbox.hand_over_kept())
                except EscrowMQError as error:  # a lock that another one holds
                    errors.append(error)

    threads = [threading.Thread(target=relay) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert sum(counts) == 30, errors
    cluster.wait(*(f"{number:02}" for number in range(30)))


def test_without_keeping_the_transaction_fails_as_before(
    cluster: Cluster, producer: escrowmq.Producer, place: Place
) -> None:
    connect = make_connector(address_of(place))
    outbox = dbapi.Outbox(producer, connect)
    outbox.create_tables()
    cluster.kill()
    connection = connect()
    with pytest.raises(EscrowMQError), outbox.transaction(connection) as tx:
        tx.send(cluster.topic, b"never")
    connection.close()
    assert outbox.kept().count == 0
    with pytest.raises(UsageError, match=r"'refuse' .the transaction fails"):
        dbapi.Outbox(producer, connect, when_away="store")


def test_sessions_keep_too(cluster: Cluster, producer: escrowmq.Producer, place: Place) -> None:
    engine = sa.create_engine(place.url)
    Base.metadata.create_all(engine)
    outbox = Outbox(producer, engine, when_away="keep")
    outbox.create_tables()
    cluster.kill()
    for number in ("1", "2"):
        with Session(engine) as session, outbox.transaction(session) as tx:
            session.add(Order(id=number))
            tx.send(cluster.topic, number.encode())
    assert outbox.kept().count == 2
    assert orders(engine) == ["1", "2"]
    cluster.start()
    cluster.wait("1", "2")
    outbox.close()
    engine.dispose()


def test_sessions_of_asyncio_keep_too(
    cluster: Cluster, group: str, new_place: Callable[[str], Place]
) -> None:
    place = new_place("postgresql")
    plain = sa.create_engine(place.url)
    Base.metadata.create_all(plain)

    async def go() -> None:
        engine = create_async_engine(place.async_url)
        async with escrowmq.aio.Producer(
            cluster.nameserver, group=group, timeout_ms=TIMEOUT_MS
        ) as producer:
            outbox = AsyncOutbox(producer, engine, when_away="keep")
            await outbox.create_tables()
            await asyncio.to_thread(cluster.kill)
            for number in ("1", "2"):
                async with AsyncSession(engine) as session, outbox.transaction(session) as tx:
                    session.add(Order(id=number))
                    await tx.send(cluster.topic, number.encode())
            assert (await outbox.kept()).count == 2
            await asyncio.to_thread(cluster.start)
            await asyncio.to_thread(cluster.wait, "1", "2")
            outbox.close()
        await engine.dispose()

    asyncio.run(go())
    assert orders(plain) == ["1", "2"]
    plain.dispose()


def test_atomic_blocks_of_django_keep_too(
    cluster: Cluster, producer: escrowmq.Producer, using: str
) -> None:
    from escrowmq.integrations.django import Outbox as DjangoOutbox  # wants Django's settings

    outbox = DjangoOutbox(producer, using, when_away="keep")
    cluster.kill()
    for number in ("1", "2"):
        with transaction.atomic(using):
            add(number)
            outbox.send(cluster.topic, number.encode())
    assert outbox.kept().count == 2
    cluster.start()
    cluster.wait("1", "2")
    outbox.close()


def test_connections_that_are_awaited_keep_too(
    cluster: Cluster, group: str, new_place: Callable[[str], Place]
) -> None:
    import asyncpg

    place = new_place("postgresql")

    async def go() -> None:
        async with escrowmq.aio.Producer(
            cluster.nameserver, group=group, timeout_ms=TIMEOUT_MS
        ) as producer:
            outbox = dbapi.AsyncOutbox(
                producer, lambda: asyncpg.connect(place.address), when_away="keep"
            )
            await outbox.create_tables()
            await asyncio.to_thread(cluster.kill)
            connection = await asyncpg.connect(place.address)
            for number in ("1", "2"):
                async with outbox.transaction(connection) as tx:
                    await tx.send(cluster.topic, number.encode())
            await connection.close()
            assert (await outbox.kept()).count == 2
            await asyncio.to_thread(cluster.start)
            await asyncio.to_thread(cluster.wait, "1", "2")
            outbox.close()

    asyncio.run(go())


def status(place: Place, *options: str) -> str:
    command = [sys.executable, "-m", "escrowmq", "outbox", "status", address_of(place), *options]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_command_line_says_what_waits_and_check_from_db_hands_it_over(
    cluster: Cluster, shop: Shop, group: str, place: Place, tmp_path: Path
) -> None:
    assert json.loads(status(place, "--json")) == {"kept": 0, "bytes": 0, "oldestMs": 0}
    cluster.kill()
    shop.take("1", "22")
    shop.outbox.close()
    found = json.loads(status(place, "--json"))
    assert (found["kept"], found["bytes"]) == (2, 3)
    assert status(place).splitlines()[0].split("\t") == ["KEPT", "BYTES", "OLDEST"]
    assert status(place).splitlines()[1].split("\t")[:2] == ["2", "3"]
    cluster.start()
    command = [sys.executable, "-m", "escrowmq", "check-from-db", "--group", group]
    process = Process(
        [*command, "-n", cluster.nameserver, address_of(place)], folder=tmp_path, name="check"
    )
    process.wait_line("escrowmq ready group=", within_s=30)
    cluster.wait("1", "22")
    assert process.stop() == 0

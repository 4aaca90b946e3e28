"""An interrupt at every bytecode of each plain call, a cancellation at every await of each
awaited one. Orders are rows of a real database: an order without event, or an event without order,
is what must never be."""

from __future__ import annotations

import asyncio
import collections
import itertools
import sqlite3
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

import escrowmq
from escrowmq import aio, errors
from escrowmq.client import portal
from tests.compensation import services
from tests.interop.drivers import unique
from tests.interop.process import until
from tests.interop.servers import Server

from .interrupts import cancelled_everywhere, interrupted_at, interrupted_everywhere

pytestmark = [
    pytest.mark.ours_alone,
    # What is interrupted before it is awaited, or in a finalizer, says so.
    pytest.mark.filterwarnings("ignore:coroutine .* was never awaited:RuntimeWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]
DEADLINE_S = 60.0


class Shop:
    """Orders in a database, and the check that looks for them there."""

    def __init__(self, connect: Callable[[], Any]) -> None:
        self.connect = connect
        self.db = connect()
        self.db.execute("create table orders (id varchar(64) primary key)")
        self.db.commit()
        self._keys = map(str, itertools.count())

    def new_key(self) -> str:
        return next(self._keys)

    def insert(self, key: str) -> None:
        self.db.execute(f"insert into orders values ('{key}')")

    def check(self, message: escrowmq.ReceivedMessage) -> escrowmq.Outcome:
        db = self.connect()
        try:
            found = db.execute(f"select id from orders where id = '{message.keys[0]}'").fetchone()
        finally:
            db.close()
        return escrowmq.Outcome.COMMIT if found else escrowmq.Outcome.ROLLBACK

    def orders(self) -> set[str]:
        self.db.rollback()
        return {row[0] for row in self.db.execute("select id from orders").fetchall()}


@pytest.fixture(scope="module")
def postgres(tmp_path_factory: pytest.TempPathFactory) -> Iterator[services.PostgresServer]:
    if services.missing_postgres():
        pytest.skip("PostgreSQL is not on this machine")
    server = services.PostgresServer(tmp_path_factory.mktemp("postgres"))
    yield server
    server.stop()


@pytest.fixture(params=["sqlite", "postgres"])
def shop(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Shop]:
    if request.param == "sqlite":
        path = tmp_path / "shop.db"
        made = Shop(lambda: sqlite3.connect(path, check_same_thread=False, timeout=30))
    else:
        url = request.getfixturevalue("postgres").new_database()
        made = Shop(lambda: psycopg.connect(url))
    yield made
    made.db.close()


def events(server: Server, topic: str, orders: set[str]) -> collections.Counter[str]:
    """Every event that is delivered, once nothing is pending any more. Those of orders are waited
    for; then nothing else may come."""
    found: collections.Counter[str] = collections.Counter()
    with escrowmq.Admin(server.nameserver) as admin:
        until("nothing is pending", lambda: not admin.transactions.count(topic=topic).count)
    with escrowmq.Consumer(server.nameserver, group=unique("CG"), topic=topic) as consumer:
        while got := consumer.receive(1000, timeout_s=20 if orders - found.keys() else 2):
            for message in got:
                found[message.key_list[0]] += 1
                message.ack()
    return found


def test_an_order_interrupted_at_any_bytecode_has_its_event_or_neither_is_there(
    server: Server, topic: str, group: str, shop: Shop
) -> None:
    with escrowmq.Producer(
        server.nameserver, group=group, check=shop.check, topics=[topic], checks_running_max=4
    ) as producer:

        def order() -> None:
            shop.db.rollback()
            key = shop.new_key()
            with producer.transaction(topic, b"x", keys=[key]) as tx:
                shop.insert(key)
                tx.database_decides()
                shop.db.commit()

        points = sum(interrupted_everywhere(order, "an order with its event") for _ in range(3))
        orders = shop.orders()
        found = events(server, topic, orders)
    assert points > 40
    assert set(found) == orders
    assert found.total() == len(orders)


@pytest.mark.parametrize("is_committed", [True, False])
def test_a_block_whose_end_is_interrupted_before_it_begins_is_settled_by_the_check(
    server: Server, topic: str, group: str, shop: Shop, is_committed: bool
) -> None:
    """Nothing of ours runs then. The block counts as open until its transaction is gone, and so
    nobody guesses; then the check is asked, and looks at the database."""
    with escrowmq.Producer(
        server.nameserver, group=group, check=shop.check, topics=[topic]
    ) as producer:

        def order() -> None:
            key = shop.new_key()
            with producer.transaction(topic, b"x", keys=[key]) as tx:
                shop.insert(key)
                tx.database_decides()
                if is_committed:
                    shop.db.commit()
                else:
                    shop.db.rollback()

        with pytest.raises(KeyboardInterrupt):
            interrupted_at(order, escrowmq.Transaction.__exit__)
        orders = shop.orders()
        assert len(orders) == is_committed
        assert set(events(server, topic, orders)) == orders


def test_a_producer_whose_end_is_interrupted_before_it_begins_can_be_closed(
    server: Server, topic: str, group: str
) -> None:
    made: list[escrowmq.Producer] = []

    def life() -> None:
        with escrowmq.Producer(server.nameserver, group=group) as producer:
            made.append(producer)

    with pytest.raises(KeyboardInterrupt):
        interrupted_at(life, escrowmq.Producer.__exit__)
    assert made[0].send(topic, b"open still").status is escrowmq.SendStatus.OK
    made[0].close()
    with pytest.raises(errors.ClientClosed):
        made[0].send(topic, b"x")


def test_an_order_cancelled_at_any_await_has_its_event_or_neither_is_there(
    server: Server, topic: str, group: str, shop: Shop
) -> None:
    async def go() -> int:
        async with aio.Producer(
            server.nameserver, group=group, check=shop.check, topics=[topic], checks_running_max=4
        ) as producer:

            async def order() -> None:
                key = shop.new_key()
                async with producer.transaction(topic, b"x", keys=[key]) as tx:
                    await finished(shop.insert, key)
                    tx.database_decides()
                    await finished(shop.db.commit)

            async def ordered() -> None:
                await finished(shop.db.rollback)
                await order()

            points = 0
            for _ in range(10):
                points += await cancelled_everywhere(ordered, "an order with its event")
            found.update(await asyncio.to_thread(shop.orders))
            delivered.update(await asyncio.to_thread(events, server, topic, found))
        return points

    found: set[str] = set()
    delivered: collections.Counter[str] = collections.Counter()
    assert asyncio.run(asyncio.wait_for(go(), DEADLINE_S)) >= 50
    assert set(delivered) == found
    assert delivered.total() == len(found)


async def finished(work: Callable[..., object], *given: object) -> None:
    """Await a call on a thread. It runs to its end, whoever is cancelled: so does a database."""
    task = asyncio.ensure_future(asyncio.to_thread(work, *given))
    try:
        await asyncio.shield(task)
    except asyncio.CancelledError:
        await task
        raise


# -- all other calls -------------------------------------------------------------------------------


def answers(work: Callable[[], object]) -> bool:
    """Whether a call from another thread comes back."""
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    thread.join(DEADLINE_S)
    return not thread.is_alive()


def test_every_plain_call_can_be_interrupted_anywhere_and_the_next_one_is_answered(
    server: Server, topic: str, group: str
) -> None:
    counts: dict[str, int] = {}
    with (
        escrowmq.Producer(server.nameserver, group=group) as producer,
        escrowmq.Admin(server.nameserver) as admin,
        escrowmq.Consumer(server.nameserver, group=unique("CG"), topic=topic) as consumer,
    ):
        until("queues are shared out", lambda: len(consumer.queues()) == 4)
        queue = consumer.queues()[0]

        def pause() -> None:
            consumer.pause()
            consumer.resume()

        def subscribe() -> None:
            consumer.subscribe(topic + "2")
            consumer.unsubscribe(topic + "2")

        calls: dict[str, Callable[[], object]] = {
            "send": lambda: producer.send(topic, b"x"),
            "send_many": lambda: producer.send_many([escrowmq.Message(topic, b"x")]),
            "send_one_way": lambda: producer.send_one_way(topic, b"x"),
            "transaction": lambda: producer.transaction(topic, b"x").begin().settle(
                escrowmq.Outcome.ROLLBACK
            ),
            "topics": admin.topics.names,
            "pending": lambda: [*admin.transactions.pending()],
            "queues": consumer.queues,
            "position": lambda: consumer.position(queue),
            "committed": lambda: consumer.committed(queue),
            "commit": consumer.commit,
            "pause": pause,
            "subscribe": subscribe,
        }  # fmt: skip
        for name, call in calls.items():
            counts[name] = interrupted_everywhere(call, name)
            assert answers(lambda: producer.send(topic, b"x")), name
    assert min(counts.values()) > 5, counts


def test_no_message_is_lost_to_an_interrupt_of_whoever_receives_it(
    server: Server, topic: str, group: str
) -> None:
    seen: list[bytes] = []
    sent = [b"%d" % number for number in range(3_000)]
    with escrowmq.Producer(server.nameserver, group=group) as producer:
        producer.send_many([escrowmq.Message(topic, body) for body in sent])
    name = unique("CG")
    with escrowmq.Consumer(server.nameserver, group=name, topic=topic) as consumer:

        def iterate() -> None:
            for message in itertools.islice(consumer, 2):
                seen.append(message.body)  # noqa: PERF401 - a list that is made at once sees none

        def receive() -> None:
            for message in consumer.receive(2, timeout_s=10):
                message.ack()
                seen.append(message.body)

        points = interrupted_everywhere(iterate, "iteration")
        points += interrupted_everywhere(receive, "receive")
    assert points > 20
    with escrowmq.Consumer(server.nameserver, group=name, topic=topic) as consumer:
        while len({*seen}) < len(sent):
            got = consumer.receive(100, timeout_s=20)
            assert got, f"{len({*sent} - {*seen})} are lost"
            for message in got:
                seen.append(message.body)
                message.ack()


@pytest.fixture
def own_shares() -> Iterator[None]:
    """A client that is interrupted while it is made cannot give its share in the process's loop
    back: that loop's thread goes on till the process ends. Other tests get one of their own."""
    yield
    portal._forget_parents_portal()


def test_every_client_can_be_interrupted_while_it_opens_and_closes(
    server: Server, topic: str, group: str, own_shares: None
) -> None:
    def life(make: Callable[[], Any]) -> Callable[[], None]:
        def run() -> None:
            made.clear()
            made.append(make())
            made[0].close()

        return run

    made: list[Any] = []
    clients: dict[str, Callable[[], Any]] = {
        "Producer": lambda: escrowmq.Producer(server.nameserver, group=group),
        "Consumer": lambda: escrowmq.Consumer(server.nameserver, group=unique("CG"), topic=topic),
        "Admin": lambda: escrowmq.Admin(server.nameserver),
    }
    for name, make in clients.items():
        assert interrupted_everywhere(life(make), f"{name}: open and close") > 20
        made[0].close()
        with escrowmq.Producer(server.nameserver, group=group) as producer:
            assert answers(lambda producer=producer: producer.send(topic, b"x"))  # type: ignore[misc]


class Reader:
    """Receives what is sent, while whatever it does is cancelled."""

    def __init__(self, producer: aio.Producer, topic: str, sent: list[bytes]) -> None:
        self.sent = sent
        self.seen: set[bytes] = set()
        self.posts: list[asyncio.Future[None]] = []
        self._producer = producer
        self._topic = topic

    async def take(self, consumer: aio.Consumer, count_max: int = 100) -> int:
        got = await consumer.receive(count_max, timeout_s=20)
        for message in got:
            await message.ack()
            self.seen.add(message.body)
        return len(got)

    async def drain(self, consumer: aio.Consumer) -> None:
        while lost := {*self.sent} - self.seen:
            assert await self.take(consumer), f"{len(lost)} are lost"

    async def _awaited(self, consumer: aio.Consumer) -> None:
        """Nothing is there any more, and something is on its way."""
        await self.drain(consumer)
        self.posts.append(asyncio.ensure_future(self._post(b"later %d" % len(self.posts))))

    async def _post(self, body: bytes) -> None:
        await self._producer.send(self._topic, body)
        self.sent.append(body)

    async def receive(self, consumer: aio.Consumer) -> None:
        await self._awaited(consumer)
        await self.take(consumer, 2)

    async def iterate(self, consumer: aio.Consumer) -> None:
        await self._awaited(consumer)
        async for message in consumer:
            self.seen.add(message.body)
            await message.ack()
            break


def test_every_awaited_call_can_be_cancelled_anywhere(
    server: Server, topic: str, group: str
) -> None:
    async def life() -> None:
        async with aio.Producer(server.nameserver, group=group):
            pass

    async def go() -> None:
        async with (
            aio.Producer(server.nameserver, group=group) as producer,
            aio.Admin(server.nameserver) as admin,
        ):
            reader = Reader(producer, topic, [b"%d" % number for number in range(300)])
            await producer.send_many([aio.Message(topic, body) for body in reader.sent])
            name = unique("CG")
            async with aio.Consumer(server.nameserver, group=name, topic=topic) as consumer:
                calls: dict[str, Callable[[], Any]] = {
                    "send": lambda: producer.send(topic, b"x"),
                    "send_many": lambda: producer.send_many([aio.Message(topic, b"x")]),
                    "topics": admin.topics.names,
                    "commit": consumer.commit,
                    "receive": lambda: reader.receive(consumer),
                    "iteration": lambda: reader.iterate(consumer),
                    "Producer: open and close": life,
                }
                for call, work in calls.items():
                    assert sum([await cancelled_everywhere(work, call) for _ in range(5)]), call
            await asyncio.gather(*reader.posts)
            async with aio.Consumer(server.nameserver, group=name, topic=topic) as consumer:
                await reader.drain(consumer)
            tasks = {task for task in asyncio.all_tasks() if task is not asyncio.current_task()}
            assert len(tasks) < 20

    asyncio.run(asyncio.wait_for(go(), DEADLINE_S))

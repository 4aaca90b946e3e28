"""What a message that commits with a database costs: nothing sent, our outbox, a polling outbox in
thirty lines, and faststream-outbox, side by side on one PostgreSQL and one broker.

    python benchmarks/outbox.py [--transactions 1000] [--seconds 5] [--threads 8]

Needs PostgreSQL. Added latency is a commit's, from its call to its return, of one thread; delivered
counts from the same call to the handler of a consumer. Of the transactions a second of several
threads, those count as delivered whose message the consumer had at the end of that time. Statements
are those of the service and of the relay together, and so is the WAL. The relay looks every 50 ms
and sends 100 messages at a time; that it looks is all that it does while idle. faststream-outbox is
as it comes, woken by NOTIFY, with eight workers, and relays to FastStream's broker of ours. It is
asyncio alone, so that there are nothing and our outbox on asyncpg as well, each on a loop of its
own.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import platform
import statistics
import sys
import tempfile
import threading
import time
import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

import sqlalchemy as sa  # noqa: E402 - the path is set above
from faststream import Header  # noqa: E402
from faststream_outbox import OutboxBroker, make_outbox_table  # noqa: E402
from sqlalchemy.ext.asyncio import (  # noqa: E402
    AsyncSession,
    async_sessionmaker,
    create_async_engine,
)
from sqlalchemy.orm import Session  # noqa: E402
from tests.compensation.services import PostgresServer  # noqa: E402
from tests.interop.servers import Server, new_topic  # noqa: E402

import escrowmq  # noqa: E402
import escrowmq.aio  # noqa: E402
from escrowmq.integrations.faststream import EscrowMQBroker, EscrowMQResponse  # noqa: E402
from escrowmq.integrations.sqlalchemy import AsyncOutbox, Outbox  # noqa: E402

T = TypeVar("T")

POLL_S = 0.05
RELAYED_MAX = 100
IDLE_S = 3.0
BODY = b"x" * 200
DELIVERED_S = 60.0

META = sa.MetaData()
ORDERS = sa.Table("orders", META, sa.Column("id", sa.Text, primary_key=True))
WAITING = sa.Table(
    "waiting",
    META,
    sa.Column("id", sa.BigInteger, sa.Identity(), primary_key=True),
    sa.Column("key", sa.Text),
    sa.Column("body", sa.LargeBinary),
)


class Contender(ABC):
    """One way to send with an order."""

    name = ""

    def __init__(self, engine: sa.Engine, producer: escrowmq.Producer, topic: str) -> None:
        self.engine = engine
        self.producer = producer
        self.topic = topic

    def order(self, key: str) -> tuple[float, float]:
        """Place one; when its commit was called, and when it returned."""
        with Session(self.engine) as session:
            session.execute(ORDERS.insert().values(id=key))
            self.send(session, key)
            began = time.perf_counter()
            session.commit()
            return began, time.perf_counter()

    @abstractmethod
    def send(self, session: Session, key: str) -> None:
        """Add what is to be sent."""

    @contextmanager
    def relay(self) -> Iterator[None]:
        """What runs beside the service."""
        yield

    def close(self) -> None:  # noqa: B027 - most have nothing to end
        """End."""


class Nothing(Contender):
    """An order without a message."""

    name = "nothing sent"

    def send(self, session: Session, key: str) -> None:
        """Nothing."""


class Ours(Contender):
    """escrowmq.integrations.sqlalchemy.Outbox."""

    name = "EscrowMQ's outbox"

    def __init__(self, engine: sa.Engine, producer: escrowmq.Producer, topic: str) -> None:
        super().__init__(engine, producer, topic)
        self._outbox = Outbox(producer, engine)
        self._outbox.create_tables()

    def send(self, session: Session, key: str) -> None:
        """The outbox hooks into the commit."""
        self._outbox.send(session, self.topic, BODY, keys=[key])


class Polling(Contender):
    """A table, and a thread that looks into it."""

    name = "polling outbox"

    def send(self, session: Session, key: str) -> None:
        """One more row."""
        session.execute(WAITING.insert().values(key=key, body=BODY))

    @contextmanager
    def relay(self) -> Iterator[None]:
        """The thread."""
        stop = threading.Event()
        thread = threading.Thread(target=self._run, args=(stop,))
        thread.start()
        try:
            yield
        finally:
            stop.set()
            thread.join()

    def _run(self, stop: threading.Event) -> None:
        while not stop.is_set():
            if not self._move():
                stop.wait(POLL_S)

    def _move(self) -> int:
        oldest = sa.select(WAITING).order_by(WAITING.c.id).limit(RELAYED_MAX)
        with self.engine.begin() as connection:
            rows = connection.execute(oldest.with_for_update(skip_locked=True)).all()
            if rows:
                self.producer.send_many(
                    [escrowmq.Message(self.topic, row.body, keys=[row.key]) for row in rows]
                )
                connection.execute(WAITING.delete().where(WAITING.c.id.in_(r.id for r in rows)))
        return len(rows)


class Awaited(Contender):
    """One way to send with an order, on an event loop: asyncpg and SQLAlchemy's AsyncSession."""

    def __init__(self, engine: sa.Engine, producer: escrowmq.Producer, topic: str) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self.awaited = create_async_engine(
            engine.url.set(drivername="postgresql+asyncpg"), pool_size=64
        )
        self._sessions = async_sessionmaker(self.awaited)
        super().__init__(self.awaited.sync_engine, producer, topic)
        self.on_loop(self.open())

    def on_loop(self, work: Coroutine[Any, Any, T]) -> T:
        """Run it there."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    def order(self, key: str) -> tuple[float, float]:
        """The same, awaited; the times are taken on the loop."""
        return self.on_loop(self._order(key))

    async def _order(self, key: str) -> tuple[float, float]:
        async with self._sessions() as session:
            await session.execute(ORDERS.insert().values(id=key))
            await self.send_awaited(session, key)
            began = time.perf_counter()
            await session.commit()
            return began, time.perf_counter()

    def send(self, session: Session, key: str) -> None:
        """Not called."""

    def close(self) -> None:
        """End the loop."""
        self.on_loop(self.close_awaited())
        self.on_loop(self.awaited.dispose())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def open(self) -> None:
        """Begin."""

    async def close_awaited(self) -> None:
        """End."""

    async def send_awaited(self, session: AsyncSession, key: str) -> None:
        """Add what is to be sent."""


class NothingAwaited(Awaited):
    """An order without a message."""

    name = "nothing sent, asyncpg"


class OursAwaited(Awaited):
    """escrowmq.integrations.sqlalchemy.AsyncOutbox."""

    name = "EscrowMQ's outbox, asyncpg"

    async def open(self) -> None:
        """A producer of the loop's own."""
        self._producer = escrowmq.aio.Producer(group=f"G{uuid.uuid4().hex}")
        await self._producer.open()
        self._outbox = AsyncOutbox(self._producer, self.awaited)
        await self._outbox.create_tables()

    async def close_awaited(self) -> None:
        """End it."""
        await self._producer.close()

    async def send_awaited(self, session: AsyncSession, key: str) -> None:
        """The outbox hooks into the commit."""
        await self._outbox.send(session, self.topic, BODY, keys=[key])


class FastStreamOutbox(Awaited):
    """faststream-outbox, which relays to our broker of FastStream."""

    name = "faststream-outbox"

    async def open(self) -> None:
        """Its table, and its relay."""
        table = make_outbox_table(sa.MetaData())
        async with self.awaited.begin() as connection:
            await connection.run_sync(table.metadata.create_all)
        self._ours = EscrowMQBroker(group=f"G{uuid.uuid4().hex}", logger=None)
        self._outbox = OutboxBroker(self.awaited, outbox_table=table, logger=None)

        @self._ours.publisher(self.topic)
        @self._outbox.subscriber("paid", max_workers=8, fetch_batch_size=RELAYED_MAX)
        async def relay(body: bytes, key: str = Header()) -> Any:
            return EscrowMQResponse(body, keys=[key])

        self._relay = relay
        await self._ours.connect()
        await self._outbox.start()

    async def close_awaited(self) -> None:
        """End them."""
        await self._outbox.stop()
        await self._ours.stop()

    async def send_awaited(self, session: AsyncSession, key: str) -> None:
        """One more row."""
        await self._outbox.publish(BODY, queue="paid", session=session, headers={"key": key})


class Counted:
    """Statements of an engine."""

    def __init__(self, engine: sa.Engine) -> None:
        self.count = 0
        sa.event.listen(engine, "before_cursor_execute", self._note)

    def _note(self, *_given: Any) -> None:
        self.count += 1


class Mailer:
    """When each message came."""

    def __init__(self, nameserver: str, topic: str) -> None:
        self.came: dict[str, float] = {}
        self._consumer = escrowmq.Consumer(
            nameserver, group=f"mailer-{uuid.uuid4().hex}", topic=topic, handler=self._note
        )

    def _note(self, message: escrowmq.Delivery) -> None:
        self.came.setdefault(message.key_list[0], time.perf_counter())

    def wait(self, keys: set[str]) -> None:
        """Until all of them are there."""
        wait_until(lambda: keys <= self.came.keys())

    def close(self) -> None:
        """Stop."""
        self._consumer.close()


def wait_until(is_so: Callable[[], bool]) -> None:
    """Look until something is so."""
    deadline = time.monotonic() + DELIVERED_S
    while not is_so():
        if time.monotonic() > deadline:
            raise SystemExit(f"not all messages came within {DELIVERED_S:.0f} s")
        time.sleep(0.01)


def wal(engine: sa.Engine) -> int:
    """Bytes of WAL so far."""
    with engine.connect() as connection:
        found: int = connection.scalar(
            sa.text("select pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0')::bigint")
        )
        return found


def measure(each: Contender, mailer: Mailer | None, given: argparse.Namespace) -> dict[str, float]:
    """The figures of one contender."""
    counted = Counted(each.engine)
    watch = sa.create_engine(each.engine.url.set(drivername="postgresql+psycopg"))
    with each.relay():
        for _ in range(50):
            each.order(uuid.uuid4().hex)
        time.sleep(0.5)
        before, wal_before = counted.count, wal(watch)
        keys = [uuid.uuid4().hex for _ in range(given.transactions)]
        times = {key: each.order(key) for key in keys}
        if mailer is not None:
            mailer.wait(set(keys))
        time.sleep(2 * POLL_S)
        statements, wal_size = counted.count - before, wal(watch) - wal_before
        before = counted.count
        time.sleep(IDLE_S)
        idle = (counted.count - before) / IDLE_S
        rate, delivered = throughput(each, mailer, given)
    watch.dispose()
    commits = [(end - began) * 1000 for began, end in times.values()]
    found = {
        "commit ms p50": percentile(commits, 50),
        "p99": percentile(commits, 99),
        "statements": statements / given.transactions,
        "WAL bytes": wal_size / given.transactions,
        "idle q/s": idle,
        "tx/s": rate,
    }
    if mailer is not None:
        found["delivered/s"] = delivered
        ways = [(mailer.came[key] - began) * 1000 for key, (began, _) in times.items()]
        found |= {"delivered ms p50": percentile(ways, 50), "d p99": percentile(ways, 99)}
    return found


def throughput(
    each: Contender, mailer: Mailer | None, given: argparse.Namespace
) -> tuple[float, float]:
    """Transactions a second of several threads, and how many messages were delivered meanwhile."""
    end = 0.0
    came = mailer.came if mailer is not None else {}

    def work(_: int) -> int:
        count = 0
        while time.monotonic() < end:
            each.order(uuid.uuid4().hex)
            count += 1
        return count

    with ThreadPoolExecutor(given.threads) as pool:
        # Connections are opened first.
        warm = [uuid.uuid4().hex for _ in range(4 * given.threads)]
        list(pool.map(each.order, warm))
        if mailer is not None:
            mailer.wait(set(warm))
        before, end = len(came), time.monotonic() + given.seconds
        placed = sum(pool.map(work, range(given.threads)))
        return placed / given.seconds, (len(came) - before) / given.seconds


def percentile(values: list[float], share: int) -> float:
    """That of some values."""
    return statistics.quantiles(values, n=100)[share - 1]


KINDS = (Nothing, Polling, Ours, NothingAwaited, FastStreamOutbox, OursAwaited)

COLUMNS = (
    "commit ms p50", "p99", "statements", "WAL bytes", "idle q/s", "delivered ms p50", "d p99",
    "tx/s", "delivered/s",
)  # fmt: skip


def show(rows: dict[str, dict[str, float]]) -> None:
    """The table."""
    print(f"| {platform.machine()}, Python {platform.python_version()} | {' | '.join(COLUMNS)} |")
    print(f"|---|{'---:|' * len(COLUMNS)}")
    for name, found in rows.items():
        cells = (f"{found[c]:,.1f}" if c in found else "" for c in COLUMNS)
        print(f"| {name} | {' | '.join(cells)} |")


def main() -> None:
    """Measure one after the other."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--transactions", type=int, default=1_000)
    parser.add_argument("--seconds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=8)
    given = parser.parse_args()
    rows: dict[str, dict[str, float]] = {}
    with tempfile.TemporaryDirectory() as folder:
        postgres = PostgresServer(Path(folder) / "postgres", is_durable=True)
        server = Server("escrow", Path(folder) / "broker", {}).start()
        os.environ["NAMESRV_ADDR"] = server.nameserver
        try:
            for kind in KINDS:
                rows[kind.name] = run(kind, postgres, server, given)
        finally:
            server.kill()
            postgres.stop()
    show(rows)


def run(
    kind: type[Contender], postgres: PostgresServer, server: Server, given: argparse.Namespace
) -> dict[str, float]:
    """One contender, with a database, a topic and a producer of its own."""
    address = postgres.new_database().replace("postgresql", "postgresql+psycopg", 1)
    engine = sa.create_engine(address, pool_size=given.threads + 2)
    META.create_all(engine)
    topic = new_topic(server, f"T{uuid.uuid4().hex}", queues=4)
    with escrowmq.Producer(server.nameserver, group=f"G{uuid.uuid4().hex}") as producer:
        contender = kind(engine, producer, topic)
        mailer = None if kind in (Nothing, NothingAwaited) else Mailer(server.nameserver, topic)
        try:
            return measure(contender, mailer, given)
        finally:
            if mailer is not None:
                mailer.close()
            contender.close()
            engine.dispose()


if __name__ == "__main__":
    main()

"""The broker of a test, as tests see it."""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
import threading
from collections.abc import Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any, Final, Self, Unpack

from escrowmq.client.blocking.face import asyncio_client_of, release_killed_client
from escrowmq.client.core.message import Message, ReceivedMessage
from escrowmq.client.ends_in_background import wait_for_blocking_ends
from escrowmq.client.producer_settings import MessageFields, make_message
from escrowmq.errors import UsageError
from escrowmq.testing.kit.accounts import Account
from escrowmq.testing.kit.inspection import Found
from escrowmq.testing.kit.thread import LoopThread
from escrowmq.testing.kit.world import KitCluster

_PATIENCE_S: Final = 5.0


class AioBroker:
    """The blocking methods of `Broker` as coroutines. `Broker.aio` is an object of this class."""

    def __init__(self, world: KitCluster, thread: LoopThread) -> None:
        self._world = world
        self._thread = thread

    async def advance(self, span: dt.timedelta | None = None, **spans: float) -> None:
        """Advance the broker's time, and wait until everything due has happened."""
        await self._thread.await_from_other_loop(self._world.advance(_span_ms(span, spans)))

    async def check_now(self) -> None:
        """Check every pending transaction, and wait for the producers' answers."""
        await self._thread.await_from_other_loop(self._world.check_now())

    async def settle(self) -> None:
        """Wait until nothing is in flight between the broker and its clients."""
        await self._thread.await_from_other_loop(self._world.settle())

    async def stop(self) -> None:
        """Shut the broker down in good order; the name server keeps running."""
        await self._thread.await_from_other_loop(self._world.stop())

    async def start(self) -> None:
        """Start the broker again with its data, and wait until its clients are connected."""
        await self._thread.await_from_other_loop(self._world.start())

    async def restart(self) -> None:
        """Stop the broker and start it again."""
        await self.stop()
        await self.start()

    async def crash(self) -> None:
        """Kill the broker and start it again; everything written is still there."""
        await self._thread.await_from_other_loop(self._world.crash())
        await self.start()

    async def set_accounts(self, accounts: Sequence[Account]) -> None:
        """Replace the accounts, a second later by the broker's clock."""
        await self._thread.await_from_other_loop(self._world.set_accounts(accounts))

    async def wait_delivered(self, topic: str, count: int = 1) -> Found:
        """Wait until `count` messages are delivered to a topic; return their bodies."""
        return await self._thread.await_from_other_loop(self._world.wait_delivered(topic, count))

    async def wait_consumed(self, group: str) -> None:
        """Wait until a consumer group has handled every message that its consumers can see."""
        await self._thread.await_from_other_loop(self._world.wait_consumed(group))


class Broker:
    """A broker, with its name server, inside this process: no socket, no file, and a clock that
    stands still. Clients of `escrowmq` and `escrowmq.aio` get `nameserver` as their address. Close
    it, or use it with `with`; pytest has it as the fixture `escrowmq_broker`.

    >>> from escrowmq.testing import Broker
    >>> with Broker() as broker:
    ...     with escrowmq.Producer(broker.nameserver, group="orders") as producer:
    ...         sent = producer.send("paid", b"order 1", delay=60)
    ...         broker.advance(minutes=1)
    ...     broker.delivered("paid")
    [b'order 1']

    `settings` are those of broker.conf. With `accounts`, clients need the credentials of one of
    them. `sockets=True` listens on loopback, on free ports, for other processes. Methods that wait
    for clients wait at most `patience_s`; their coroutine versions have the same names in `aio`."""

    def __init__(
        self,
        *,
        settings: Mapping[str, str] | None = None,
        accounts: Sequence[Account] = (),
        sockets: bool = False,
        patience_s: float = _PATIENCE_S,
    ) -> None:
        self._thread = LoopThread("escrowmq-testing")
        self._is_closed = False
        self._endings: set[asyncio.Task[None]] = set()
        try:
            self._world = KitCluster(
                settings or {},
                accounts,
                loop=self._thread.loop,
                has_sockets=sockets,
                patience_s=patience_s,
            )
            self._thread.call(self._world.open())
        except BaseException:
            self._thread.close()
            raise
        self.aio = AioBroker(self._world, self._thread)

    @property
    def nameserver(self) -> str:
        """The name server's address for clients."""
        return self._world.nameserver

    @property
    def now(self) -> dt.datetime:
        """The broker's time."""
        return dt.datetime.fromtimestamp(self._world.clock.now_ms() / 1000, dt.UTC)

    def close(self) -> None:
        """Close the broker. Open clients lose their connections."""
        if not self._is_closed:
            self._is_closed = True
            try:
                self._thread.call(self._world.close())
            finally:
                self._thread.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    # -- time --------------------------------------------------------------------------------

    def advance(self, span: dt.timedelta | None = None, **spans: float) -> None:
        """Advance the time: a timedelta, or `days`, `hours`, `minutes`, `seconds`, `milliseconds`.
        Everything due meanwhile happens in order, and clients answer requests."""
        self._thread.wait_for(self._world.advance(_span_ms(span, spans)), "advance")

    def check_now(self) -> None:
        """Check every pending transaction, and wait for the producers' answers."""
        self._thread.wait_for(self._world.check_now(), "check_now")

    def settle(self) -> None:
        """Wait until nothing is in flight: every byte has been read, every check answered."""
        self._thread.wait_for(self._world.settle(), "settle")

    # -- faults ------------------------------------------------------------------------------

    def lose_next_end(self, count: int = 1) -> None:
        """Lose the ENDs of the next transactions. Their producers get no confirmation."""
        self._thread.run(self._world.lose_ends, count)

    def kill(self, client: Any) -> None:  # noqa: ANN401 - any client of `escrowmq`
        """Act as if a client's process had died: brokers are not informed, its connections are cut,
        and its calls raise ClientClosed. Running handlers of a consumer are not stopped."""
        engine = asyncio_client_of(client)
        instance = getattr(engine, "instance", None)
        if instance is None:
            raise UsageError(f"{client!r} is not a producer, consumer or admin of escrowmq")
        done = threading.Event()

        def crash_client() -> None:
            instance.simulate_crash()
            task = instance.loop.create_task(engine.close())
            self._endings.add(task)
            task.add_done_callback(self._endings.discard)
            done.set()

        try:
            is_here = asyncio.get_running_loop() is instance.loop
        except RuntimeError:
            is_here = False
        if is_here:
            crash_client()
        else:
            instance.loop.call_soon_threadsafe(crash_client)
        if not done.wait(self._world.patience_s):
            raise AssertionError(f"the event loop of {client!r} does not run")
        if not is_here:
            release_killed_client(client)

    def stop(self) -> None:
        """Shut the broker down in good order; the name server keeps running."""
        self._thread.wait_for(self._world.stop(), "stop")

    def start(self) -> None:
        """Start the broker again with its data, and wait until its clients are connected."""
        self._thread.wait_for(self._world.start(), "start")

    def restart(self) -> None:
        """Stop the broker and start it again."""
        self.stop()
        self.start()

    def crash(self) -> None:
        """Kill the broker and start it again. The machine survives: everything written is still
        there."""
        self._thread.wait_for(self._world.crash(), "crash")
        self.start()

    def set_accounts(self, accounts: Sequence[Account]) -> None:
        """Replace the accounts, effective a second later by the broker's clock: connected clients
        lose the rights that their account no longer has. The broker must have been made with
        accounts."""
        self._thread.wait_for(self._world.set_accounts(accounts), "set_accounts")

    @contextlib.contextmanager
    def full_disk(self) -> Iterator[None]:
        """Fill the broker's disk inside the block: it refuses messages."""
        self._thread.run(lambda: self._world.fill_disk(is_full=True))
        try:
            yield
        finally:
            self._thread.run(lambda: self._world.fill_disk(is_full=False))

    @contextlib.contextmanager
    def stalled_disk(self) -> Iterator[None]:
        """Stall the disk inside the block: nothing becomes durable, and requests that wait for the
        disk keep waiting."""
        self._world.disk.stall()
        try:
            yield
        finally:
            self._world.disk.resume()

    # -- what is there -----------------------------------------------------------------------

    def create_topic(self, topic: str, queues: int = 1) -> None:
        """Create a topic; sending to a missing topic creates it, too."""
        self._thread.call(self._world.create_topic(topic, queues))

    def send(
        self, topic: str | Message, body: bytes = b"", **fields: Unpack[MessageFields]
    ) -> None:
        """Send a message as another service would. Not possible if clients need an account."""
        self._thread.call(self._world.send(make_message(topic, body, fields)))

    def delivered(self, topic: str) -> Found:
        """Bodies that consumers of a topic can see, in the order in which they appeared."""
        return self._find_bodies(lambda: self._world.inspection.delivered(topic))

    def pending(self, topic: str | None = None) -> Found:
        """Bodies of open transactions, of one topic or of all topics."""
        return self._find_bodies(lambda: self._world.inspection.pending(topic))

    def parked(self, topic: str | None = None) -> Found:
        """Bodies of open transactions whose group has no connected producer that could be asked."""
        return self._find_bodies(lambda: self._world.inspection.parked(topic))

    def discarded(self, topic: str | None = None) -> Found:
        """Bodies of transactions that the broker has given up."""
        return self._find_bodies(lambda: self._world.inspection.discarded(topic))

    def dead(self, group: str) -> Found:
        """Bodies of a consumer group's dead letters."""
        return self._find_bodies(lambda: self._world.inspection.dead(group))

    def messages(self, topic: str) -> list[ReceivedMessage]:
        """The delivered messages of a topic, with keys, tags and properties."""
        wait_for_blocking_ends()
        return self._thread.run(lambda: self._world.inspection.messages(topic))

    def describe(self) -> str:
        """Describe all contents of the broker as text."""
        return self._thread.run(self._world.describe)

    def wait_delivered(self, topic: str, count: int = 1) -> Found:
        """Wait until `count` messages are delivered to a topic; return their bodies."""
        return self._thread.wait_for(self._world.wait_delivered(topic, count), "wait_delivered")

    def wait_consumed(self, group: str) -> None:
        """Wait until a consumer group has handled every message that its consumers can see. A
        failed message that waits for its retry counts as handled."""
        self._thread.wait_for(self._world.wait_consumed(group), "wait_consumed")

    def _find_bodies(self, find: Any) -> Found:  # noqa: ANN401
        wait_for_blocking_ends()  # outboxes tell of their commits in the background
        return self._thread.run(lambda: self._world.with_description(find()))


def _span_ms(span: dt.timedelta | None, spans: dict[str, float]) -> int:
    whole = (span or dt.timedelta()) + dt.timedelta(**spans)
    if whole < dt.timedelta():
        raise UsageError(f"{whole}: time does not run backwards")
    return whole // dt.timedelta(milliseconds=1)

"""`when_away="keep"`: nobody waits in the database for the relay, whose broker is silent."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import escrowmq
from escrowmq.integrations import dbapi
from escrowmq.integrations.outbox.circuit import CircuitState
from tests.interop.process import until

from .conftest import Place
from .test_keep import TIMEOUT_MS, Cluster, Shop, cluster, producer, shop

__all__ = ["cluster", "producer", "shop"]

WITHIN_S = 60.0


class Sending:
    """The relay's next attempt to send kept messages, which lasts until it is let go."""

    def __init__(self) -> None:
        self.is_waited_for = False
        self._has_begun = threading.Event()
        self._may_go_on = threading.Event()

    def wait(self) -> None:
        """It has begun."""
        assert self._has_begun.wait(WITHIN_S)

    def go_on(self) -> None:
        self._may_go_on.set()

    def hold(self) -> None:
        """What it does meanwhile."""
        self._has_begun.set()
        self.is_waited_for = not self._may_go_on.wait(WITHIN_S)


@contextmanager
def sending(outbox: dbapi.Outbox, *, is_stored: bool = False) -> Iterator[Sending]:
    """An attempt that is held, perhaps after the broker has stored the messages."""
    held = Sending()
    begin = outbox._relaying._begin

    def begin_held(name: str) -> Any:
        sent = begin(name)
        wait = sent.wait_until_stored

        def stored() -> None:
            if is_stored:
                wait()  # which fails until a broker is there
            outbox._relaying._begin = begin
            held.hold()
            if not is_stored:
                wait()

        sent.wait_until_stored = stored  # type: ignore[method-assign]
        return sent

    outbox._relaying._begin = begin_held
    try:
        yield held
    finally:
        held.go_on()
    assert not held.is_waited_for, "somebody waited for a lock of the relay's"


def pending(cluster: Cluster) -> int:
    """Halves without an outcome."""
    with escrowmq.Admin(cluster.nameserver) as admin:
        return admin.transactions.count().count


def test_transactions_commit_while_kept_messages_wait_for_a_broker(
    cluster: Cluster, shop: Shop
) -> None:
    cluster.kill()
    shop.take("1")
    with sending(shop.outbox) as attempt:
        attempt.wait()
        shop.take("2")
        shop.take("3")
        assert shop.outbox.kept().count == 3
    cluster.start()
    cluster.wait("1", "2", "3")


def test_after_a_failure_too(cluster: Cluster, shop: Shop) -> None:
    cluster.kill()
    shop.take("1")
    shop.take("2")
    for number in ("3", "4"):  # at first all of them are tried together, and then one by one
        with sending(shop.outbox) as attempt:
            attempt.wait()
            shop.take(number)
    cluster.start()
    cluster.wait("1", "2", "3", "4")


def test_two_that_send_the_same_messages_deliver_them_once(
    cluster: Cluster, shop: Shop, group: str, place: Place
) -> None:
    cluster.kill()
    shop.take("1", "2")
    with sending(shop.outbox, is_stored=True) as attempt:
        cluster.start()
        attempt.wait()
        with escrowmq.Producer(cluster.nameserver, group=group, timeout_ms=TIMEOUT_MS) as producer:
            other = dbapi.Outbox(producer, shop._connect)
            assert other.hand_over_kept() == 2
            other.close()
        cluster.wait("1", "2")
    until("the circuit closes", lambda: shop.state is CircuitState.CLOSED)
    shop.take("3")
    cluster.wait("1", "2", "3")
    assert pending(cluster) == 0


def test_a_transaction_that_cannot_begin_gives_its_messages_back(
    cluster: Cluster, shop: Shop
) -> None:
    cluster.kill()
    shop.take("1")
    with sending(shop.outbox, is_stored=True) as attempt:
        cluster.start()
        attempt.wait()
        connect = shop.outbox._database._connect  # type: ignore[attr-defined]
        refusals: list[None] = []

        def refuse() -> Any:
            shop.outbox._database._connect = connect  # type: ignore[attr-defined]
            refusals.append(None)
            raise OSError("no more connections")

        shop.outbox._database._connect = refuse  # type: ignore[attr-defined]
        attempt.go_on()
        until("it was refused", lambda: refusals)
        until("its half is rolled back", lambda: pending(cluster) == 0)
    cluster.wait("1")


def test_connections_that_are_awaited_do_not_wait_either(
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
            async with outbox.transaction(connection) as tx:
                await tx.send(cluster.topic, b"1")
            begin = outbox._relaying._begin
            has_begun, may_go_on = asyncio.Event(), asyncio.Event()

            def begin_held(name: str) -> Any:
                sent = begin(name)
                wait = sent.wait_until_stored

                async def stored() -> None:
                    has_begun.set()
                    await may_go_on.wait()
                    await wait()

                sent.wait_until_stored = stored  # type: ignore[method-assign]
                return sent

            outbox._relaying._begin = begin_held
            async with asyncio.timeout(WITHIN_S):
                await has_begun.wait()
                locked = "select position from escrowmq_kept for update nowait"
                assert len(await connection.fetch(locked)) == 1
            await connection.close()
            may_go_on.set()
            await asyncio.to_thread(cluster.start)
            await asyncio.to_thread(cluster.wait, "1")
            outbox.close()

    asyncio.run(go())

"""What a consumer is told of the queues that it gets and gives up, in both faces."""

import asyncio
import threading
from functools import partial
from typing import Any

import escrowmq
from tests.interop.drivers import unique
from tests.interop.process import until
from tests.interop.servers import Server

FAST: dict[str, Any] = {"commit_interval_ms": 200, "rebalance_interval_ms": 1_000}


def ignore(message: escrowmq.Delivery) -> None:
    """Every message is done with."""


def has_all(consumer: escrowmq.Consumer) -> bool:
    """Whether it reads all queues of the topic."""
    return len(consumer.queues()) == 4


def test_a_member_is_told_which_queues_come_and_go(server: Server, topic: str) -> None:
    group = unique("CG")
    told: list[tuple[str, list[escrowmq.MessageQueue]]] = []

    def assigned(queues: list[escrowmq.MessageQueue]) -> None:
        told.append(("assigned", queues))

    def revoked(queues: list[escrowmq.MessageQueue]) -> None:
        told.append(("revoked", queues))

    def held() -> set[escrowmq.MessageQueue]:
        found: set[escrowmq.MessageQueue] = set()
        for kind, queues in told:
            found = found | {*queues} if kind == "assigned" else found - {*queues}
        return found

    shared: dict[str, Any] = {"group": group, "topic": topic, **FAST}
    handler = ignore
    one = escrowmq.Consumer(
        server.nameserver, handler=handler, on_assigned=assigned, on_revoked=revoked, **shared
    )
    with one:
        until("all queues", lambda: len(held()) == 4)
        with escrowmq.Consumer(server.nameserver, handler=ignore, **shared):
            until("half of them", lambda: held() == {*one.queues()} and len(held()) == 2)
        until("all again", lambda: len(held()) == 4)
    assert held() == set()
    assert [kind for kind, _ in told][-1] == "revoked"


def test_coroutines_are_told_of_queues_on_the_loop(server: Server, topic: str) -> None:
    told: list[tuple[str, int]] = []

    async def assigned(queues: list[escrowmq.MessageQueue]) -> None:
        told.append(("assigned", len(queues)))

    async def revoked(queues: list[escrowmq.MessageQueue]) -> None:
        told.append(("revoked", len(queues)))

    async def main() -> None:
        consumer = escrowmq.aio.Consumer(
            server.nameserver,
            group=unique("CG"),
            topic=topic,
            on_assigned=assigned,
            on_revoked=revoked,
            **FAST,
        )
        async with consumer:
            while len(await consumer.queues()) < 4:
                await asyncio.sleep(0.01)

    asyncio.run(main())
    assert sum(count for kind, count in told if kind == "assigned") == 4
    assert sum(count for kind, count in told if kind == "revoked") == 4


def test_a_member_may_be_closed_by_what_is_told_of_queues(server: Server, topic: str) -> None:
    """Its end waited for the callback that waited for it, until that took too long."""
    ended: list[bool] = []
    began = threading.Event()

    def assigned(queues: list[escrowmq.MessageQueue]) -> None:
        began.wait(30)
        consumer.close()
        ended.append(consumer._inner._end.is_set())

    consumer = escrowmq.Consumer(
        server.nameserver, group=unique("CG"), topic=topic, on_assigned=assigned, **FAST
    )
    began.set()
    consumer.wait()
    until("it was told", lambda: bool(ended))
    assert ended == [False], "it ends when the callback has returned"


def test_a_member_that_closes_may_be_closed_by_what_it_tells(server: Server, topic: str) -> None:
    ended: list[bool] = []

    def revoked(queues: list[escrowmq.MessageQueue]) -> None:
        consumer.close()
        ended.append(consumer._inner._end.is_set())

    other = escrowmq.Producer(server.nameserver, group=unique("PG"))
    for _ in range(2):
        consumer = escrowmq.Consumer(
            server.nameserver, group=unique("CG"), topic=topic, on_revoked=revoked, **FAST
        )
        until("it has queues", partial(has_all, consumer))
        consumer.close()
    assert ended == [False, False]
    other.send(topic, b"the loop of all is there")
    other.close()


def test_a_coroutine_that_is_told_of_queues_may_close_the_member(
    server: Server, topic: str
) -> None:
    ended: list[bool] = []

    async def main() -> None:
        async def told(queues: list[escrowmq.MessageQueue]) -> None:
            await consumer.close()
            ended.append(consumer._end.is_set())

        consumer = escrowmq.aio.Consumer(
            server.nameserver, group=unique("CG"), topic=topic,
            on_assigned=told, on_revoked=told, **FAST,
        )  # fmt: skip
        await consumer.open()
        await consumer.wait()

    asyncio.run(main())
    assert ended == [False, False]

"""A queue whose file cannot be written, in a whole broker: the others, and transactions, go on."""

from __future__ import annotations

import pytest

from escrowmq.base.measure import Sample
from escrowmq.base.message import Topic
from escrowmq.testing.disk import CrashLoss
from tests.harness.exchange import COMMIT, ROLLBACK, Caller, Exchange


def broken(topic: str, queue_id: int = 0) -> str:
    return f"consumequeue/{topic}/{queue_id}/{0:020d}"


def sent_together(caller: Caller, *topics: str) -> None:
    """Sends that the broker reads at once, which is what its fast path is for."""
    replies = [caller.begin_send(topic, topic.encode()) for topic in topics]
    caller.exchange.advance(1_000)
    assert [reply.now.code for reply in replies] == [0] * len(topics)


def test_senders_and_consumers_of_other_topics_notice_nothing() -> None:
    exchange = Exchange()
    for topic in ("T", "broken"):
        exchange.create_topic(topic)
    exchange.disk.unreadable.add(broken("broken"))
    caller, waiting = exchange.connect(), exchange.connect()
    poll = waiting.begin_pull("broken", hold_ms=60_000)
    for _ in range(3):
        sent_together(caller, "T", "broken", "T")
    assert caller.bodies("T") == [b"T"] * 6
    assert caller.bodies("broken") == []
    assert not poll
    measured = {family.name: family for family in exchange.core.measure(exchange.now_ms)}
    assert measured["escrowmq_unwritable_queues"].samples == (Sample((), 1),)
    exchange.disk.unreadable.clear()
    exchange.advance(3_000)
    assert caller.bodies("broken") == [b"broken"] * 3
    assert poll, "who waits is told"
    sent_together(caller, "broken", "T")
    assert caller.bodies("broken") == [b"broken"] * 4


@pytest.mark.parametrize("topic", [Topic.HALF, Topic.OP, "T"])
@pytest.mark.parametrize("is_killed", [True, False])
def test_transactions_end_once_whatever_queue_is_broken(topic: str, *, is_killed: bool) -> None:
    exchange = Exchange()
    exchange.create_topic("T")
    exchange.disk.unreadable.add(broken(topic))
    producer = exchange.connect()
    halves = [producer.prepare("T", b"%d" % number) for number in range(6)]
    for number, half in enumerate(halves[:4]):
        assert producer.end(half, ROLLBACK if number % 2 else COMMIT).code == 0
    exchange.advance(3_000)
    held_back = exchange.core.broker.store.dispatcher.held_back
    assert [queue.topic for queue in held_back.units] == [topic]
    exchange.disk.unreadable.clear()
    if is_killed:
        exchange.crash(CrashLoss.NOTHING)
        producer = exchange.connect()
    exchange.advance(3_000)
    for number, half in enumerate(halves):
        producer.end(half, ROLLBACK if number % 2 else COMMIT)
    exchange.advance(3_000)
    assert sorted(producer.bodies("T")) == [b"0", b"2", b"4"]
    assert not len(exchange.core.transactions.engine.halves.pending)
    assert exchange.core.broker.store.unseen_size == 0

"""Consumers that pop: brokers decide who gets which message."""

from typing import Any

import pytest

import escrowmq
from escrowmq.errors import UsageError
from tests.interop.drivers import unique
from tests.interop.process import until
from tests.interop.servers import Server

from .test_consume import DEADLINE_S, Seen, numbered, send

POP: dict[str, Any] = {"mode": "pop", "pull_wait_ms": 2_000}


def test_a_handler_gets_every_message_once(server: Server, topic: str) -> None:
    seen = Seen()
    group = unique("CG")
    shared: dict[str, Any] = {"group": group, "topic": topic, "handler": seen, **POP}
    with escrowmq.Consumer(server.nameserver, **shared):
        send(server, topic, numbered(50))
        seen.wait(50)
    assert seen.bodies() == sorted(numbered(50))
    with escrowmq.Consumer(server.nameserver, group=group, topic=topic, **POP) as after:
        assert after.receive(timeout_s=2) == []


def test_members_share_messages_not_queues(server: Server, topic: str) -> None:
    send(server, topic, numbered(40), order_key="one queue")
    group = unique("CG")
    first, second = Seen(), Seen()
    shared: dict[str, Any] = {
        "group": group,
        "topic": topic,
        "concurrency": 1,
        "pull_count": 4,
        **POP,
    }
    with (
        escrowmq.Consumer(server.nameserver, handler=first, **shared),
        escrowmq.Consumer(server.nameserver, handler=second, **shared),
    ):
        until("all", lambda: len(first.bodies()) + len(second.bodies()) >= 40)
    assert sorted(first.bodies() + second.bodies()) == sorted(numbered(40))


def test_what_failed_comes_again(server: Server, topic: str) -> None:
    send(server, topic, [b"x"])
    group = unique("CG")
    deliveries = []

    def handle(message: escrowmq.Delivery) -> None:
        deliveries.append((message.topic, message.body, message.deliveries_before))
        if not message.deliveries_before:
            message.retry(after=1)

    consumer = escrowmq.Consumer(server.nameserver, group=group, topic=topic, handler=handle, **POP)
    with consumer:
        until("twice", lambda: len(deliveries) >= 2, within_s=DEADLINE_S)
    assert deliveries == [(topic, b"x", 0), (topic, b"x", 1)]
    with escrowmq.Consumer(server.nameserver, group=group, topic=topic, **POP) as after:
        assert after.receive(timeout_s=3) == []


def test_a_handler_may_take_longer_than_a_message_is_hidden(server: Server, topic: str) -> None:
    hidden_s = 2
    group, runs, deliveries = unique("CG"), [], []
    shared: dict[str, Any] = {"group": group, "topic": topic, "invisible_ms": hidden_s * 1_000}

    def handle(message: escrowmq.Delivery) -> None:
        deliveries.append(message.deliveries_before)
        # Another member would get it now.
        with escrowmq.Consumer(server.nameserver, **shared, **POP) as other:
            runs.append(other.receive(timeout_s=3 * hidden_s))

    with escrowmq.Consumer(server.nameserver, handler=handle, **shared, **POP):
        send(server, topic, [b"slow"])
        until("an end", lambda: runs, within_s=DEADLINE_S)
    assert (runs, deliveries) == ([[]], [0])
    with escrowmq.Consumer(server.nameserver, **shared, **POP) as after:
        assert after.receive(timeout_s=2 * hidden_s) == []


def test_what_is_rejected_is_a_dead_letter(server: Server, topic: str) -> None:
    send(server, topic, [b"bad"])
    group = unique("CG")
    with escrowmq.Consumer(server.nameserver, group=group, topic=topic, **POP) as consumer:
        for message in consumer:
            message.reject()
            break
    with escrowmq.Consumer(server.nameserver, group=unique("CG"), topic=f"%DLQ%{group}") as dead:
        (letter,) = until("a dead letter", lambda: dead.receive(timeout_s=1))
        assert letter.body == b"bad"
        letter.ack()


def test_what_nobody_took_is_shown_to_others_at_once(server: Server, topic: str) -> None:
    send(server, topic, numbered(8))
    group = unique("CG")
    seen = Seen()
    with escrowmq.Consumer(server.nameserver, group=group, topic=topic, **POP) as consumer:
        (first,) = consumer.receive(1, timeout_s=DEADLINE_S)
        first.ack()
    with escrowmq.Consumer(server.nameserver, group=group, topic=topic, handler=seen, **POP):
        seen.wait(7)
    assert sorted([first.body, *seen.bodies()]) == sorted(numbered(8))


def test_tags_choose(server: Server, topic: str) -> None:
    for tag in ("Aa", "BB", "c"):
        send(server, topic, [tag.encode()], tag=tag)
    with escrowmq.Consumer(
        server.nameserver, group=unique("CG"), topic=topic, tags="Aa", **POP
    ) as consumer:
        (message,) = consumer.receive(timeout_s=DEADLINE_S)
        assert message.body == b"Aa"
        message.ack()
        assert consumer.receive(timeout_s=1) == []


def test_offsets_are_the_brokers(server: Server, topic: str) -> None:
    with escrowmq.Consumer(server.nameserver, group=unique("CG"), topic=topic, **POP) as consumer:
        queue = escrowmq.MessageQueue(topic, server.broker_name, 0)
        with pytest.raises(UsageError, match="pop"):
            consumer.seek(queue, 0)
        until("a broker", lambda: [one.queue_id for one in consumer.queues()] == [-1])
    with pytest.raises(UsageError, match="pop"):
        escrowmq.Consumer(server.nameserver, group="g", topic=topic, mode="pop", is_orderly=True)

"""Consumers whose servers go away, and whose handlers hang."""

import os
import random
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import escrowmq
from escrowmq.errors import ClientForked
from tests.interop.drivers import unique
from tests.interop.process import Process, until
from tests.interop.servers import Server

from .conftest import new_topic
from .parts import Cluster
from .test_consume import DEADLINE_S, FAST, Seen, numbered, send


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    """A name server and a broker that may be killed."""
    started = Cluster(tmp_path, flushDiskType="SYNC_FLUSH")
    yield started
    started.kill()


def topic_of(cluster: Cluster) -> str:
    return new_topic(cluster)  # type: ignore[arg-type]


@pytest.mark.ours_alone
def test_nothing_is_lost_when_the_broker_is_killed(cluster: Cluster) -> None:
    topic, group = topic_of(cluster), unique("CG")
    seen = Seen()
    consumer = escrowmq.Consumer(cluster.nameserver, group=group, topic=topic, handler=seen, **FAST)
    with consumer:
        send(cluster, topic, numbered(50))
        seen.wait(50)
        cluster.brokers[0].kill()
        cluster.brokers[0].start()
        cluster.wait_registered(1)
        more = [f"after {number}".encode() for number in range(50)]
        send(cluster, topic, more)
        until("all", lambda: {*more} <= {*seen.bodies()}, within_s=DEADLINE_S)
    assert {*seen.bodies()} == {*numbered(50), *more}
    # what was handed out and not yet committed when the broker died comes again at most once
    assert len(seen.bodies()) <= 150


@pytest.mark.ours_alone
def test_a_failed_message_comes_again_although_its_broker_was_away(cluster: Cluster) -> None:
    topic = topic_of(cluster)
    send(cluster, topic, [b"only"])
    seen = Seen()
    entered, may_fail = threading.Event(), threading.Event()

    def handle(message: escrowmq.Delivery) -> None:
        seen(message)
        if len(seen.messages) == 1:
            entered.set()
            may_fail.wait(DEADLINE_S)
            raise RuntimeError("told to fail")

    consumer = escrowmq.Consumer(
        cluster.nameserver, group=unique("CG"), topic=topic, handler=handle, **FAST
    )
    with consumer:
        assert entered.wait(DEADLINE_S)
        cluster.brokers[0].kill()
        may_fail.set()
        cluster.brokers[0].start()
        assert seen.wait(2)[:2] == [b"only", b"only"]


@pytest.mark.ours_alone
def test_the_name_server_may_be_away(cluster: Cluster) -> None:
    topic = topic_of(cluster)
    seen = Seen()
    consumer = escrowmq.Consumer(
        cluster.nameserver, group=unique("CG"), topic=topic, handler=seen, **FAST
    )
    with consumer, escrowmq.Producer(cluster.nameserver, group=unique("PG")) as producer:
        until("queues", lambda: len(consumer.queues()) == 4)
        producer.send(topic, b"before", timeout_ms=20_000)
        cluster.names.kill()
        producer.send(topic, b"after", timeout_ms=20_000)
        assert seen.wait(2) == [b"after", b"before"]


@pytest.mark.ours_alone
def test_a_consumer_may_be_first(cluster: Cluster) -> None:
    cluster.brokers[0].kill()
    cluster.names.kill()
    seen = Seen()
    topic = unique("T")
    consumer = escrowmq.Consumer(
        cluster.nameserver, group=unique("CG"), topic=topic, handler=seen, **FAST
    )
    with consumer:
        cluster.names.start()
        cluster.brokers[0].start()
        cluster.wait_registered(1)
        send(cluster, topic, [b"1"])
        assert seen.wait(1) == [b"1"]


@pytest.mark.ours_alone
def test_close_ends_although_everything_is_gone(cluster: Cluster) -> None:
    topic = topic_of(cluster)
    send(cluster, topic, numbered(4))
    consumer = escrowmq.Consumer(cluster.nameserver, group=unique("CG"), topic=topic)
    next(iter(consumer))
    cluster.kill()
    closing = threading.Thread(target=consumer.close)
    closing.start()
    closing.join(DEADLINE_S)
    assert not closing.is_alive()


def test_a_handler_that_hangs_is_given_up(server: Server, topic: str) -> None:
    send(server, topic, [b"hangs"])
    seen = Seen()
    forever = threading.Event()

    def handle(message: escrowmq.Delivery) -> None:
        seen(message)
        if not message.deliveries_before:
            forever.wait(DEADLINE_S)

    consumer = escrowmq.Consumer(
        server.nameserver, group=unique("CG"), topic=topic, handler=handle,
        consume_timeout_ms=300, concurrency=1, close_timeout_ms=200,
    )  # fmt: skip
    with consumer:
        seen.wait(2)
        assert [message.deliveries_before for message in seen.messages] == [0, 1]
    forever.set()


def test_close_does_not_wait_for_a_handler_that_hangs(server: Server, topic: str) -> None:
    send(server, topic, [b"hangs"])
    seen, again = Seen(), Seen()
    forever = threading.Event()

    def handle(message: escrowmq.Delivery) -> None:
        seen(message)
        forever.wait(DEADLINE_S)

    group = unique("CG")
    consumer = escrowmq.Consumer(
        server.nameserver, group=group, topic=topic, handler=handle, close_timeout_ms=200
    )
    with consumer:
        seen.wait(1)
    forever.set()
    with escrowmq.Consumer(server.nameserver, group=group, topic=topic, handler=again):
        assert again.wait(1) == [b"hangs"]


def test_a_forked_child_cannot_use_its_parents_consumer(server: Server, topic: str) -> None:
    with escrowmq.Consumer(server.nameserver, group=unique("CG"), topic=topic) as consumer:
        reader, writer = os.pipe()
        child = os.fork()
        if child == 0:
            try:
                consumer.receive(timeout_s=1)
            except ClientForked:
                os.write(writer, b"told")
            finally:
                os._exit(0)
        os.close(writer)
        assert os.read(reader, 10) == b"told"
        os.close(reader)
        os.waitpid(child, 0)
        send(server, topic, [b"1"])
        (message,) = consumer.receive(timeout_s=DEADLINE_S)
        message.ack()


def test_memory_is_bounded_when_nobody_takes(own_server: Callable[..., Server]) -> None:
    server = own_server()
    topic = new_topic(server, queues=1)
    send(server, topic, numbered(40))
    consumer = escrowmq.Consumer(
        server.nameserver, group=unique("CG"), topic=topic, prefetch_max=10, pull_count=4
    )
    with consumer:
        held = [consumer.receive(1, timeout_s=DEADLINE_S)[0] for _ in range(10)]
        assert consumer.receive(timeout_s=0.5) == []
        held[0].ack()
        (following,) = consumer.receive(timeout_s=DEADLINE_S)
        assert following.queue_offset == 10
        (queue,) = consumer.queues()
        assert consumer.position(queue) == 1


def test_nothing_is_lost_while_members_come_and_go(server: Server, topic: str) -> None:
    group = unique("CG")
    chance = random.Random(7)
    seen = Seen()
    members: list[escrowmq.Consumer] = []

    def start() -> escrowmq.Consumer:
        return escrowmq.Consumer(
            server.nameserver, group=group, topic=topic, handler=seen, concurrency=4, **FAST
        )

    bodies = numbered(400)
    with escrowmq.Producer(server.nameserver, group=unique("PG")) as producer:
        for index, body in enumerate(bodies):
            producer.send(topic, body)
            if index % 40 == 0:
                if len(members) < 2 or (len(members) < 4 and chance.random() < 0.5):
                    members.append(start())
                else:
                    members.pop(chance.randrange(len(members))).close()
    until("all", lambda: {*bodies} <= {*seen.bodies()}, within_s=2 * DEADLINE_S)
    for member in members:
        member.close()
    # each change of hands repeats at most what was under way in four threads
    assert len(seen.bodies()) <= len(bodies) + 10 * 4 * 4
    with escrowmq.Consumer(server.nameserver, group=group, topic=topic) as after:
        until("all queues", lambda: len(after.queues()) == 4)
        assert after.receive(timeout_s=0.5) == []


def test_nothing_is_lost_when_a_consumer_is_killed(
    server: Server, topic: str, tmp_path: Path
) -> None:
    group = unique("CG")
    send(server, topic, numbered(100))
    program = f"""
import escrowmq
for message in escrowmq.Consumer({server.nameserver!r}, group={group!r}, topic={topic!r}):
    print(message.body.decode(), flush=True)
"""
    killed = Process([sys.executable, "-c", program], folder=tmp_path, name="consumer")
    handed_out = [killed.wait_line("message", within_s=DEADLINE_S).encode() for _ in range(30)]
    killed.kill()
    seen = Seen()
    with escrowmq.Consumer(server.nameserver, group=group, topic=topic, handler=seen):
        until("the rest", lambda: {*numbered(100)} <= {*handed_out, *seen.bodies()}, within_s=60)


@pytest.mark.ours_alone
def test_queues_of_a_broker_that_is_away_wait_and_others_go_on(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path, brokers_count=2, flushDiskType="SYNC_FLUSH")
    try:
        with escrowmq.Admin(cluster.nameserver) as admin:
            topic = unique("T")
            admin.topics.create(topic, queues=2)
        seen = Seen()
        consumer = escrowmq.Consumer(
            cluster.nameserver,
            group=unique("CG"),
            topic=topic,
            handler=seen,
            route_interval_ms=1_000,
            **FAST,
        )
        with consumer, escrowmq.Producer(cluster.nameserver, group=unique("PG")) as producer:
            until("all queues", lambda: len(consumer.queues()) == 4)
            cluster.brokers[0].kill()
            results = [producer.send(topic, body, timeout_ms=20_000) for body in numbered(10)]
            assert {result.queue.broker_name for result in results} == {"broker-1"}
            seen.wait(10)
            cluster.brokers[0].start()
            cluster.wait_registered(2)
            queue = escrowmq.MessageQueue(topic, "broker-0", 1)
            send(cluster, topic, [b"back"], queue=queue)
            until("its message", lambda: b"back" in seen.bodies())
    finally:
        cluster.kill()

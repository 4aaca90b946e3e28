"""Consumers: by iteration, by handlers, by receiving; alone and in groups."""

import asyncio
import datetime as dt
import gc
import subprocess
import sys
import threading
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import escrowmq
from escrowmq.errors import ClientClosed, ExpressionInvalid, UsageError
from tests.interop.drivers import unique
from tests.interop.process import until
from tests.interop.servers import Server

from .conftest import new_topic
from .parts import Cluster

DEADLINE_S = 60.0
FAST: dict[str, Any] = {"commit_interval_ms": 200, "rebalance_interval_ms": 1_000}


def send(server: Server | Cluster, topic: str, bodies: list[bytes], **fields: Any) -> None:
    """Messages of a topic, one after another."""
    with escrowmq.Producer(server.nameserver, group=unique("PG")) as producer:
        for body in bodies:
            producer.send(topic, body, **fields)


def numbered(count: int) -> list[bytes]:
    return [f"message {number}".encode() for number in range(count)]


class Seen:
    """What a handler was given; it fails as often as it is told to."""

    def __init__(self, *, failures_count: int = 0) -> None:
        self.messages: list[escrowmq.Delivery] = []
        self.lock = threading.Lock()
        self.failures_count = failures_count

    def __call__(self, message: escrowmq.Delivery) -> None:
        with self.lock:
            self.messages.append(message)
            fails = self.failures_count > 0
            self.failures_count -= fails
        if fails:
            raise RuntimeError("the handler was told to fail")

    def bodies(self) -> list[bytes]:
        with self.lock:
            return sorted(message.body for message in self.messages)

    def wait(self, count: int) -> list[bytes]:
        until(f"{count} messages", lambda: len(self.bodies()) >= count, within_s=DEADLINE_S)
        return self.bodies()


@pytest.fixture
def deadline() -> Iterator[Callable[[escrowmq.Consumer], None]]:
    """Closes a consumer whose test takes too long, so that the test fails instead of hanging."""
    timers: list[threading.Timer] = []

    def watch(consumer: escrowmq.Consumer) -> None:
        timers.append(threading.Timer(DEADLINE_S, consumer.close))
        timers[-1].start()

    yield watch
    for timer in timers:
        timer.cancel()


def test_iteration_gives_every_message_once(
    server: Server, topic: str, deadline: Callable[[escrowmq.Consumer], None]
) -> None:
    send(server, topic, numbered(20), tag="card", keys=["k"], properties={"a": "b"})
    group = unique("CG")
    with escrowmq.Consumer(server.nameserver, group=group, topic=topic) as consumer:
        deadline(consumer)
        seen = []
        for message in consumer:
            assert (message.topic, message.tag, message.keys) == (topic, "card", ["k"])
            assert message.properties == {"a": "b"}
            assert message.deliveries_before == 0
            seen.append(message.body)
            if len(seen) == 20:
                break
    assert sorted(seen) == sorted(numbered(20))
    with escrowmq.Consumer(server.nameserver, group=group, topic=topic) as consumer:
        until("queues", lambda: len(consumer.queues()) == 4)
        assert consumer.receive(timeout_s=0.5) == []


def test_an_exception_in_the_loop_leaves_the_message_unacknowledged(
    server: Server, topic: str, deadline: Callable[[escrowmq.Consumer], None]
) -> None:
    send(server, topic, [b"only"])
    group = unique("CG")

    def fail() -> None:
        with escrowmq.Consumer(server.nameserver, group=group, topic=topic) as consumer:
            deadline(consumer)
            for _ in consumer:
                raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    with escrowmq.Consumer(server.nameserver, group=group, topic=topic) as consumer:
        deadline(consumer)
        again = next(iter(consumer))
        assert (again.body, again.deliveries_before, again.topic) == (b"only", 1, topic)


def test_a_loop_over_a_consumer_without_a_name_ends_it(server: Server, topic: str) -> None:
    send(server, topic, [b"1", b"2"])
    group = unique("CG")

    def fail() -> None:
        for _ in escrowmq.Consumer(server.nameserver, group=group, topic=topic):
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    seen = Seen()
    with escrowmq.Consumer(server.nameserver, group=group, topic=topic, handler=seen):
        assert set(seen.wait(2)) == {b"1", b"2"}


def test_async_iteration_opens_and_closes_by_itself(server: Server, topic: str) -> None:
    send(server, topic, numbered(5))

    async def main() -> list[bytes]:
        seen = []
        async with asyncio.timeout(DEADLINE_S):
            consumer = escrowmq.aio.Consumer(server.nameserver, group=unique("CG"), topic=topic)
            async for message in consumer:
                seen.append(message.body)
                if len(seen) == 5:
                    await message.ack()
                    break
            await consumer.wait()
        return seen

    assert sorted(asyncio.run(main())) == sorted(numbered(5))


def test_a_handler_gets_every_message_and_failed_ones_again(server: Server, topic: str) -> None:
    seen = Seen(failures_count=2)
    with escrowmq.Consumer(server.nameserver, group=unique("CG"), topic=topic, handler=seen):
        send(server, topic, numbered(10))
        seen.wait(12)
    assert set(seen.bodies()) == set(numbered(10))
    assert sorted(message.deliveries_before for message in seen.messages)[-3:] == [0, 1, 1]


def test_a_message_that_always_fails_becomes_a_dead_letter(server: Server, topic: str) -> None:
    send(server, topic, [b"bad"])
    group = unique("CG")
    seen = Seen(failures_count=100)
    consumer = escrowmq.Consumer(
        server.nameserver, group=group, topic=topic, handler=seen, attempts_max=2
    )
    with consumer:
        seen.wait(3)
    assert [message.deliveries_before for message in seen.messages] == [0, 1, 2]
    dead = escrowmq.Consumer(server.nameserver, group=unique("CG"), topic=f"%DLQ%{group}")
    with dead:
        (letter,) = until("a dead letter", lambda: dead.receive(timeout_s=1))
        assert letter.body == b"bad"
        letter.ack()


def test_a_handler_decides_itself(server: Server, topic: str) -> None:
    send(server, topic, [b"ack", b"retry", b"reject"])
    group = unique("CG")
    seen = Seen()

    def decide(message: escrowmq.Delivery) -> None:
        seen(message)
        if message.body == b"reject":
            message.reject()
        elif message.body == b"retry" and not message.deliveries_before:
            message.retry(after=1)
        else:
            message.ack()
            raise RuntimeError("what was settled stays so")

    with escrowmq.Consumer(server.nameserver, group=group, topic=topic, handler=decide):
        assert seen.wait(4) == [b"ack", b"reject", b"retry", b"retry"]
        dead = escrowmq.Consumer(server.nameserver, group=unique("CG"), topic=f"%DLQ%{group}")
        with dead:
            (letter,) = until("a dead letter", lambda: dead.receive(timeout_s=1))
            assert letter.body == b"reject"


def test_a_coroutine_is_a_handler(server: Server, topic: str) -> None:
    send(server, topic, numbered(10))

    async def main() -> list[bytes]:
        seen: list[bytes] = []
        done = asyncio.Event()

        async def handle(batch: list[escrowmq.aio.Delivery]) -> None:
            seen.extend(message.body for message in batch)
            if len(seen) == 10:
                done.set()

        consumer = escrowmq.aio.Consumer(
            server.nameserver, group=unique("CG"), topic=topic, handler=handle, batch_max=4
        )
        async with asyncio.timeout(DEADLINE_S), consumer:
            await done.wait()
        return seen

    assert sorted(asyncio.run(main())) == sorted(numbered(10))


def test_tags_choose_messages(server: Server, topic: str) -> None:
    for tag in ("card", "cash", "cheque"):
        send(server, topic, [tag.encode()], tag=tag)
    # Aa and BB have the same hash, by which brokers choose
    send(server, topic, [b"Aa"], tag="Aa")
    send(server, topic, [b"BB"], tag="BB")
    seen = Seen()
    consumer = escrowmq.Consumer(
        server.nameserver, group=unique("CG"), topic=topic, tags="card || BB", handler=seen
    )
    with consumer:
        send(server, topic, [b"last"], tag="card")
        assert seen.wait(3) == [b"BB", b"card", b"last"]


def test_a_condition_chooses_messages(own_server: Callable[..., Server]) -> None:
    server = own_server(enablePropertyFilter=True)
    topic = new_topic(server)
    seen = Seen()
    consumer = escrowmq.Consumer(
        server.nameserver, group=unique("CG"), topic=topic, sql="price > 10", handler=seen
    )
    with consumer:
        for price in (5, 10, 15, 20):
            send(server, topic, [str(price).encode()], properties={"price": str(price)})
        assert seen.wait(2) == [b"15", b"20"]
    with pytest.raises(ExpressionInvalid):
        escrowmq.Consumer(server.nameserver, group=unique("CG"), topic=topic, sql="price >")


def test_members_share_the_queues_and_take_over(server: Server, topic: str) -> None:
    group = unique("CG")
    first, second = Seen(), Seen()
    shared: dict[str, Any] = {"group": group, "topic": topic, **FAST}
    with escrowmq.Consumer(server.nameserver, handler=first, **shared) as one:
        until("all queues", lambda: len(one.queues()) == 4)
        with escrowmq.Consumer(server.nameserver, handler=second, **shared) as two:
            until("half of them", lambda: len(one.queues()) == len(two.queues()) == 2)
            assert not {*one.queues()} & {*two.queues()}
            send(server, topic, numbered(20))
            until("all", lambda: len(first.messages) + len(second.messages) >= 20)
            assert first.messages
            assert second.messages
        until("all queues", lambda: len(one.queues()) == 4)
        send(server, topic, [b"after"])
        until("the last", lambda: b"after" in first.bodies())
    assert sorted(first.bodies() + second.bodies()) == sorted([*numbered(20), b"after"])


def test_a_queue_is_read_from_elsewhere(server: Server, topic: str) -> None:
    send(server, topic, numbered(8))
    consumer = escrowmq.Consumer(server.nameserver, group=unique("CG"), topic=topic, **FAST)
    with consumer:
        until("all queues", lambda: len(consumer.queues()) == 4)
        queue = consumer.queues()[0]
        count = 0
        while count < 8:
            for message in consumer.receive(timeout_s=DEADLINE_S):
                message.ack()
                count += 1
        end = consumer.position(queue)
        consumer.seek(queue, "first")
        assert consumer.position(queue) == 0
        (again, *_) = consumer.receive(1, timeout_s=DEADLINE_S)
        assert (again.queue, again.queue_offset) == (queue, 0)
        consumer.seek(queue, dt.datetime.fromtimestamp(again.stored_ms / 1000, dt.UTC))
        assert consumer.position(queue) <= again.queue_offset
        consumer.seek(queue, "last")
        assert consumer.position(queue) == end
        consumer.seek(queue, 1)
        assert consumer.position(queue) == 1
        with pytest.raises(UsageError, match="where"):
            consumer.seek(queue, -1)


def test_a_paused_consumer_is_given_nothing(server: Server, topic: str) -> None:
    consumer = escrowmq.Consumer(server.nameserver, group=unique("CG"), topic=topic)
    with consumer:
        until("all queues", lambda: len(consumer.queues()) == 4)
        consumer.pause()
        send(server, topic, [b"later"])
        assert consumer.receive(timeout_s=0.5) == []
        consumer.resume()
        (message,) = consumer.receive(timeout_s=DEADLINE_S)
        assert message.body == b"later"
        message.ack()


def test_topics_come_and_go(server: Server, topic: str) -> None:
    other = new_topic(server)
    seen = Seen()
    consumer = escrowmq.Consumer(
        server.nameserver, group=unique("CG"), topics=[topic], handler=seen
    )
    with consumer:
        consumer.subscribe(other, tags="a")
        send(server, topic, [b"1"])
        send(server, other, [b"2"], tag="a")
        assert seen.wait(2) == [b"1", b"2"]
        consumer.unsubscribe(topic)
        until("one topic", lambda: {queue.topic for queue in consumer.queues()} == {other})
        with pytest.raises(UsageError, match="not subscribed"):
            consumer.unsubscribe(topic)


def test_a_closed_consumer_says_so(server: Server, topic: str) -> None:
    consumer = escrowmq.Consumer(server.nameserver, group=unique("CG"), topic=topic)
    consumer.close()
    consumer.close()
    with pytest.raises(ClientClosed):
        consumer.receive(timeout_s=1)
    assert list(consumer) == []


def test_closing_ends_an_iteration_elsewhere(server: Server, topic: str) -> None:
    consumer = escrowmq.Consumer(server.nameserver, group=unique("CG"), topic=topic)
    seen: list[bytes] = []
    thread = threading.Thread(target=lambda: seen.extend(m.body for m in consumer))
    thread.start()
    send(server, topic, [b"1"])
    until("a message", lambda: seen)
    consumer.close()
    thread.join(DEADLINE_S)
    assert not thread.is_alive()


def test_a_handler_may_close_its_consumer(server: Server, topic: str) -> None:
    send(server, topic, [b"1"])
    seen = Seen()

    def handle(message: escrowmq.Delivery) -> None:
        seen(message)
        consumer.close()

    group = unique("CG")
    consumer = escrowmq.Consumer(server.nameserver, group=group, topic=topic, handler=handle)
    consumer.wait()
    with escrowmq.Consumer(server.nameserver, group=group, topic=topic) as after:
        until("queues", lambda: len(after.queues()) == 4)
        assert after.receive(timeout_s=0.5) == []


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"topic": "a", "tags": "x", "sql": "y > 1"}, "give one"),
        ({"tags": "x"}, "topic="),
        ({"topic": "a", "concurrency": 0}, "concurrency"),
        ({"topic": "a", "handler": 3}, "handler"),
        ({"topic": "a", "strategy": "best"}, "strategy"),
        ({"topic": "a", "consume_from": "middle"}, "consume_from"),
        ({"topic": "a", "consume_from": dt.datetime(2026, 1, 1)}, "time zone"),  # noqa: DTZ001
        ({"topic": "a", "is_broadcasting": True}, "offsets_folder"),
        ({"topic": "a", "treads": 3}, "treads"),
        ({"topic": "a", "tags": "||"}, "tag"),
        ({"topic": "not a topic"}, "characters"),
    ],
)
def test_wrong_settings_are_refused(settings: dict[str, Any], text: str) -> None:
    with pytest.raises(UsageError, match=text):
        escrowmq.Consumer("127.0.0.1:1", group="g", **settings)


def test_a_loop_begun_again_repeats_what_the_one_before_held(
    server: Server, topic: str, deadline: Callable[[escrowmq.Consumer], None]
) -> None:
    send(server, topic, numbered(3), order_key="a")
    seen: list[tuple[bytes, int]] = []
    with escrowmq.Consumer(server.nameserver, group=unique("CG"), topic=topic) as consumer:
        deadline(consumer)
        while len(seen) < 4:
            try:
                for message in consumer:
                    seen.append((message.body, message.deliveries_before))
                    if len(seen) == 2:
                        raise ZeroDivisionError
                    if len(seen) == 4:
                        break
            except ZeroDivisionError:
                continue
    one, two, three = numbered(3)
    assert seen == [(one, 0), (two, 0), (three, 0), (two, 1)]


def test_the_end_of_the_program_keeps_offsets(server: Server, topic: str) -> None:
    """Also of a consumer that nobody closes, and of a loop that an exception ends."""
    group = unique("CG")
    send(server, topic, numbered(5), order_key="a")
    program = f"""
import escrowmq
for count, message in enumerate(
    escrowmq.Consumer({server.nameserver!r}, group={group!r}, topic={topic!r})
):
    if count == 3:
        raise SystemExit(3)
"""
    ended = subprocess.run(
        [sys.executable, "-c", program], timeout=60, capture_output=True, text=True, check=False
    )
    assert (ended.returncode, ended.stderr) == (3, "")
    seen = Seen()
    with escrowmq.Consumer(server.nameserver, group=group, topic=topic, handler=seen):
        seen.wait(2)
    found = sorted((message.body, message.deliveries_before) for message in seen.messages)
    assert found == [(numbered(5)[3], 1), (numbered(5)[4], 0)]


def test_a_consumer_with_a_handler_works_on_although_nobody_holds_it(
    server: Server, topic: str
) -> None:
    seen = Seen()
    reference = weakref.ref(
        escrowmq.Consumer(server.nameserver, group=unique("CG"), topic=topic, handler=seen)
    )
    gc.collect()
    send(server, topic, [b"1"])
    assert seen.wait(1) == [b"1"]
    consumer = reference()
    assert consumer is not None
    consumer.close()


def test_both_faces_have_the_same_names() -> None:
    for name in ("Consumer", "Delivery", "Admin", "Producer"):
        plain, awaited = getattr(escrowmq, name), getattr(escrowmq.aio, name)
        assert public(plain) <= public(awaited), name
        assert public(awaited) - ENGINE <= public(plain), name


ENGINE = {
    "open", "take_undelivered", "take_undelivered_into", "put_back", "advance", "is_closed",
    "check_open", "listener", "try_send", "track_end", "wire_queue",
}  # fmt: skip
"""What plain code needs not, or what only this library uses."""


def public(kind: type) -> set[str]:
    return {name for name in dir(kind) if not name.startswith("_")} - {"portal"}

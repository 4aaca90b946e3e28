"""Consumers in order, and those that all get everything."""

import datetime as dt
import threading
from pathlib import Path
from typing import Any

import escrowmq
from tests.interop.drivers import unique
from tests.interop.process import until
from tests.interop.servers import Server

from .conftest import new_topic
from .test_consume import DEADLINE_S, FAST, Seen, numbered, send


def test_messages_of_one_key_come_one_after_another(server: Server, topic: str) -> None:
    for key in ("a", "b", "c"):
        send(server, topic, [f"{key}{n}".encode() for n in range(10)], order_key=key)
    running: dict[int, int] = {}
    together_max = 0
    lock = threading.Lock()
    seen = Seen()

    def handle(message: escrowmq.Delivery) -> None:
        nonlocal together_max
        with lock:
            running[message.queue_id] = running.get(message.queue_id, 0) + 1
            together_max = max(together_max, running[message.queue_id])
        seen(message)
        with lock:
            running[message.queue_id] -= 1

    consumer = escrowmq.Consumer(
        server.nameserver, group=unique("CG"), topic=topic, handler=handle, is_orderly=True
    )
    with consumer:
        seen.wait(30)
    assert together_max == 1
    for key in "abc":
        bodies = [m.body.decode() for m in seen.messages if m.order_key == key]
        assert bodies == [f"{key}{n}" for n in range(10)]


def test_a_message_that_fails_holds_up_its_queue(server: Server, topic: str) -> None:
    send(server, topic, numbered(4), order_key="a")
    seen = Seen(failures_count=2)
    consumer = escrowmq.Consumer(
        server.nameserver, group=unique("CG"), topic=topic, handler=seen, is_orderly=True,
        suspend_ms=50,
    )  # fmt: skip
    with consumer:
        seen.wait(6)
    bodies = [message.body for message in seen.messages]
    assert bodies == 3 * numbered(1) + numbered(4)[1:]
    assert [message.deliveries_before for message in seen.messages] == [0, 1, 2, 0, 0, 0]


def test_a_message_that_fails_for_ever_leaves_its_queue(server: Server, topic: str) -> None:
    send(server, topic, numbered(2), order_key="a")
    seen = Seen()

    def handle(message: escrowmq.Delivery) -> None:
        seen(message)
        if message.body == numbered(1)[0]:
            raise RuntimeError("told to fail")

    group = unique("CG")
    consumer = escrowmq.Consumer(
        server.nameserver, group=group, topic=topic, handler=handle, is_orderly=True,
        suspend_ms=50, attempts_max=2,
    )  # fmt: skip
    with consumer:
        seen.wait(4)
    assert [message.body for message in seen.messages] == 3 * numbered(1) + numbered(2)[1:]
    dead = escrowmq.Consumer(server.nameserver, group=unique("CG"), topic=f"%DLQ%{group}")
    with dead:
        (letter,) = until("a dead letter", lambda: dead.receive(timeout_s=1))
        assert letter.body == numbered(1)[0]
        letter.ack()


def test_orderly_members_lock_their_queues(server: Server, topic: str) -> None:
    group = unique("CG")
    first, second = Seen(), Seen()
    shared: dict[str, Any] = {"group": group, "topic": topic, "is_orderly": True, **FAST}
    with escrowmq.Consumer(server.nameserver, handler=first, **shared) as one:
        until("all queues", lambda: len(one.queues()) == 4)
        with escrowmq.Consumer(server.nameserver, handler=second, **shared) as two:
            until("half of them", lambda: len(one.queues()) == len(two.queues()) == 2)
            send(server, topic, numbered(20))
            until("all", lambda: len(first.messages) + len(second.messages) >= 20)
        until("all queues", lambda: len(one.queues()) == 4)
    assert sorted(first.bodies() + second.bodies()) == sorted(numbered(20))


def test_iteration_in_order_repeats_what_failed(server: Server, topic: str) -> None:
    send(server, topic, numbered(3), order_key="a")
    consumer = escrowmq.Consumer(
        server.nameserver, group=unique("CG"), topic=topic, is_orderly=True, suspend_ms=50
    )
    bodies = []
    with consumer:
        for message in consumer:
            bodies.append(message.body)
            if len(bodies) == 1:
                message.retry()
            if len(bodies) == 4:
                break
    assert bodies == [*numbered(1), *numbered(3)]


def test_everybody_gets_a_broadcast_and_goes_on_where_it_was(
    server: Server, topic: str, tmp_path: Path
) -> None:
    group = unique("CG")

    def start(name: str, seen: Seen) -> escrowmq.Consumer:
        return escrowmq.Consumer(
            server.nameserver, group=group, topic=topic, handler=seen, is_broadcasting=True,
            offsets_folder=str(tmp_path / name), **FAST,
        )  # fmt: skip

    send(server, topic, numbered(8))
    one, two, again = Seen(), Seen(failures_count=1), Seen()
    with start("one", one), start("two", two):
        assert one.wait(8) == sorted(numbered(8))
        assert two.wait(8) == sorted(numbered(8))  # the one that failed does not come again
    send(server, topic, [b"later"])
    with start("one", again):
        assert again.wait(1) == [b"later"]
    assert (tmp_path / "one" / group / "offsets.json").exists()


def test_a_damaged_offsets_file_gives_way_to_the_one_before(
    server: Server, topic: str, tmp_path: Path
) -> None:
    group = unique("CG")

    def start(seen: Seen) -> escrowmq.Consumer:
        return escrowmq.Consumer(
            server.nameserver, group=group, topic=topic, handler=seen, is_broadcasting=True,
            offsets_folder=str(tmp_path), **FAST,
        )  # fmt: skip

    first, second = Seen(), Seen()
    file = tmp_path / group / "offsets.json"
    send(server, topic, numbered(4))
    with start(first):
        first.wait(4)
        until("a file", file.exists)
    backup = file.with_suffix(".json.bak")
    backup.write_bytes(file.read_bytes())
    file.write_bytes(b'{"offsetTable":{{"brok')
    with start(second):
        send(server, topic, [b"new"])
        assert second.wait(1) == [b"new"]


def test_consuming_begins_at_the_end_when_told(server: Server, topic: str) -> None:
    send(server, topic, numbered(4))
    seen = Seen()
    consumer = escrowmq.Consumer(
        server.nameserver, group=unique("CG"), topic=topic, handler=seen, consume_from="last"
    )
    with consumer:
        until("all queues", lambda: len(consumer.queues()) == 4)
        send(server, topic, [b"new"])
        assert seen.wait(1) == [b"new"]


def test_chosen_queues_are_read_alone_and_committed_by_hand(server: Server, topic: str) -> None:
    send(server, topic, numbered(8))
    group = unique("CG")
    chosen = [escrowmq.MessageQueue(topic, server.broker_name, number) for number in (0, 2)]

    def start() -> escrowmq.Consumer:
        return escrowmq.Consumer(
            server.nameserver, group=group, queues=chosen, auto_commit=False, **FAST
        )

    with start() as one, start() as two:
        until("queues", lambda: one.queues() == two.queues() == chosen)
        first = one.receive(1, timeout_s=DEADLINE_S)[0]
        assert first.queue in chosen
        first.ack()
        position = one.position(first.queue)
        assert position == 1
        assert one.committed(first.queue) is None
        one.commit()
        assert one.committed(first.queue) == 1
    with start() as again:
        until("queues", lambda: again.queues() == chosen)
        assert again.position(first.queue) == 1


def test_what_failed_in_chosen_queues_comes_again_there(server: Server, topic: str) -> None:
    send(server, topic, numbered(1), order_key="a")
    chosen = [escrowmq.MessageQueue(topic, server.broker_name, number) for number in range(4)]
    seen = Seen()

    def handle(message: escrowmq.Delivery) -> None:
        seen(message)
        if len(seen.messages) == 1:
            message.retry(after=1)

    consumer = escrowmq.Consumer(
        server.nameserver, group=unique("CG"), queues=chosen, handler=handle
    )
    with consumer:
        assert seen.wait(2) == 2 * numbered(1)


def test_a_queue_changes_hands_when_its_message_is_done_with(server: Server) -> None:
    topic = new_topic(server, queues=2)
    with escrowmq.Producer(server.nameserver, group=unique("PG")) as producer:
        for number in range(4):
            queue = escrowmq.MessageQueue(topic, server.broker_name, number % 2)
            producer.send(topic, numbered(4)[number], queue=queue)
    first, second = Seen(), Seen()
    may_return, second_began = threading.Event(), threading.Event()

    def slow(message: escrowmq.Delivery) -> None:
        first(message)
        may_return.wait(DEADLINE_S)

    def quick(message: escrowmq.Delivery) -> None:
        second(message)
        second_began.set()

    shared: dict[str, Any] = {"group": unique("CG"), "topic": topic, "is_orderly": True, **FAST}
    with escrowmq.Consumer(server.nameserver, handler=slow, **shared) as one:
        first.wait(2)
        with escrowmq.Consumer(server.nameserver, handler=quick, **shared) as two:
            until("one queue is given up", lambda: len(one.queues()) == 1)
            assert not second_began.wait(2)
            may_return.set()
            until("the other has it", lambda: len(two.queues()) == 1)
            until("all", lambda: len(first.bodies()) + len(second.bodies()) >= 4)
    assert sorted(first.bodies() + second.bodies()) == sorted(numbered(4))


def test_consuming_begins_at_a_time_when_told(server: Server, topic: str) -> None:
    with escrowmq.Producer(server.nameserver, group=unique("PG")) as producer:
        producer.send(topic, b"before", order_key="a")
        queue = producer.send(topic, b"last before", order_key="a").queue
        with escrowmq.Admin(server.nameserver) as admin:
            stored_ms = until("it is there", lambda: admin.messages.at(queue, 1))[0].stored_ms
        later = dt.datetime.fromtimestamp((stored_ms + 1) / 1000, dt.UTC)
        until("time goes on", lambda: dt.datetime.now(dt.UTC) > later)
        producer.send(topic, b"after", order_key="a")
    seen = Seen()
    consumer = escrowmq.Consumer(
        server.nameserver, group=unique("CG"), topic=topic, handler=seen, consume_from=later
    )
    with consumer:
        assert seen.wait(1) == [b"after"]


def test_one_queue_is_paused_and_others_go_on(server: Server, topic: str) -> None:
    seen = Seen()
    consumer = escrowmq.Consumer(server.nameserver, group=unique("CG"), topic=topic, handler=seen)
    with consumer, escrowmq.Producer(server.nameserver, group=unique("PG")) as producer:
        until("all queues", lambda: len(consumer.queues()) == 4)
        paused, *others = consumer.queues()
        consumer.pause(paused)
        for queue in [paused, *others]:
            producer.send(topic, str(queue.queue_id).encode(), queue=queue)
        assert seen.wait(3) == [str(queue.queue_id).encode() for queue in others]
        consumer.resume(paused)
        assert len(seen.wait(4)) == 4


def test_new_queues_are_read_soon(server: Server, topic: str) -> None:
    seen = Seen()
    consumer = escrowmq.Consumer(
        server.nameserver, group=unique("CG"), topic=topic, handler=seen, route_interval_ms=300
    )
    with consumer, escrowmq.Admin(server.nameserver) as admin:
        until("all queues", lambda: len(consumer.queues()) == 4)
        admin.topics.update(topic, read_queues=6, write_queues=6)
        until("the new ones", lambda: len(consumer.queues()) == 6)
        queue = escrowmq.MessageQueue(topic, server.broker_name, 5)
        send(server, topic, [b"there"], queue=queue)
        assert seen.wait(1) == [b"there"]


def test_a_topic_may_come_later_than_its_consumer(server: Server) -> None:
    topic = unique("T")
    seen = Seen()
    consumer = escrowmq.Consumer(
        server.nameserver, group=unique("CG"), topic=topic, handler=seen, route_interval_ms=300
    )
    with consumer, escrowmq.Admin(server.nameserver) as admin:
        admin.topics.create(topic, queues=2)
        send(server, topic, [b"1"])
        assert seen.wait(1) == [b"1"]

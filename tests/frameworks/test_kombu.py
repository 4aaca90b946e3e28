"""Kombu's channels on our transport, with a broker behind it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import kombu
import pytest
from kombu.common import Broadcast
from kombu.exceptions import OperationalError

import escrowmq.integrations.kombu
from escrowmq.errors import UsageError
from escrowmq.testing import Broker

__all__ = ["escrowmq"]

WORKERS = "celery-mails-workers"
ANSWER_S = 60
MAILS = kombu.Queue("mails", kombu.Exchange("shop"), routing_key="mails")


@pytest.fixture
def connection(escrowmq_broker: Broker) -> Iterator[kombu.Connection]:
    escrowmq_broker.create_topic("celery-mails", queues=1)
    with kombu.Connection(f"escrowmq://{escrowmq_broker.nameserver}") as made:
        yield made


def publish(connection: kombu.Connection, *bodies: str) -> None:
    with connection.Producer() as producer:
        for body in bodies:
            producer.publish(body, routing_key="mails")


class Worker:
    """Consumes the queue, and keeps what it has got."""

    def __init__(self, connection: kombu.Connection) -> None:
        self.got: list[Any] = []
        self._connection = connection
        self.consumer: kombu.Consumer = connection.Consumer(MAILS, on_message=self.got.append)
        self.consumer.qos(prefetch_count=10)

    @classmethod
    def with_two(cls, connection: kombu.Connection) -> Worker:
        """One that has got two messages."""
        worker = cls(connection)
        worker.consumer.consume()
        publish(connection, "one", "two")
        worker.wait("one", "two")
        return worker

    def wait(self, *bodies: str) -> None:
        while [message.payload for message in self.got] != [*bodies]:
            self._connection.drain_events(timeout=ANSWER_S)


def test_what_is_worked_on_is_done_though_its_queue_was_cancelled_and_is_consumed_again(
    escrowmq_broker: Broker, connection: kombu.Connection
) -> None:
    """The reader was closed, and with it the way of the acknowledgements: all came again."""
    worker = Worker.with_two(connection)
    worker.consumer.cancel()
    worker.consumer.consume()
    for message in worker.got:
        message.ack()
    publish(connection, "three")
    worker.wait("one", "two", "three")
    worker.got[-1].ack()
    escrowmq_broker.wait_consumed(WORKERS)


def test_what_is_worked_on_is_done_though_its_queue_was_deleted(
    escrowmq_broker: Broker, connection: kombu.Connection
) -> None:
    worker = Worker.with_two(connection)
    worker.consumer.cancel()
    MAILS(connection.default_channel).delete()
    for message in worker.got:
        message.ack()
    publish(connection, "three")
    other = Worker(connection)
    other.consumer.consume()
    other.wait("three")


def test_a_connection_is_ensured_when_somebody_answers_and_not_before(
    connection: kombu.Connection,
) -> None:
    assert connection.ensure_connection(max_retries=1).connected
    with kombu.Connection("escrowmq://127.0.0.1:1") as away:
        with pytest.raises(OperationalError, match="is it running there"):
            away.ensure_connection(max_retries=1, interval_start=0)
        assert not away.connected


def test_what_waits_is_got_by_who_asks_for_the_first_time(connection: kombu.Connection) -> None:
    """It had only begun to read then, and said that there was nothing."""
    publish(connection, "one", "two")
    queue = connection.SimpleQueue("mails")
    assert [queue.get_nowait().payload for _ in range(2)] == ["one", "two"]
    with pytest.raises(queue.Empty):
        queue.get_nowait()


def test_a_queue_tells_how_much_is_not_done(connection: kombu.Connection) -> None:
    queue = connection.SimpleQueue("mails")
    assert len(queue) == 0
    publish(connection, "one", "two", "three")
    assert len(queue) == 3
    queue.get(timeout=ANSWER_S)
    assert len(queue) == 3


def test_an_eta_that_is_none_of_celerys_says_nothing(connection: kombu.Connection) -> None:
    with connection.Producer() as producer:
        producer.publish("one", routing_key="mails", headers={"eta": "tomorrow"})
    message = connection.SimpleQueue("mails").get(timeout=ANSWER_S)
    assert message.headers == {"eta": "tomorrow"}


def test_what_is_given_back_comes_again_however_often(
    escrowmq_broker: Broker, connection: kombu.Connection
) -> None:
    """The seventeenth time made it a dead letter, which took as many seconds."""
    worker = Worker(connection)
    worker.consumer.consume()
    publish(connection, "one")
    worker.wait("one")
    for times in range(2, 21):
        worker.got[-1].reject(requeue=True)
        escrowmq_broker.wait_consumed(WORKERS)
        escrowmq_broker.advance(seconds=2)
        worker.wait(*["one"] * times)
    worker.got[-1].reject()
    escrowmq_broker.wait_consumed(WORKERS)
    assert len(escrowmq_broker.dead(WORKERS)) == 1


@pytest.mark.parametrize("busy_first", [True, False])
def test_an_idle_worker_gets_all_that_a_busy_one_has_not_begun(
    escrowmq_broker: Broker, busy_first: bool
) -> None:
    """In mode `pop`, with as few prefetched as the worker works on. (Of a group that pulls, each
    member owns queues, and what is in a busy one's waits for it.)"""
    escrowmq_broker.create_topic("celery-mails", queues=8)
    options = {"consumer": {"mode": "pop", "prefetch_max": 1, "invisible_ms": 3_600_000}}
    address = f"escrowmq://{escrowmq_broker.nameserver}"
    bodies = [f"task {n}" for n in range(15)]
    with (
        kombu.Connection(address, transport_options=options) as first,
        kombu.Connection(address, transport_options=options) as second,
    ):
        busy, idle = Worker(first), Worker(second)
        for worker in (busy, idle):
            worker.consumer.qos(prefetch_count=1)
        busy.consumer.consume()
        if not busy_first:
            idle.consumer.consume()
        publish(first, *bodies)
        while not busy.got:
            first.drain_events(timeout=ANSWER_S)
        if busy_first:
            idle.consumer.consume()
        while len(idle.got) < 14:
            second.drain_events(timeout=ANSWER_S)
            idle.got[-1].ack()
        assert {message.payload for message in busy.got + idle.got} == {*bodies}
        busy.got[0].ack()
        escrowmq_broker.wait_consumed(WORKERS)


@pytest.mark.parametrize(
    "declared", [{"durable": False}, {"auto_delete": True}], ids=["transient", "auto_delete"]
)
def test_a_queue_that_is_shared_hands_each_task_to_one_worker(
    escrowmq_broker: Broker, declared: dict[str, bool]
) -> None:
    """Each worker ran every task. In mode `pop`, where no queue changes hands as workers come."""
    options = {"consumer": {"mode": "pop", "prefetch_max": 1, "invisible_ms": 3_600_000}}
    queue = kombu.Queue("tasks", kombu.Exchange("tasks"), routing_key="tasks", **declared)
    address = f"escrowmq://{escrowmq_broker.nameserver}"
    bodies = [f"task {n}" for n in range(8)]
    got: list[str] = []

    def work(body: str, message: kombu.Message) -> None:
        got.append(body)
        message.ack()

    with (
        kombu.Connection(address, transport_options=options) as first,
        kombu.Connection(address, transport_options=options) as second,
    ):
        with first.Producer() as producer:
            for body in bodies:  # before there is a worker
                producer.publish(body, exchange="tasks", routing_key="tasks", declare=[queue])
        for connection in (first, second):
            connection.Consumer(queue, callbacks=[work]).consume()
        while len(got) < len(bodies):
            drain(first)
            drain(second)
        escrowmq_broker.wait_consumed("celery-tasks-workers")
    assert sorted(got) == bodies


def test_a_broadcast_reaches_each_worker(escrowmq_broker: Broker) -> None:
    address = f"escrowmq://{escrowmq_broker.nameserver}"
    got: list[list[str]] = [[], []]
    with kombu.Connection(address) as first, kombu.Connection(address) as second:
        for connection, into in zip((first, second), got, strict=True):
            queue = Broadcast("everyone")
            connection.Consumer(queue, on_message=lambda m, i=into: i.append(m.payload)).consume()
        while not all(got):
            with first.Producer() as producer:
                producer.publish("hello", exchange=Broadcast("everyone").exchange)
            drain(first)
            drain(second)
    assert {*got[0], *got[1]} == {"hello"}


def test_answers_come_to_an_exclusive_queue_without_an_exchange(
    connection: kombu.Connection,
) -> None:
    """As clients that call others declare it; it ended in an AssertionError."""
    got: list[kombu.Message] = []
    queue = kombu.Queue("answers-1", exclusive=True)
    connection.Consumer(queue, on_message=got.append).consume()
    with connection.Producer() as producer:
        producer.publish("yes", exchange="", routing_key="answers-1")
    while not got:
        connection.drain_events(timeout=ANSWER_S)
    assert got[0].payload == "yes"


def test_an_exclusive_queue_of_two_exchanges_is_refused(connection: kombu.Connection) -> None:
    """It got the messages of the first alone."""
    bindings = [kombu.binding(kombu.Exchange(name), "key") for name in ("one", "two")]
    queue = kombu.Queue("mine", bindings=bindings, exclusive=True)
    with pytest.raises(UsageError, match=r"'mine' .* 'one' and 'two'; bind it to one"):
        connection.Consumer(queue, on_message=print).consume()


def test_what_is_recovered_is_redelivered_once(
    escrowmq_broker: Broker, connection: kombu.Connection
) -> None:
    """A copy was stored, while the first one was still held."""
    worker = Worker.with_two(connection)
    worker.got[0].ack()
    worker.consumer.recover(requeue=True)
    escrowmq_broker.wait_consumed(WORKERS)
    escrowmq_broker.advance(seconds=2)
    worker.wait("one", "two", "two")
    assert worker.got[-1].delivery_info["redelivered"]
    worker.got[-1].ack()
    escrowmq_broker.wait_consumed(WORKERS)
    assert len(escrowmq_broker.messages("celery-mails")) == 2


def drain(connection: kombu.Connection) -> None:
    with contextlib.suppress(TimeoutError):
        connection.drain_events(timeout=0.1)

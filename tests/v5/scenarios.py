"""What the official Python client does against a front, in a process of its own.

python scenarios.py NAME ENDPOINT TOPIC GROUP [KEY SECRET]: the last line is what was seen, as JSON.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import rocketmq
from rocketmq import (
    ClientConfiguration,
    ConsumeResult,
    Credentials,
    FilterExpression,
    Message,
    MessageListener,
    Producer,
    PushConsumer,
    SimpleConsumer,
    TransactionChecker,
    TransactionResolution,
)

WITHIN_S = 40


class Scene:
    """Who connects where, and what it is about."""

    def __init__(self, endpoint: str, topic: str, group: str, *credentials: str) -> None:
        self.topic = topic
        self.group = group
        self.configuration = ClientConfiguration(endpoint, Credentials(*credentials))

    def message(self, body: bytes, **fields: Any) -> Message:
        found = Message()
        found.topic, found.body = self.topic, body
        for name, value in fields.items():
            setattr(found, name, value)
        return found

    @contextlib.contextmanager
    def producer(self, checker: TransactionChecker | None = None) -> Iterator[Producer]:
        producer = Producer(self.configuration, (self.topic,), checker)
        producer.startup()
        try:
            yield producer
        finally:
            producer.shutdown()

    @contextlib.contextmanager
    def simple(self, expression: str = "*") -> Iterator[SimpleConsumer]:
        subscription = {self.topic: FilterExpression(expression)}
        consumer = SimpleConsumer(self.configuration, self.group, subscription)
        consumer.startup()
        try:
            yield consumer
        finally:
            consumer.shutdown()

    def received(self, consumer: SimpleConsumer, count: int, seconds: int = 15) -> list[Message]:
        found: list[Message] = []
        deadline = time.monotonic() + WITHIN_S
        while len(found) < count and time.monotonic() < deadline:
            found += consumer.receive(16, seconds) or []
        return found


class Listening(MessageListener):  # type: ignore[misc]
    """Keeps what comes, until there is enough of it."""

    def __init__(self, count: int, judge: Callable[[Message], bool] = lambda _: True) -> None:
        self._count = count
        self._judge = judge
        self._lock = threading.Lock()
        self.seen: list[list[Any]] = []
        self.is_enough = threading.Event()

    def consume(self, message: Message) -> ConsumeResult:
        is_well = self._judge(message)
        with self._lock:
            self.seen.append(
                [message.body.decode(), message.delivery_attempt, message.message_group]
            )
            if len(self.seen) >= self._count:
                self.is_enough.set()
        return ConsumeResult.SUCCESS if is_well else ConsumeResult.FAILURE


@contextlib.contextmanager
def pushed(scene: Scene, listener: Listening) -> Iterator[None]:
    subscription = {scene.topic: FilterExpression("*")}
    consumer = PushConsumer(scene.configuration, scene.group, listener, subscription)
    consumer.startup()
    try:
        yield
        listener.is_enough.wait(WITHIN_S)
    finally:
        consumer.shutdown()


def simple(scene: Scene) -> object:
    """Normal messages, received and acknowledged one by one."""
    with scene.producer() as producer:
        for nth in range(5):
            one = scene.message(b"%d" % nth, tag="a" if nth % 2 else "b", keys=f"key-{nth}")
            one.add_property("shop", "3")
            producer.send(one)
    with scene.simple("a") as consumer:
        found = scene.received(consumer, 2)
        for one in found:
            consumer.ack(one)
        return [[one.body.decode(), one.tag, one.keys == {f"key-{one.body.decode()}"},
                 one.properties["shop"], one.delivery_attempt] for one in found]  # fmt: skip


def again(scene: Scene) -> object:
    """A message is hidden for a shorter span, comes again, and is acknowledged then."""
    with scene.producer() as producer, scene.simple() as consumer:
        producer.send(scene.message(b"again"))
        (first,) = scene.received(consumer, 1)
        consumer.change_invisible_duration(first, 1)
        (second,) = scene.received(consumer, 1)
        consumer.ack(second)
        return [first.delivery_attempt, second.delivery_attempt]


def push(scene: Scene) -> object:
    """A push consumer that fails with one message once."""
    listener = Listening(11, lambda one: one.body != b"7" or one.delivery_attempt > 1)
    with scene.producer() as producer, pushed(scene, listener):
        for nth in range(10):
            producer.send(scene.message(b"%d" % nth))
    return [[body, attempt] for body, attempt, _ in listener.seen]


def fifo(scene: Scene) -> object:
    """Two message groups, each in its order."""
    listener = Listening(20)
    with scene.producer() as producer, pushed(scene, listener):
        for nth in range(20):
            producer.send(scene.message(b"%d" % nth, message_group=f"g{nth % 2}"))
    return [[body, group] for body, _, group in listener.seen]


def delay(scene: Scene) -> object:
    """A message for later: how late it was delivered, and that another one was recalled."""
    due_s = int(time.time()) + 3
    with scene.producer() as producer, scene.simple() as consumer:
        recalled = producer.send(scene.message(b"recalled", delivery_timestamp=due_s))
        producer.recall_message(scene.topic, recalled.recall_handle)
        producer.send(scene.message(b"late", delivery_timestamp=due_s))
        found = scene.received(consumer, 1)
        return [[one.body.decode() for one in found], time.time() >= due_s]


class Checking(TransactionChecker):  # type: ignore[misc]
    """Knows the outcome by the body."""

    def check(self, message: Message) -> TransactionResolution:
        return (
            TransactionResolution.COMMIT
            if message.body.startswith(b"good")
            else TransactionResolution.ROLLBACK
        )


def transactions(scene: Scene) -> object:
    """One committed, one rolled back, and two orphans, of which the checker knows."""
    with scene.producer(Checking()) as producer, scene.simple() as consumer:
        for body in (b"committed", b"rolled back", b"good orphan", b"bad orphan"):
            transaction = producer.begin_transaction()
            producer.send(scene.message(body), transaction)
            if body == b"committed":
                transaction.commit()
            elif body == b"rolled back":
                transaction.rollback()
        return sorted(one.body.decode() for one in scene.received(consumer, 2))


def half(scene: Scene) -> object:
    """A half whose producer ends without a word; what it is known by."""
    with scene.producer(Checking()) as producer:
        transaction = producer.begin_transaction()
        receipt = producer.send(scene.message(b"left"), transaction)
        sys.stdout.write(json.dumps([receipt.transaction_id]) + "\n")
        sys.stdout.flush()
        os._exit(0)


def refused(scene: Scene) -> object:
    """Somebody without the right to it."""
    try:
        with scene.producer() as producer:
            producer.send(scene.message(b"mine"))
    except Exception as error:  # noqa: BLE001 - whatever the client makes of it
        return str(error)
    return "sent"


def main() -> int:
    """Play one scene."""
    name, *place = sys.argv[1:]
    scenes: dict[str, Callable[[Scene], object]] = {
        each.__name__: each
        for each in (simple, again, push, fifo, delay, transactions, half, refused)
    }
    found = scenes[name](Scene(*place))
    sys.stdout.write(json.dumps(found) + "\n")
    sys.stdout.flush()
    os._exit(0)  # the client leaves threads behind


if __name__ == "__main__":
    assert rocketmq
    sys.exit(main())

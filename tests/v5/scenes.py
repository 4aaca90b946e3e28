"""What the official Python client of RocketMQ 5 does against a front; README.md has the scenes."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable
from typing import Any, Final

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

WITHIN_S = 60


class Scene:
    """Who connects where, and what it is about."""

    def __init__(self, endpoint: str, topic: str, group: str, *credentials: str) -> None:
        self.topic = topic
        self.group = group
        # On a busy machine a start may take longer than the three seconds that are usual.
        self.configuration = ClientConfiguration(
            endpoint, Credentials(*credentials), request_timeout=15
        )
        self.is_secure = os.environ.get("ESCROW_TLS") == "1"

    def message(self, body: str, **fields: Any) -> Message:
        found = Message()
        found.topic, found.body = self.topic, body.encode()
        for name, value in fields.items():
            setattr(found, name, value)
        return found

    def producer(self) -> Producer:
        producer = Producer(
            self.configuration, (self.topic,), Checking(), tls_enable=self.is_secure
        )
        producer.startup()
        return producer

    def consumer(self, expression: str = "*") -> SimpleConsumer:
        subscription = {self.topic: FilterExpression(expression)}
        consumer = SimpleConsumer(
            self.configuration, self.group, subscription, 5, tls_enable=self.is_secure
        )
        consumer.startup()
        return consumer

    def received(self, count: int, *, expression: str = "*", hidden_s: int = 15) -> list[Message]:
        """What is received and acknowledged until there is enough."""
        consumer = self.consumer(expression)
        found: list[Message] = []
        deadline = time.monotonic() + WITHIN_S
        while len(found) < count and time.monotonic() < deadline:
            for one in consumer.receive(16, hidden_s) or []:
                consumer.ack(one)
                found.append(one)
        return found

    def bodies(self, count: int) -> list[str]:
        return sorted(text(one) for one in self.received(count))

    def pushed(
        self, count: int, work: Callable[[], None], judge: Callable[[Message], bool]
    ) -> list[str]:
        """What a push consumer has got when there is enough."""
        listener = Listening(count, judge)
        subscription = {self.topic: FilterExpression("*")}
        consumer = PushConsumer(
            self.configuration, self.group, listener, subscription, tls_enable=self.is_secure
        )
        consumer.startup()
        work()
        listener.is_enough.wait(WITHIN_S)
        return list(listener.seen)


class Checking(TransactionChecker):  # type: ignore[misc]
    """Knows the outcome by the body."""

    def check(self, message: Message) -> TransactionResolution:
        return (
            TransactionResolution.COMMIT
            if message.body.startswith(b"good")
            else TransactionResolution.ROLLBACK
        )


class Listening(MessageListener):  # type: ignore[misc]
    """Keeps what comes, until there is enough of it."""

    def __init__(self, count: int, judge: Callable[[Message], bool]) -> None:
        self._count = count
        self._judge = judge
        self._lock = threading.Lock()
        self.seen: list[str] = []
        self.is_enough = threading.Event()

    def consume(self, message: Message) -> ConsumeResult:
        with self._lock:
            self.seen.append(f"{text(message)}:{message.delivery_attempt}")
            if len(self.seen) >= self._count:
                self.is_enough.set()
        return ConsumeResult.SUCCESS if self._judge(message) else ConsumeResult.FAILURE


def text(message: Message) -> str:
    body: str = message.body.decode()
    name = body.rstrip("x")
    return f"{name}*{len(body) - len(name)}" if len(body) - len(name) > 1_000 else body


def line() -> None:
    tell("HELD")
    sys.stdin.readline()


def patiently(work: Callable[[], object]) -> None:
    """Do it as soon as the channel, which waits between its attempts, is connected again."""
    deadline = time.monotonic() + WITHIN_S
    while True:
        try:
            work()
        except Exception as error:
            is_away = any(word in str(error) for word in ("UNAVAILABLE", "DEADLINE_EXCEEDED"))
            if time.monotonic() > deadline or not is_away:
                raise
            time.sleep(0.2)
        else:
            return


def tell(words: str) -> None:
    sys.stdout.write(words + "\n")
    sys.stdout.flush()


def simple(scene: Scene) -> list[str]:
    producer = scene.producer()
    for nth in range(5):
        one = scene.message(f"m{nth}", tag="a", keys=f"k{nth}")
        one.add_property("shop", "3")
        producer.send(one)
    return sorted(
        f"{text(one)}:{one.tag}:{one.properties['shop']}:{one.delivery_attempt}"
        for one in scene.received(5)
    )


def filtered(scene: Scene) -> list[str]:
    """Messages of one tag, with their keys."""
    producer = scene.producer()
    for nth in range(5):
        producer.send(scene.message(f"m{nth}", tag="a" if nth % 2 else "b", keys=f"k{nth}"))
    found = scene.received(2, expression="a")
    return sorted(f"{text(one)}:{one.tag}:{'+'.join(one.keys)}" for one in found)


def again(scene: Scene) -> list[str]:
    """A message is hidden for a shorter span, comes again, and is acknowledged then."""
    producer, consumer = scene.producer(), scene.consumer()
    producer.send(scene.message("again"))
    attempts: list[str] = []
    deadline = time.monotonic() + WITHIN_S
    while len(attempts) < 2 and time.monotonic() < deadline:
        for one in consumer.receive(16, 15) or []:
            attempts.append(f"{text(one)}:{one.delivery_attempt}")
            if len(attempts) == 1:
                consumer.change_invisible_duration(one, 1)
            else:
                consumer.ack(one)
    return attempts


def push(scene: Scene) -> list[str]:
    producer = scene.producer()

    def send() -> None:
        for nth in range(10):
            producer.send(scene.message(f"m{nth}"))

    def judge(one: Message) -> bool:
        return bool(one.body != b"m7" or one.delivery_attempt > 1)

    return sorted(scene.pushed(11, send, judge))


def fifo(scene: Scene) -> list[str]:
    producer = scene.producer()

    def send() -> None:
        for nth in range(20):
            group = f"g{nth % 2}"
            producer.send(scene.message(f"{group}-{nth}", message_group=group))

    return scene.pushed(20, send, lambda _: True)


def delay(scene: Scene) -> list[str]:
    producer = scene.producer()
    due_s = int(time.time()) + 3
    recalled = producer.send(scene.message("recalled", delivery_timestamp=due_s))
    producer.recall_message(scene.topic, recalled.recall_handle)
    producer.send(scene.message("late", delivery_timestamp=due_s))
    return [*scene.bodies(1), "due" if time.time() >= due_s else "early"]


def transactions(scene: Scene) -> list[str]:
    producer = scene.producer()
    for body in ("committed", "rolled-back", "good-orphan", "bad-orphan"):
        transaction = producer.begin_transaction()
        producer.send(scene.message(body), transaction)
        if body == "committed":
            transaction.commit()
        elif body == "rolled-back":
            transaction.rollback()
    return scene.bodies(2)


def dead(scene: Scene) -> list[str]:
    producer = scene.producer()
    seen = scene.pushed(2, lambda: producer.send(scene.message("poison")), lambda _: False)
    line()
    return seen


def acked_later(scene: Scene) -> list[str]:
    scene.producer().send(scene.message("held"))
    consumer = scene.consumer()
    found: list[Message] = []
    while not found:
        found = consumer.receive(1, 30) or []
    line()
    patiently(lambda: consumer.ack(found[0]))
    return [text(found[0])]


def ended_later(scene: Scene) -> list[str]:
    producer = scene.producer()
    transaction = producer.begin_transaction()
    producer.send(scene.message("kept"), transaction)
    line()
    patiently(transaction.commit)
    return scene.bodies(1)


def half(scene: Scene) -> list[str]:
    """A half whose producer ends without a word; what it is known by."""
    producer = scene.producer()
    receipt = producer.send(scene.message("left"), producer.begin_transaction())
    return [receipt.transaction_id]


def send(scene: Scene) -> list[str]:
    producer = scene.producer()
    for body in ("short", "long" + "x" * 20_000):
        producer.send(scene.message(body))
    return ["sent"]


def receive(scene: Scene) -> list[str]:
    return scene.bodies(int(os.environ["ESCROW_COUNT"]))


SCENES: Final[dict[str, Callable[[Scene], list[str]]]] = {
    "ackedLater": acked_later,
    "endedLater": ended_later,
    **{
        each.__name__: each
        for each in (simple, filtered, again, push, fifo, delay, transactions, dead, half)
    },
    "send": send,
    "receive": receive,
}


def main() -> None:
    """Play one scene."""
    name, *place = sys.argv[1:]
    code = 0
    try:
        tell("SEEN " + ",".join(SCENES[name](Scene(*place))))
    except Exception as error:  # noqa: BLE001 - whatever the client makes of it
        tell(f"REFUSED {error}")
        code = 1
    os._exit(code)  # the client leaves threads behind


if __name__ == "__main__":
    main()

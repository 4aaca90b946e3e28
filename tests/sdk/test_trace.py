"""RocketMQ's message trace of our clients, beside that of the Java client, read by RocketMQ's own
tool."""

import re
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest

import escrowmq
from tests.interop import jars, servers
from tests.interop.drivers import JavaDriver, unique
from tests.interop.process import until
from tests.interop.servers import Server

from .conftest import new_topic, start
from .reading import delivered

MISSING = jars.missing_tools("java", "javac", "mvn")
pytestmark = [
    pytest.mark.interop,
    pytest.mark.skipif(bool(MISSING), reason=f"not on this machine: {MISSING}"),
]
TRACE = "RMQ_SYS_TRACE_TOPIC"
OWN = "their-own-trace"
Record = list[str]


@pytest.fixture(scope="module")
def traced(peer: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server with a topic for traces."""
    folder = tmp_path_factory.mktemp("traced")
    # No checks: RocketMQ's broker asks about transactions that have ended, too.
    server = start(peer, folder, traceTopicEnable=True, transactionTimeOut=600_000)
    yield server
    server.kill()


@pytest.fixture(scope="module")
def java(tmp_path_factory: pytest.TempPathFactory) -> Iterator[JavaDriver]:
    """The official Java client."""
    started = JavaDriver("5.3.3", tmp_path_factory.mktemp("driver"))
    yield started
    started.stop()


def records_of(server: Server, topic: str, group: str) -> list[Record]:
    """All records that a group has written, in their order."""
    found: list[Record] = []
    for message in delivered(server, topic, queues=1):
        lines = message.body.decode().split("\x02")
        found += [line.split("\x01") for line in lines if line]
    return [record for record in found if group in record]


def wait_records(server: Server, topic: str, group: str, count: int) -> list[Record]:
    """The records of a group once there are so many."""

    def look() -> list[Record] | None:
        found = records_of(server, topic, group)
        return found if len(found) >= count else None

    found = until(f"{count} records of {group}", look)
    assert len(found) == count, found
    return found


def shape(record: Record) -> list[str]:
    """A record without what differs between two runs: ids, times, costs."""
    differing = {"Pub": (1, 5, 10, 12), "SubBefore": (1, 4, 5), "SubAfter": (1, 2, 3, 7)}
    differing["EndTransaction"] = (1, 5, 10)
    for index in differing[record[0]]:
        assert record[index] not in ("", "null"), (index, record)
    return [text for index, text in enumerate(record) if index not in differing[record[0]]]


def retrying_once() -> Callable[[escrowmq.Delivery], None]:
    seen: set[str] = set()

    def handle(message: escrowmq.Delivery) -> None:
        if message.body == b"again" and message.message_id not in seen:
            message.retry()
        seen.add(message.message_id)

    return handle


def act_ours(server: Server, topic: str, group: str, trace: bool | str = True) -> str:
    """What is done with our clients, and below the same with Java's; the first message's id."""
    producing: dict[str, Any] = {"group": f"P{group}", "trace": trace}
    consuming: dict[str, Any] = {"group": f"C{group}", "trace": trace, "handler": retrying_once()}
    with (
        escrowmq.Producer(server.nameserver, **producing) as producer,
        escrowmq.Consumer(server.nameserver, topic=topic, **consuming),
    ):
        first = producer.send(topic, b"abc", tag="a", keys=["k1", "k2"])
        producer.send(topic, b"again", keys="again")
        for outcome in (escrowmq.Outcome.COMMIT, escrowmq.Outcome.ROLLBACK):
            producer.transaction(topic, b"tx", keys=[outcome.name]).begin().settle(outcome)
        wait_all(server, trace if isinstance(trace, str) else TRACE, group)
    return first.message_id


def act_java(server: Server, topic: str, group: str, java: JavaDriver) -> None:
    settings: dict[str, Any] = {"enableTrace": True, "traceTopic": OWN}
    producer = java.transaction_producer(server.nameserver, f"P{group}", **settings)
    consumer = java.consumer(
        server.nameserver, topic, group=f"C{group}", failures={"again": 1},
        consumeFromWhere="CONSUME_FROM_FIRST_OFFSET", **settings,
    )  # fmt: skip
    producer.send(topic, b"abc", tag="a", keys="k1 k2")
    producer.send(topic, b"again", keys="again")
    for outcome in ("COMMIT", "ROLLBACK"):
        producer.transaction(topic, b"tx", keys=outcome, outcome=outcome)
    wait_all(server, OWN, group)
    producer.close(wait=True)
    consumer.close(wait=True)


def wait_all(server: Server, trace: str, group: str) -> list[Record]:
    """Four sends, two ends; four messages consumed, one of them twice."""
    found = wait_records(server, trace, f"P{group}", 6)
    return found + wait_records(server, trace, f"C{group}", 8)


def shapes(records: list[Record], *, topic: str, group: str) -> list[list[str]]:
    return sorted(
        [text.replace(topic, "T").replace(group, "G") for text in shape(record)]
        for record in records
    )


def test_our_records_are_those_of_the_java_client(traced: Server, java: JavaDriver) -> None:
    servers.new_topic(traced, OWN, queues=1)
    found: list[list[list[str]]] = []
    for act in (partial(act_java, java=java), partial(act_ours, trace=OWN)):
        topic, group = new_topic(traced), unique("G")
        act(traced, topic, group)
        found.append(shapes(wait_all(traced, OWN, group), topic=topic, group=group))
    theirs, ours = found
    assert ours == theirs


@pytest.mark.parametrize("client", ["plain", "pop", "orderly"])
def test_mqadmin_shows_who_sent_and_who_consumed(
    traced: Server, java: JavaDriver, client: str
) -> None:
    topic, group = new_topic(traced), unique("G")
    modes: dict[str, dict[str, Any]] = {
        "plain": {}, "pop": {"mode": "pop"}, "orderly": {"is_orderly": True},
    }  # fmt: skip
    more = modes[client]
    with escrowmq.Producer(traced.nameserver, group=f"P{group}", trace=True) as producer:
        sent = producer.send(topic, b"x", keys=["k"])
    with escrowmq.Consumer(
        traced.nameserver, group=f"C{group}", topic=topic, trace=True, **more
    ) as consumer:
        next(iter(consumer)).ack()

    def look() -> str | None:
        shown = java.mqadmin("queryMsgTraceById", "-n", traced.nameserver, "-i", sent.message_id)
        return shown if f"P{group}" in shown and f"C{group}" in shown else None

    shown = until("both are shown", look)
    assert re.search(rf"^Pub\s+P{group}\s.*success", shown, re.MULTILINE), shown
    assert re.search(rf"^Sub\s+C{group}\s.*success", shown, re.MULTILINE), shown

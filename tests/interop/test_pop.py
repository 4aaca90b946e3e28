"""POP mode: the broker shares out messages one by one."""

from __future__ import annotations

import base64
import json
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from escrowmq.base.message import StoredMessage
from escrowmq.codec.record import decode_records

from . import wire
from .conftest import SETTINGS
from .drivers import Consumer, JavaDriver, unique
from .process import until
from .servers import AFTER_US, Server, new_topic

pytestmark = pytest.mark.parametrize(
    "java", [pytest.param("java-5.3.3", marks=pytest.mark.long), "java-5.5.0"], indirect=True
)


def test_pop_consumers_share_one_queue(server: Server, java: JavaDriver, topic: str) -> None:
    group = pop_group(server, java, topic)
    consumers = [
        java.consumer(server.nameserver, topic, group=group, clientRebalance=False)
        for _ in range(2)
    ]
    producer = java.producer(server.nameserver)

    def is_shared() -> bool:
        producer.send(topic, "x", queueId=0)
        return all(consumer.received() for consumer in consumers)

    until("both consumers are given messages of one queue", is_shared)


def test_failed_pop_message_comes_back(server: Server, java: JavaDriver, topic: str) -> None:
    group = pop_group(server, java, topic)
    consumer = java.consumer(
        server.nameserver, topic, group=group, clientRebalance=False, failures={"bad": 1}
    )
    producer = java.producer(server.nameserver)
    producer.send(topic, "bad", keys="bad")
    got = consumer.received(2, within_s=60)
    assert [one.text for one in got] == ["bad", "bad"]
    assert got[1].reconsume_times == 1


def pop_group(server: Server, java: JavaDriver, topic: str) -> str:
    group = unique("CG")
    printed = java.mqadmin(
        *("setConsumeMode", "-n", server.nameserver, "-c", "DefaultCluster"),
        *("-t", topic, "-g", group, "-m", "POP", "-q", "8"),
    )
    assert "success" in printed
    return group


# -- by the wire alone: what the client's own pop loop never does, or not when a test wants it ----


def test_unacknowledged_message_comes_back(server: Server, java: JavaDriver, topic: str) -> None:
    java.producer(server.nameserver).send(topic, "a", queueId=0)
    consumer = Popper(server, topic)
    (first,) = consumer.wait(1, invisible_s=2)
    (again,) = consumer.wait(1, invisible_s=60)
    assert (first.body, first.times) == (again.body, again.times - 1) == (b"a", 0)
    assert again.receipt[4] == "1"
    consumer.ack(again)


def test_acknowledged_messages_do_not_come_back(
    server: Server, java: JavaDriver, topic: str
) -> None:
    producer = java.producer(server.nameserver)
    for text in "abc":
        producer.send(topic, text, queueId=0)
    consumer = Popper(server, topic)
    gots = consumer.wait(3, invisible_s=5)
    consumer.ack(gots[0])
    consumer.ack_batch([one for one in gots if one.body == b"c"])
    (again,) = consumer.wait(1, invisible_s=60)
    assert again.body == b"b"
    assert consumer.pop() == []


def test_changed_invisible_time_counts(server: Server, java: JavaDriver, topic: str) -> None:
    java.producer(server.nameserver).send(topic, "a", queueId=0)
    consumer = Popper(server, topic)
    (first,) = consumer.wait(1, invisible_s=60)
    began_s = time.monotonic()
    consumer.change(first, 2)
    (again,) = consumer.wait(1, invisible_s=60)
    assert again.times == 1
    assert 2 <= time.monotonic() - began_s < 30


def test_orderly_pop_gives_a_queue_to_one_at_a_time(
    server: Server, java: JavaDriver, topic: str
) -> None:
    producer = java.producer(server.nameserver)
    for text in "abc":
        producer.send(topic, text, queueId=0)
    consumer = Popper(server, topic, is_order=True)
    first, second = consumer.wait(2, invisible_s=6, most=2)
    assert consumer.pop() == []
    consumer.ack(first)
    (again,) = consumer.wait(1, invisible_s=60, most=1)
    assert (again.body, again.times) == (second.body, 1)
    consumer.ack(again)
    assert [one.body for one in consumer.wait(1)] == [b"c"]


def test_waiting_pop_wakes_when_a_message_arrives(
    server: Server, java: JavaDriver, topic: str
) -> None:
    producer = java.producer(server.nameserver)
    producer.send(topic, "first", queueId=0)  # so that the client knows the route
    consumer = Popper(server, topic)
    consumer.ack(*consumer.wait(1))
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(consumer.pop, poll_s=14, invisible_s=60)
        until("the pop waits", lambda: consumer.polls() == 1)
        producer.send(topic, "a", queueId=1)
        sent_s = time.monotonic()
        (got,) = waiting.result()
        assert time.monotonic() - sent_s < 10, "woken, and not at the end of its time"
    assert got.body == b"a"


def test_pop_filters(server: Server, java: JavaDriver, topic: str) -> None:
    producer = java.producer(server.nameserver)
    producer.send(topic, "a", tag="x", queueId=0)
    producer.send(topic, "b", tag="y", queueId=0)
    consumer = Popper(server, topic)
    assert [one.body for one in consumer.wait(1, exp="y", expType="TAG")] == [b"b"]
    assert consumer.pop(exp="colour = ", expType="SQL92", code=23) == []


def test_assignment_shares_queues_out(server: Server, java: JavaDriver, topic: str) -> None:
    group = unique("CG")
    consumers = [
        java.consumer(server.nameserver, topic, group=group, instanceName=unique("i"))
        for _ in range(2)
    ]

    def queues(consumer: Consumer) -> list[int]:
        body = {
            "topic": topic, "consumerGroup": group, "clientId": consumer.client_id,
            "messageModel": "CLUSTERING", "strategyName": "AVG",
        }  # fmt: skip
        reply = wire.ask(server.broker, 400, body=json.dumps(body).encode())
        found = json.loads(reply.body).get("messageQueueAssignments") or []
        assert all(one["mode"] == "PULL" for one in found)
        return sorted(one["messageQueue"]["queueId"] for one in found)

    def is_shared() -> bool:
        shares = [queues(consumer) for consumer in consumers]
        return sorted(shares) == [[0, 1], [2, 3]]

    until("each has two queues", is_shared)


@pytest.mark.parametrize("is_killed", [False, True], ids=["stopped", "killed"])
def test_new_start_knows_who_has_what(
    peer: str, java: JavaDriver, tmp_path: Path, is_killed: bool
) -> None:
    if peer == "java" and is_killed:
        pytest.skip("Apache's broker hands out again what it has not noted when it is killed")
    run = Server(peer, tmp_path, SETTINGS).start()
    try:
        consumer = with_two_out(run, java)
        java.close_clients()
        run.kill() if is_killed else run.stop()
        run.start()
        assert_they_are_known(consumer)
    finally:
        run.kill()


# For `make interop`: it waits for the timers of both brokers. tests/unit/broker/test_pop_crash.py
# has the same stores.
@pytest.mark.long
@pytest.mark.parametrize(
    ("writer", "reader"),
    [("java", "peer"), ("peer", "java")],
    ids=["from-java", "to-java"],
)
def test_other_broker_takes_over_what_was_popped(
    peer: str, java: JavaDriver, tmp_path: Path, writer: str, reader: str
) -> None:
    kinds = [peer if name == "peer" else name for name in (writer, reader)]
    settings = SETTINGS | {"mappedFileSizeCommitLog": 64 << 20}
    first_run = Server(kinds[0], tmp_path, settings).start()
    second_run = Server(kinds[1], tmp_path, settings | (AFTER_US if reader != "peer" else {}))
    try:
        consumer = with_two_out(first_run, java)
        java.close_clients()
        first_run.stop()
        second_run.start()
        consumer.server = second_run
        assert_they_are_known(consumer)
    finally:
        first_run.kill()
        second_run.kill()


def with_two_out(run: Server, java: JavaDriver) -> Popper:
    """A group that is done with `a`, has had `b` and `c` for a moment, and has not seen `d`."""
    topic = new_topic(run, unique("T"))
    producer = java.producer(run.nameserver)
    for text in "abcd":
        producer.send(topic, text, queueId=0)
    consumer = Popper(run, topic)
    first, *_ = consumer.wait(3, invisible_s=10, most=3)
    consumer.ack(first)
    return consumer


def assert_they_are_known(consumer: Popper) -> None:
    """However long the start between took: who has not known that they were out hands `b` and `c`
    out as if for the first time, and who does not know of the end of `a` hands it out, too."""
    assert consumer.gather(b"b", b"c", b"d") == {b"b": 1, b"c": 1, b"d": 0}
    assert consumer.pop() == []


@dataclass(frozen=True)
class Popped:
    """A message and its receipt."""

    body: bytes
    offset: int
    times: int
    receipt: tuple[str, ...]


class Popper:
    """A pop consumer of one group, each request on a connection of its own."""

    def __init__(self, server: Server, topic: str, *, is_order: bool = False) -> None:
        self.server = server
        self.topic = topic
        self.group = unique("CG")
        self.is_order = is_order

    def pop(
        self, *, poll_s: int = 0, invisible_s: int = 60, most: int = 32, code: int = 0, **more: str
    ) -> list[Popped]:
        """What is there; nothing when there is nothing."""
        reply = wire.ask(
            self.server.broker,
            200050,
            {
                "consumerGroup": self.group,
                "topic": self.topic,
                "queueId": "-1",
                "maxMsgNums": str(most),
                "invisibleTime": str(invisible_s * 1000),
                "pollTime": str(poll_s * 1000),
                "bornTime": "0",
                "initMode": "0",
                "order": str(self.is_order).lower(),
                **more,
            },
        )
        if reply.code in (209, 210) or reply.code == code != 0:
            return []
        assert reply.code == 0, reply
        return [self._receive(record, reply.fields) for record in decode_records(reply.body)]

    def _receive(self, record: StoredMessage, fields: dict[str, str]) -> Popped:
        receipt = record.properties.get("POP_CK")
        if receipt is None:
            starts = dict(item.rsplit(" ", 1) for item in fields["startOffsetInfo"].split(";"))
            receipt = (
                f"{starts[f'0 {record.queue_id}']} {fields['popTime']} {fields['invisibleTime']} "
                f"{fields['reviveQid']} 0 broker-a {record.queue_id} {record.queue_offset}"
            )
        counts = dict(
            item.rsplit(" ", 1)
            for item in filter(None, fields.get("orderCountInfo", "").split(";"))
        )
        times = int(counts.get(f"0 qo{record.queue_id}%{record.queue_offset}", 0))
        return Popped(
            record.body,
            record.queue_offset,
            times or record.reconsume_times,
            tuple(receipt.split(" ")),
        )

    def wait(self, count: int, *, within_s: float = 60, **options: Any) -> list[Popped]:
        """So many messages, in as many pops as it takes."""
        found: list[Popped] = []

        def is_enough() -> bool:
            if "most" in options:  # who wants no more than these must not take others beside them
                options["most"] = count - len(found)
            found.extend(self.pop(**options))
            return len(found) >= count

        until(f"{count} messages are popped", is_enough, within_s=within_s)
        assert len(found) == count
        return found

    def gather(self, *bodies: bytes) -> dict[bytes, int]:
        """Everything there is until these have come, with how often each came before; kept."""
        found: dict[bytes, int] = {}

        def is_enough() -> bool:
            found.update({one.body: one.times for one in self.pop(invisible_s=600)})
            return found.keys() >= set(bodies)

        until(f"{bodies} are popped", is_enough, within_s=90)
        return found

    def ack(self, *gots: Popped) -> None:
        """Be done with messages."""
        for got in gots:
            reply = wire.ask(self.server.broker, 200051, self._fields(got))
            assert reply.code == 0, reply

    def ack_batch(self, gots: list[Popped]) -> None:
        """The same by one request; all of one pop and one queue."""
        start, pop_ms, invisible_ms, revive, kind, _, queue, _ = gots[0].receipt
        bits = sum(1 << got.offset - int(start) for got in gots)
        ack = {
            "b": base64.b64encode(bits.to_bytes(4, "little").rstrip(b"\0")).decode(),
            "c": self.group, "it": int(invisible_ms), "pt": int(pop_ms), "q": int(queue),
            "r": kind, "rq": int(revive), "so": int(start), "t": self.topic,
        }  # fmt: skip
        body = json.dumps({"acks": [ack], "brokerName": "broker-a"}).encode()
        reply = wire.ask(self.server.broker, 200151, body=body)
        assert reply.code == 0, reply

    def change(self, got: Popped, invisible_s: int) -> None:
        """Want a message to be invisible for so long from now on."""
        fields = self._fields(got) | {"invisibleTime": str(invisible_s * 1000)}
        reply = wire.ask(self.server.broker, 200053, fields)
        assert reply.code == 0, reply

    def polls(self) -> int:
        """How many pops of the group wait."""
        fields = {"consumerGroup": self.group, "topic": self.topic, "queueId": "-1"}
        return int(wire.ask(self.server.broker, 200055, fields).fields["pollingNum"])

    def _fields(self, got: Popped) -> dict[str, str]:
        is_retry = got.receipt[4] == "1"
        return {
            "consumerGroup": self.group,
            "topic": f"%RETRY%{self.group}_{self.topic}" if is_retry else self.topic,
            "queueId": got.receipt[6],
            "extraInfo": " ".join(got.receipt),
            "offset": str(got.offset),
        }

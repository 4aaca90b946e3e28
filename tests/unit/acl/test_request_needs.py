from __future__ import annotations

import json
from collections.abc import Iterable, Mapping

import pytest

from escrowmq.acl.acl1_accounts import ANY, PUB, SUB
from escrowmq.acl.request_needs import (
    ADMIN,
    AdminNeeded,
    Need,
    is_inner_topic,
    matches_only_inner,
)
from escrowmq.base.codes import Request
from escrowmq.base.command import Command
from escrowmq.codec.recall_handle import RecallHandle, encode_recall_handle
from escrowmq.errors import EscrowMQError, UsageError
from tests.unit.acl.rights import rights_of


class Places:
    """A log with a message of `stored` at offset 7, and an open transaction of two topics."""

    reply_topic = "C_REPLY_TOPIC"

    def topics_of_end(self, request: Command) -> Iterable[str]:
        return ["one", "two"]

    def topic_at(self, log_offset: int) -> str | None:
        return "stored" if log_offset == 7 else None

    def has_offsets(self, group: str, topic: str) -> bool:
        return group == "g" and topic.startswith("%RETRY%g_")

    def request_topic_of_reply(self, properties: Mapping[str, str]) -> str | None:
        return "asked" if properties.get("CORRELATION_ID") == "known" else None

    def has_topic(self, topic: str) -> bool:
        return topic in ("T", "a_b")


def needed(code: int, *, as_rocketmq: bool = False, body: bytes = b"", **ext: str) -> object:
    found = rights_of(
        Command(code=code, ext=ext, body=body), Places(), as_rocketmq=as_rocketmq
    ).needs()
    return found if isinstance(found, AdminNeeded) else [(n.resource, n.right) for n in found]


def test_sends_and_reads() -> None:
    assert needed(10, topic="T", b="x") == [("T", PUB)]
    assert needed(310, b="T", topic="x") == [("T", PUB)]
    assert needed(310, b="%RETRY%g") == [("%RETRY%g", SUB)]
    assert needed(11, topic="T", consumerGroup="g") == [("%RETRY%g", SUB), ("T", SUB)]
    assert needed(30, topic="T") == [("T", ANY)]
    assert needed(35, clientID="c") == []


def in_body(code: int, body: object) -> object:
    return needed(code, body=json.dumps(body).encode())


def test_bodies_are_read() -> None:
    both = [("%RETRY%g", SUB), ("U", SUB)]
    consumer = {"groupName": "g", "subscriptionDataSet": [{"topic": "U"}]}
    assert in_body(34, {"clientID": "c", "consumerDataSet": [consumer]}) == both
    assert in_body(34, {"clientID": "c", "producerDataSet": [{"groupName": "p"}]}) == []
    assert in_body(34, {"clientID": "c", "consumerDataSet": [{"groupName": "g"}]}) == both[:1]
    queue = {"topic": "U", "brokerName": "b", "queueId": 0}
    assert in_body(41, {"consumerGroup": "g", "mqSet": [queue, queue]}) == both
    assert in_body(46, {"group": "g", "subscriptionData": {"topic": "U"}}) == both
    assert in_body(46, {"group": "g"}) == both[:1]
    assert in_body(400, {"consumerGroup": "g", "topic": "U"}) == both
    assert in_body(200151, {"acks": [{"c": "g", "t": "U"}]}) == both
    for code in (34, 41, 46, 400, 200151):
        with pytest.raises(EscrowMQError):
            needed(code, body=b"{")


def test_handles_and_replies() -> None:
    handle = encode_recall_handle(
        RecallHandle(topic="U", broker_name="b", deliver_ms=1, unique_key="k")
    )
    assert needed(370, topic="V", recallHandle=handle) == [("V", PUB), ("U", PUB)]
    with pytest.raises(UsageError):
        needed(370, topic="V", recallHandle="?")
    assert needed(324, topic="C_REPLY_TOPIC") == [("C_REPLY_TOPIC", PUB)]
    assert needed(325, b="U") == [("U", PUB)]
    known = "REPLY_TO_CLIENT\x01c\x02CORRELATION_ID\x01known\x02"
    assert needed(324, topic="C_REPLY_TOPIC", properties=known) == [("asked", SUB)]
    assert needed(325, b="C_REPLY_TOPIC", i=known) == [("asked", SUB)]
    assert needed(325, b="U", i=known) == [("U", PUB)]


def test_half_of_an_epoch_needs_the_right_to_its_group() -> None:
    epoch = "PGROUP\x01g\x02escrowEpoch\x01q/1\x02"
    assert needed(310, b="T", i=epoch) == [("T", PUB), ("%RETRY%g", PUB)]
    assert needed(10, topic="T", properties=epoch) == [("T", PUB), ("%RETRY%g", PUB)]
    assert needed(310, b="T", i=epoch, as_rocketmq=True) == [("T", PUB)]


def test_what_need_not_be_there_needs_nothing() -> None:
    assert needed(208, consumerGroup="g") == [("%RETRY%g", SUB)]
    assert needed(208, consumerGroup="g", topic="U") == [("%RETRY%g", SUB), ("U", SUB)]
    assert needed(36, offset="8", group="g", delayLevel="0") == [("%RETRY%g", SUB)]


def test_what_is_stored_decides() -> None:
    assert needed(37, topic="x") == [("one", PUB), ("two", PUB)]
    assert needed(33, offset="7", topic="x") == [("stored", SUB)]
    assert needed(33, offset="8", topic="x") == [("x", SUB)]
    assert needed(33, offset="8") == [("", SUB)]
    back = needed(36, offset="7", group="g", delayLevel="0", originTopic="x")
    assert back == [("%RETRY%g", SUB), ("stored", SUB)]
    with pytest.raises(UsageError):
        needed(33, offset="seven")


def test_a_retry_topic_of_pops_needs_its_group_and_its_topic() -> None:
    popped = [("%RETRY%g", SUB), ("T", SUB)]
    for topic in ("%RETRY%g_T", "%RETRY%g+T"):
        plain = [("%RETRY%h", SUB), (topic, SUB)]
        assert needed(11, topic=topic, consumerGroup="h") == plain + popped
        assert needed(11, as_rocketmq=True, topic=topic, consumerGroup="h") == plain
    two = needed(38, consumerGroup="g_a_b")
    assert two == [("%RETRY%g_a_b", SUB), ("%RETRY%g", SUB), ("a_b", SUB)]
    assert needed(38, consumerGroup="g_v2") == [("%RETRY%g_v2", SUB)]
    # A group whose name merely ends in a topic's; nobody has popped anything into its topic.
    assert needed(38, consumerGroup="billing_T") == [("%RETRY%billing_T", SUB)]
    assert needed(200051, topic="%RETRY%g_T", consumerGroup="g") == popped


def test_the_peer_asks_for_less() -> None:
    assert needed(37, as_rocketmq=True) == []
    assert needed(33, as_rocketmq=True, offset="7") == []
    assert needed(36, as_rocketmq=True, offset="7", group="g") == [("%RETRY%g", SUB)]
    assert needed(9999, as_rocketmq=True) == []
    assert needed(17, as_rocketmq=True, topic="T") is ADMIN
    assert needed(11, as_rocketmq=True, topic="rmq_sys_x", consumerGroup="g") != ADMIN


def test_whatever_is_not_in_the_table_is_for_administrators() -> None:
    assert needed(9999) is ADMIN
    assert needed(Request.ESCROW_SETTLE) is ADMIN
    assert {code for code in range(7701, 7709) if needed(code) is not ADMIN} == set()


def test_the_brokers_own_topics() -> None:
    assert is_inner_topic("RMQ_SYS_TRANS_HALF_TOPIC")
    assert is_inner_topic("rmq_sys_wheel_timer")
    assert not is_inner_topic("RMQ_SYS_TRACE_TOPIC")
    assert not is_inner_topic("TBW102")
    need = Need("SCHEDULE_TOPIC_XXXX", PUB)
    assert needed(310, b="SCHEDULE_TOPIC_XXXX") == AdminNeeded("SCHEDULE_TOPIC_XXXX", (need,))


@pytest.mark.parametrize(
    ("beginning", "does"),
    [
        ("RMQ_SYS_TRANS", True), ("rmq_sys_", True), ("rmq_sys_REVIVE", True),
        ("SCHEDULE_TOPIC", True), ("RMQ_SYS", False), ("", False), ("orders-of-all", False),
    ],
)  # fmt: skip
def test_beginnings_that_can_only_mean_the_brokers_own_topics(beginning: str, does: bool) -> None:
    assert matches_only_inner(beginning) == does


def test_needs_are_values() -> None:
    assert Need("T", PUB) == Need("T", PUB)
    assert len({Need("T", PUB), Need("T", PUB), Need("T", SUB)}) == 2

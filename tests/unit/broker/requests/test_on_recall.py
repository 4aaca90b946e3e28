from __future__ import annotations

import msgspec
import pytest

from escrowmq.base.broker_settings import BrokerSettings
from escrowmq.base.codes import Request
from escrowmq.base.command import Command
from escrowmq.codec.recall_handle import decode_recall_handle, encode_recall_handle
from tests.harness.exchange import SMALL, Caller, Exchange


@pytest.fixture(name="client")
def make_client() -> Caller:
    exchange = Exchange(BrokerSettings(allows_recall=True))
    exchange.create_topic("T")
    return exchange.connect()


def sent_later(client: Caller, span_ms: int = 10_000) -> str:
    reply = client.send("T", b"later", TIMER_DELAY_MS=str(span_ms))
    return (reply.ext or {})["recallHandle"]


def recall(client: Caller, handle: str, topic: str = "T") -> Command:
    return client.ask(Request.RECALL_MESSAGE, {"topic": topic, "recallHandle": handle})


def test_recalled_message_is_not_delivered(client: Caller) -> None:
    handle = sent_later(client)
    reply = recall(client, handle)
    assert (reply.code, reply.ext) == (0, {"msgId": decode_recall_handle(handle).unique_key})
    client.exchange.advance(20_000)
    assert client.bodies("T") == []


def test_recall_is_answered_when_it_is_on_disk() -> None:
    exchange = Exchange(
        BrokerSettings(allows_recall=True), msgspec.structs.replace(SMALL, is_sync_flush=True)
    )
    exchange.create_topic("T")
    client = exchange.connect()
    handle = sent_later(client)
    exchange.holds_syncs = True
    fields = {"topic": "T", "recallHandle": handle}
    recalled = client.begin(Request.RECALL_MESSAGE, fields)
    assert not recalled
    exchange.sync()
    assert recalled.now.code == 0


def test_recall_counts_although_the_disk_is_full_for_its_entry_in_the_queue(
    client: Caller,
) -> None:
    exchange = client.exchange
    in_a_block = 4_096 // 20
    for _ in range(in_a_block - 1):
        client.send("T", b"other", TIMER_DELAY_MS="60000")
    handle = sent_later(client)
    exchange.disk.room = exchange.disk.used
    assert recall(client, handle).code == 0
    exchange.advance(9_990)
    exchange.disk.room = None
    exchange.advance(5_000)
    assert client.bodies("T") == []


def test_message_that_is_not_recalled_is_delivered(client: Caller) -> None:
    handle = sent_later(client)
    client.send("T", b"other", TIMER_DELAY_MS="10000")
    recall(client, handle)
    client.exchange.advance(20_000)
    assert client.bodies("T") == [b"other"]


def test_recall_is_forbidden_by_default() -> None:
    reply = recall(Exchange().connect(), "x")
    assert (reply.code, reply.remark) == (16, "recall failed, operation is forbidden")


def test_refusals(client: Caller) -> None:
    client.send("U")
    handle = sent_later(client)
    known = decode_recall_handle(handle)
    cases = [
        (recall(client, handle, "X"), 17, "recall failed, the topic[X] not exist"),
        (recall(client, "!!"), 604, "recall handle is invalid"),
        (recall(client, "AAAA"), 604, "recall handle is invalid"),
        (recall(client, handle, "U"), 604, "recall failed, topic not match"),
    ]
    for handle_fields, remark in (
        ({"broker_name": "other"}, "recall failed, broker service not available"),
        ({"deliver_ms": 5}, "recall failed, timestamp invalid"),
        ({"deliver_ms": 1 << 60}, "recall failed, timestamp invalid"),
    ):
        handle_text = encode_recall_handle(msgspec.structs.replace(known, **handle_fields))
        cases.append((recall(client, handle_text), 604, remark))
    for reply, code, remark in cases:
        assert (reply.code, reply.remark) == (code, remark)


def test_message_cannot_be_recalled_after_its_time(client: Caller) -> None:
    handle = sent_later(client, 2_000)
    client.exchange.advance(5_000)
    assert recall(client, handle).remark == "recall failed, timestamp invalid"
    assert client.bodies("T") == [b"later"]


def test_full_disk_is_told_with_1(client: Caller) -> None:
    handle = sent_later(client, 60_000)
    client.exchange.disk.used_percent = 95
    client.exchange.advance(10_100)
    reply = recall(client, handle)
    assert (reply.code, reply.remark) == (1, "recall failed, execute error")

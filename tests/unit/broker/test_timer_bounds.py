"""Limits of the messages that wait for a delivery time."""

from __future__ import annotations

import pytest

from escrowmq.base import fixed_limits
from escrowmq.base.broker_settings import BrokerSettings
from escrowmq.base.codes import Request
from escrowmq.base.command import Command
from escrowmq.base.message import SysFlag
from escrowmq.codec.recall_handle import RecallHandle, encode_recall_handle
from escrowmq.delivery import timer, timer_quotas
from tests.harness.caller import Caller
from tests.harness.exchange import Exchange

FULL = "timer message is under flow control: "


@pytest.fixture(name="exchange")
def make_exchange(monkeypatch: pytest.MonkeyPatch) -> Exchange:
    monkeypatch.setattr(fixed_limits, "TIMER_PENDING_MAX", 16)
    monkeypatch.setattr(fixed_limits, "TIMER_PENDING_OF_TOPIC_MAX", 8)
    monkeypatch.setattr(fixed_limits, "TIMER_PENDING_RESERVED", 4)
    monkeypatch.setattr(timer, "PENDING_MAX", 18)
    monkeypatch.setattr(timer_quotas, "FEW", 2)
    exchange = Exchange(BrokerSettings(allows_recall=True))
    for topic in ("A", "B", "C"):
        exchange.create_topic(topic)
    return exchange


def fill(client: Caller, topic: str) -> int:
    """Send messages for tomorrow until they are refused; return how many were accepted."""
    for count in range(100):
        reply = client.send(topic, TIMER_DELAY_SEC="86400")
        client.exchange.advance(0)
        if reply.code:
            assert (reply.remark or "").startswith(FULL)
            return count
    raise AssertionError("never full")


def test_messages_for_tomorrow_do_not_hold_up_those_for_now(exchange: Exchange) -> None:
    client = exchange.connect()
    assert fill(client, "A") == 8
    assert fill(client, "B") == 4
    assert client.send("C", b"soon", TIMER_DELAY_SEC="1").code == 0
    exchange.advance(2_000)
    assert client.bodies("C") == [b"soon"]
    assert client.send("A", b"now").code == 0, "it waits for nothing"
    exchange.advance(86_400_000)
    assert client.send("A", TIMER_DELAY_SEC="86400").code == 0


def recall_any(client: Caller, topic: str, number: int, span_ms: int = 80_000_000) -> Command:
    """Recall a message that need not exist: its handle is easily made."""
    handle = RecallHandle(
        topic=topic,
        broker_name=client.exchange.core.broker.settings.name,
        deliver_ms=client.exchange.now_ms + span_ms,
        unique_key=f"u{number}",
    )
    fields = {"topic": topic, "recallHandle": encode_recall_handle(handle)}
    reply = client.ask(Request.RECALL_MESSAGE, fields)
    client.exchange.advance(0)
    return reply


def test_recalls_of_one_topic_leave_room_for_others(exchange: Exchange) -> None:
    """They were not counted for their topic, and could take all of the timer's memory."""
    client = exchange.connect()
    codes = [recall_any(client, "A", number).code for number in range(20)]
    assert codes == [0] * 8 + [1] * 12
    assert fill(client, "B") == 4
    exchange.advance(86_400_000)
    assert client.send("A", TIMER_DELAY_SEC="86400").code == 0
    assert fill(client, "B") == 8


def test_a_recall_that_cannot_be_remembered_is_refused(
    exchange: Exchange, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It was acknowledged, and the message was delivered all the same."""
    monkeypatch.setattr(fixed_limits, "TIMER_RECALLS_MAX", 4)
    monkeypatch.setattr(fixed_limits, "TIMER_RECALLS_OF_TOPIC_MAX", 2)
    client = exchange.connect()
    replies = [
        recall_any(client, *each, 9_000) for each in (("A", 1), ("A", 2), ("A", 3), ("B", 1))
    ]
    assert [(reply.code, reply.remark) for reply in replies] == [
        (0, None),
        (0, None),
        (1, "recall failed, 2 recalls of messages of A wait for their time"),
        (0, None),
    ]
    assert recall_any(client, "C", 1, 9_000).code == 0
    reply = recall_any(client, "B", 2, 9_000)
    assert reply.remark == "recall failed, 4 recalls wait for the time of their message"
    assert "no messages of B are recalled for now: 4 recalls wait" in caplog.text
    exchange.advance(20_000)
    assert recall_any(client, "B", 2).code == 0


def test_refused_messages_and_refused_recalls_of_a_topic_are_both_logged(
    exchange: Exchange, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(fixed_limits, "TIMER_RECALLS_OF_TOPIC_MAX", 0)
    client = exchange.connect()
    fill(client, "A")
    assert recall_any(client, "A", 1).code == 1
    assert "A gets no more delayed messages for now: 8 messages of A wait" in caplog.text
    assert "no messages of A are recalled for now: 0 recalls of messages of A wait" in caplog.text


def test_a_half_that_would_wait_is_refused_and_one_that_was_accepted_is_not(
    exchange: Exchange,
) -> None:
    client = exchange.connect()
    client.heartbeat(producer="PG")
    early = client.prepare("A", b"early", TIMER_DELAY_SEC="1", escrowDelay="true")
    assert fill(client, "A") == 8
    reply = client.send(
        "A", b"late", TRAN_MSG="true", PGROUP="PG", TIMER_DELAY_SEC="1", escrowDelay="true"
    )
    assert (reply.remark or "").startswith(FULL)
    assert client.end(early, SysFlag.COMMIT).code == 0
    exchange.advance(2_000)
    assert client.bodies("A") == [b"early"]

"""Limits of the messages that wait for a delivery time."""

from __future__ import annotations

import pytest

from escrowmq.base import fixed_limits
from escrowmq.base.message import SysFlag
from escrowmq.delivery import timer, timer_shares
from tests.harness.caller import Caller
from tests.harness.exchange import Exchange

FULL = "timer message is under flow control: "


@pytest.fixture(name="exchange")
def make_exchange(monkeypatch: pytest.MonkeyPatch) -> Exchange:
    monkeypatch.setattr(fixed_limits, "TIMER_PENDING_MAX", 16)
    monkeypatch.setattr(fixed_limits, "TIMER_PENDING_OF_TOPIC_MAX", 8)
    monkeypatch.setattr(fixed_limits, "TIMER_PENDING_RESERVED", 4)
    monkeypatch.setattr(timer, "PENDING_MAX", 18)
    monkeypatch.setattr(timer_shares, "FEW", 2)
    exchange = Exchange()
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

from __future__ import annotations

import pytest
from tests.harness.exchange import COMMIT, START_MS, Exchange, half_of_check

from escrowmq.base.command import Command
from escrowmq.codec.command import encode_command


def test_reply_that_is_not_there_yet_is_an_error_to_ask_for() -> None:
    exchange = Exchange()
    exchange.create_topic("T")
    pending = exchange.connect().begin_pull("T", hold_ms=1_000)
    assert not pending
    with pytest.raises(AssertionError, match="no reply yet"):
        _ = pending.now


def test_second_reply_and_reply_to_nothing_are_noticed() -> None:
    caller = Exchange().connect()
    caller.send("T")
    reply = encode_command(Command(code=0, opaque=1, flag=1))
    with pytest.raises(AssertionError, match="a second reply"):
        caller.hear(reply)
    with pytest.raises(AssertionError, match="a reply to nothing"):
        caller.hear(encode_command(Command(code=0, opaque=99, flag=1)))


def test_requests_of_the_broker_are_kept_until_they_are_taken() -> None:
    exchange = Exchange()
    caller = exchange.connect()
    caller.heartbeat(producer="PG")
    half = caller.prepare("T", b"paid")
    exchange.advance(6_100)
    assert caller.take(40) == []
    (check,) = caller.take(39)
    assert half_of_check(check).log_offset == half.log_offset
    assert caller.take() == []


def test_time_stands_still_unless_it_is_advanced() -> None:
    exchange = Exchange()
    exchange.connect().send("T")
    assert exchange.now_ms == START_MS
    exchange.advance(5)
    assert exchange.now_ms == START_MS + 5


def test_connections_do_not_outlive_a_restart_but_what_was_stored_does() -> None:
    exchange = Exchange()
    caller = exchange.connect()
    half = caller.prepare("T", b"paid")
    exchange.crash()
    assert caller.closed == "the broker is gone"
    again = exchange.connect()
    assert again.end(half, COMMIT).code == 0
    exchange.reopen()
    assert exchange.connect().bodies("T") == [b"paid"]

"""The machine's clock is set: forward, and timeouts keep their full length; back, and what is
stored then is found."""

from __future__ import annotations

import msgspec

from escrowmq.base.codes import Request
from escrowmq.codec.record import decode_records
from tests.harness.exchange import COMMIT, SMALL, Caller, Exchange

LEAP_MS = 600_000
HOUR_MS = 3_600_000


def leap(exchange: Exchange, by_ms: int = LEAP_MS) -> None:
    """As the shell tells it: before the clock shows it."""
    exchange.core.clock_leapt(by_ms)
    exchange.now_ms += by_ms
    exchange.advance(0)


def checks(producer: Caller) -> int:
    return len(producer.take(Request.CHECK_TRANSACTION_STATE))


def members(exchange: Exchange) -> tuple[list[str], list[str]]:
    clients = exchange.core.broker.clients
    return list(clients.producers), list(clients.consumers)


def test_clients_stay_members_of_their_groups() -> None:
    exchange = Exchange()
    exchange.create_topic("T")
    client = exchange.connect("c")
    client.heartbeat(producer="PG")
    client.heartbeat(consumer="CG", topic="T")
    exchange.advance(10_000)
    leap(exchange)
    exchange.advance(30_000)
    assert members(exchange) == (["PG"], ["CG"])
    exchange.advance(120_000)
    assert members(exchange) == ([], [])


def test_a_half_is_checked_no_earlier() -> None:
    exchange = Exchange()
    exchange.create_topic("T")
    producer = exchange.connect("p")
    producer.heartbeat(producer="PG")
    immune = producer.prepare("T", CHECK_IMMUNITY_TIME_IN_SECONDS="60")
    exchange.advance(1_000)
    leap(exchange)
    exchange.advance(58_000)
    assert checks(producer) == 0
    exchange.advance(3_000)
    assert checks(producer) == 1
    assert producer.end(immune, COMMIT, is_from_check=True).code == 0


def test_a_half_is_given_up_by_the_age_that_its_record_has_then() -> None:
    """As retention counts, which deletes the record."""
    exchange = Exchange()
    exchange.create_topic("T")
    producer = exchange.connect("p")
    half = producer.prepare("T", CHECK_IMMUNITY_TIME_IN_SECONDS="3600")
    exchange.advance(1_000)
    leap(exchange, exchange.core.broker.store_settings.reserved_hours * HOUR_MS)
    pending = exchange.core.transactions.engine.halves.pending
    assert half.queue_offset not in pending


def test_a_check_that_is_under_way_has_its_time_and_counts_once_it_was_heard() -> None:
    exchange = Exchange()
    exchange.create_topic("T")
    producer = exchange.connect("p")
    producer.heartbeat(producer="PG")
    half = producer.prepare("T")
    exchange.advance(6_500)
    assert checks(producer) == 1
    leap(exchange)
    checker = exchange.core.transactions.checker
    assert [queue_offset for queue_offset, _ in checker.unanswered_checks()] == [half.queue_offset]
    exchange.leave(producer)
    assert exchange.core.transactions.engine.halves.pending.checks_count(half.queue_offset) == 0


def test_an_answer_waits_for_the_disk_as_long_as_it_may() -> None:
    exchange = Exchange(store_settings=msgspec.structs.replace(SMALL, is_sync_flush=True))
    exchange.create_topic("T")
    sender = exchange.connect("p")
    exchange.holds_syncs = True
    waiting = sender.begin_send("T")
    exchange.advance(5)
    leap(exchange)
    assert waiting.reply is None
    exchange.sync()
    assert waiting.reply is not None
    assert waiting.reply.code == 0


def set_back(exchange: Exchange, by_ms: int) -> None:
    """The clock was ahead, and is right at the next start."""
    exchange.advance(5_000)
    exchange.reopen(back_ms=by_ms)


AHEAD_MS = 3 * 86_400_000


def test_what_is_stored_after_the_clock_was_corrected_is_found_by_its_key() -> None:
    exchange = Exchange()
    exchange.create_topic("T")
    exchange.connect("a").send("T", b"wrong clock", KEYS="k", UNIQ_KEY="u1")
    set_back(exchange, AHEAD_MS)
    producer = exchange.connect("b")
    producer.send("T", b"right clock", KEYS="k", UNIQ_KEY="u2")
    half = producer.prepare("T", b"half", UNIQ_KEY="tx1")
    exchange.advance(5_000)
    fields = {"topic": "T", "key": "k", "maxNum": "32", "beginTimestamp": "0"}
    reply = producer.ask(Request.QUERY_MESSAGE, fields | {"endTimestamp": str(exchange.now_ms)})
    assert [message.body for message in decode_records(reply.body)] == [b"right clock"]
    operator = exchange.connect("operator", host="127.0.0.1")
    shown = operator.ask(Request.ESCROW_SHOW, {}, b'{"messageId":"tx1"}')
    assert shown.code == 0
    assert producer.end(half, COMMIT).code == 0


def test_dead_letters_of_a_clock_that_was_ahead_are_given_back_once() -> None:
    exchange = Exchange()
    exchange.create_topic("T")
    consumer = exchange.connect("a")
    consumer.heartbeat(consumer="CG", topics={"T": "*"})
    consumer.send("T", b"poison", UNIQ_KEY="u1")
    (message,) = consumer.messages("T")
    fields = {
        "offset": str(message.log_offset), "group": "CG", "delayLevel": "-1",
        "originMsgId": "u1", "originTopic": "T", "maxReconsumeTimes": "0",
    }  # fmt: skip
    assert consumer.ask(Request.CONSUMER_SEND_MSG_BACK, fields).code == 0
    set_back(exchange, AHEAD_MS)
    for _ in range(2):
        operator = exchange.connect("operator", host="127.0.0.1")
        assert operator.ask(Request.ESCROW_REDELIVER_DEAD, {}, b'{"group":"CG"}').code == 0
        exchange.advance(5_000)
        exchange.reopen()
    assert exchange.connect("x").bodies("%RETRY%CG") == [b"poison"]

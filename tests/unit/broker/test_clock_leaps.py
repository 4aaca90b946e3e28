"""The machine's clock is set forward: timeouts keep their full length."""

from __future__ import annotations

import msgspec

from escrowmq.base.codes import Request
from tests.harness.exchange import COMMIT, SMALL, Caller, Exchange

LEAP_MS = 600_000


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
    assert [queue_offset for queue_offset, _ in checker.asked()] == [half.queue_offset]
    exchange.leave(producer)
    assert exchange.core.transactions.engine.halves.pending.checks(half.queue_offset) == 0


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

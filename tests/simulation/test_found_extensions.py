"""Bugs of what transactions offer beyond RocketMQ's that the simulator found, each cut down to its
shortest case."""

from __future__ import annotations

import msgspec
import pytest
from tests.harness.exchange import COMMIT, ROLLBACK, SMALL, Caller, Exchange, Half, half_of_check
from tests.sim.world import World

from escrowmq.base.broker_settings import BrokerSettings
from escrowmq.base.codes import Request
from escrowmq.base.message import Topic
from escrowmq.codec import fastjson
from escrowmq.testing.disk import CrashLoss

CHECK = Request.CHECK_TRANSACTION_STATE
SYNCED = msgspec.structs.replace(SMALL, is_sync_flush=True)
ONE_CHECK = BrokerSettings(transaction_checks_max=1)


def two(producer: Caller, *, name: str = "tx") -> list[Half]:
    """One transaction over two topics."""
    return [producer.prepare(topic, b"m", escrowTransaction=name) for topic in ("T", "U")]


def given_up(exchange: Exchange) -> list[Half]:
    """A transaction of two messages that nobody settled."""
    producer = exchange.connect("client")
    producer.heartbeat(producer="PG")
    halves = two(producer)
    exchange.advance(100_000)
    assert exchange.connect().bodies(Topic.CHECK_MAX_TIME) == [b"m", b"m"]
    return halves


def resume(exchange: Exchange, **body: object) -> int:
    """Resume what was given up; so many are pending again."""
    admin = exchange.connect(host="127.0.0.1")
    pending = admin.begin(Request.ESCROW_DISCARDED_RESUME, body=fastjson.encode(body))
    if exchange.holds_syncs:
        exchange.sync()
    reply = pending.now
    assert reply.code == 0, reply.remark
    return int(fastjson.decode_fastjson(reply.body).get("count", 0))


def seen(exchange: Exchange) -> int:
    """Messages of both topics that a consumer sees."""
    reader = exchange.connect()
    return len(reader.bodies("T")) + len(reader.bodies("U"))


def test_a_delay_that_cannot_be_kept_is_refused_although_the_half_is_marked_as_one() -> None:
    """Clients mark a half as prepared; the delay, asked what it would do, let those pass."""
    reply = Exchange().connect().send(
        "T", TRAN_MSG="true", PGROUP="PG", DELAY="soon", escrowDelay="true", fields={"f": "4"}
    )  # fmt: skip
    assert reply.code == 13


def test_an_end_with_a_count_that_is_none_settles_nothing() -> None:
    """Optional numbers that cannot be read count as absent: the safeguard was passed over."""
    exchange = Exchange()
    producer = exchange.connect()
    half = producer.prepare("T", b"m", wants_id=True)
    for count in ("many", "-1", "", "9" * 30):
        assert producer.end(half, COMMIT, fields={"escrowCount": count}).code == 1
        assert producer.end_by_id(half.escrow_id, COMMIT, escrowCount=count).code == 1
    assert producer.bodies("T") == []


def test_a_name_whose_transaction_was_rolled_back_is_not_begun_again_after_a_restart() -> None:
    """Worlds 4717 and 5593: the next process had not heard of its end. A half that came late
    was committed alone, so that the transaction was visible in part."""
    exchange = Exchange(store_settings=SYNCED)
    producer = exchange.connect()
    assert producer.end(two(producer)[0], ROLLBACK).code == 0
    exchange.crash(CrashLoss.ALL)
    late = exchange.connect().send(
        "T", TRAN_MSG="true", PGROUP="PG", escrowTransaction="tx", fields={"f": "4"}
    )
    assert late.code == 13
    assert World(5593).run().done["audits"]


@pytest.mark.parametrize("seed", range(20))
def test_what_a_start_makes_whole_is_seen_whole_from_the_first_moment_on(seed: int) -> None:
    """SYNC_FLUSH: the first message had survived and was seen, those that the start added only
    after the first sync."""
    exchange = Exchange(store_settings=SYNCED, seed=seed)
    halves = two(exchange.connect())
    exchange.holds_syncs = True
    exchange.connect().begin_end(halves[0], COMMIT)
    exchange.crash(CrashLoss.PREFIX, seed=seed)
    assert seen(exchange) in (0, 2)


def test_a_transaction_is_not_seen_in_part_while_the_disk_is_full() -> None:
    """There was room for the messages in the log, and none for the unit of the second."""
    exchange = Exchange()
    producer = exchange.connect()
    producer.end(producer.prepare("T", b"before"), COMMIT)
    halves = two(producer)
    assert seen(exchange) == 1  # the reader's group is kept while there is room for its table
    exchange.disk.room = exchange.disk.used
    assert producer.end(halves[0], COMMIT).code == 14
    assert seen(exchange) == 1
    exchange.disk.room = None
    exchange.advance(2_000)
    assert producer.end(halves[0], COMMIT).code == 0
    assert seen(exchange) == 3


@pytest.mark.parametrize("body", [{"limit": 1}, {}])
def test_a_transaction_that_was_given_up_is_resumed_whole(body: dict[str, object]) -> None:
    exchange = Exchange(ONE_CHECK)
    halves = given_up(exchange)
    assert resume(exchange, **body) == 2
    assert exchange.connect().end(halves[1], COMMIT).code == 0
    assert seen(exchange) == 2


def test_a_message_is_resumed_with_all_of_its_transaction_as_at_the_peer() -> None:
    exchange = Exchange(ONE_CHECK)
    given_up(exchange)
    admin = exchange.connect(host="127.0.0.1")
    items = fastjson.decode_fastjson(admin.ask(Request.ESCROW_DISCARDED_LIST).body)["items"]
    ext = {"msgId": items[1]["offsetId"]}
    assert admin.ask(Request.RESUME_CHECK_HALF_MESSAGE, ext).code == 0
    assert len(exchange.core.transactions.engine.halves.pending) == 2


def test_a_transaction_that_was_resumed_in_part_is_not_committed_in_part() -> None:
    """The broker died between the two halves that it stored again."""
    exchange = Exchange(ONE_CHECK)
    given_up(exchange)
    (first, _) = exchange.connect().messages(Topic.CHECK_MAX_TIME)
    exchange.core.transactions.engine.resume_half(first, exchange.now_ms)
    exchange.crash(CrashLoss.NOTHING)
    producer = exchange.connect("client")
    producer.heartbeat(producer="PG")
    exchange.advance(10_000)
    (check,) = producer.take(CHECK)
    reply = producer.end(half_of_check(check), COMMIT, is_from_check=True)
    assert (reply.code, seen(exchange)) == (1, 0)
    assert resume(exchange) == 1
    assert producer.end(half_of_check(check), COMMIT, is_from_check=True).code == 0
    assert seen(exchange) == 2


def test_a_message_is_resumed_once_though_it_was_given_up_twice() -> None:
    """SYNC_FLUSH: the index did not know yet what had been resumed a moment before."""
    exchange = Exchange(ONE_CHECK, SYNCED)
    given_up(exchange)
    assert resume(exchange) == 2
    exchange.advance(100_000)
    exchange.holds_syncs = True
    assert resume(exchange) == 2


@pytest.mark.parametrize("restarts", [0, 1, 2])
def test_an_end_of_what_was_given_up_and_resumed_is_told_the_same_always(restarts: int) -> None:
    """By the offsets of the first half: before a restart it was told that it was given up, after
    one it ended the resumed half, and then it was told again that it was given up."""
    exchange = Exchange(ONE_CHECK)
    half = given_up(exchange)[0]
    assert exchange.connect().end(half, COMMIT).code == 202
    resume(exchange)
    for _ in range(restarts):
        exchange.reopen()
    assert exchange.connect().end(half, COMMIT).code == 0
    for _ in range(restarts):
        exchange.reopen()
    caller = exchange.connect()
    assert (caller.end(half, COMMIT).code, caller.end(half, ROLLBACK).code) == (0, 200)
    assert seen(exchange) == 2


def test_a_signed_id_does_not_hit_the_half_that_took_the_place_of_a_lost_one() -> None:
    """ASYNC_FLUSH: after a loss of power another half stood at both offsets of the id."""
    exchange = Exchange()
    lost = exchange.connect().prepare("T", b"a", wants_id=True, UNIQ_KEY="K1")
    exchange.crash(CrashLoss.ALL)
    producer = exchange.connect(host="127.0.0.1")
    other = producer.prepare("T", b"b", wants_id=True, UNIQ_KEY="K2")
    assert (other.queue_offset, other.log_offset) == (lost.queue_offset, lost.log_offset)
    assert producer.end_by_id(lost.escrow_id, COMMIT).code == 1
    body = fastjson.encode({"id": lost.escrow_id, "verdict": "commit"})
    assert producer.ask(Request.ESCROW_SETTLE, body=body).code == 1
    assert producer.bodies("T") == []
    assert producer.end_by_id(other.escrow_id, COMMIT).code == 0


def test_a_half_that_nobody_can_be_asked_about_is_given_up_when_it_is_too_old() -> None:
    """It was pending for ever, although its record was deleted."""
    exchange = Exchange(store_settings=msgspec.structs.replace(SMALL, reserved_hours=1))
    exchange.connect().prepare("T", b"m")
    exchange.advance(3_500_000)
    engine = exchange.core.transactions.engine
    assert list(engine.halves.pending) == [0]
    exchange.advance(200_000)
    assert list(engine.halves.pending) == []
    assert exchange.core.transactions.checker.parked_groups() == []
    assert exchange.connect().bodies(Topic.CHECK_MAX_TIME) == [b"m"]


def test_a_delay_is_kept_after_the_clock_was_set_back_and_the_broker_started_again() -> None:
    exchange = Exchange()
    producer = exchange.connect()
    producer.prepare("T", b"before")
    exchange.now_ms -= 90_000
    exchange.reopen()
    producer = exchange.connect()
    half = producer.prepare("T", b"later", DELAY="3", escrowDelay="true")
    assert producer.end(half, COMMIT).code == 0
    exchange.advance(5_000)
    assert producer.bodies("T") == []

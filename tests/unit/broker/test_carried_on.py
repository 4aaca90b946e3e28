"""What waits goes on when the clock was wrong once, topics change, and nobody answers."""

from __future__ import annotations

import logging

import msgspec
import pytest

from escrowmq.base.broker_settings import BrokerSettings
from escrowmq.base.codes import Request
from escrowmq.base.store_settings import StoreSettings
from escrowmq.testing.disk import CrashLoss, SimDisk
from tests.harness.caller import Caller
from tests.harness.exchange import COMMIT, ROLLBACK, SMALL, START_MS, Exchange, Half

DAY_MS = 86_400_000
CHECK = Request.CHECK_TRANSACTION_STATE


def after_a_wrong_clock(days: int, *, is_killed: bool) -> Exchange:
    """A broker whose clock was days ahead for one message and one half, and is right again."""
    disk = SimDisk()
    disk.now_ms = START_MS
    exchange = Exchange(disk=disk)
    exchange.create_topic("T", 1)
    caller = exchange.connect()
    caller.send("T", b"before")
    exchange.now_ms += days * DAY_MS
    caller.send("T", b"ahead")
    caller.prepare("T", b"old half", group="PG")
    if not is_killed:
        exchange.core.close(exchange.now_ms)
        disk.restart()
    exchange._forget()
    if is_killed:
        disk.restart()
    exchange.now_ms = START_MS + 60_000
    exchange._open()
    return exchange


@pytest.mark.parametrize("is_killed", [False, True])
@pytest.mark.parametrize("days", [2, 30, 300])
def test_a_clock_that_was_days_ahead_once_delays_neither_checks_nor_deliveries(
    days: int, is_killed: bool
) -> None:
    exchange = after_a_wrong_clock(days, is_killed=is_killed)
    assert exchange.now_ms == START_MS + 60_000
    caller = exchange.connect()
    caller.heartbeat(producer="PG")
    half = caller.prepare("T", b"tx", group="PG")
    row = exchange.core.transactions.engine.halves.pending.row(half.queue_offset)
    assert (row.stored_ms, row.due_ms) == (exchange.now_ms, exchange.now_ms + 6_000)
    caller.send("T", b"in 10 s", DELAY="3")
    exchange.advance(50)
    assert b"in 10 s" not in caller.bodies("T")
    exchange.advance(10_000)
    assert b"in 10 s" in caller.bodies("T")
    assert len(caller.take(CHECK)) == 2, "the half of the wrong time is asked about as well"
    exchange.crash()
    assert set(exchange.connect().bodies("T")) == {b"before", b"ahead", b"in 10 s"}


def test_what_waited_for_a_queue_that_is_gone_comes_into_one_that_is_read() -> None:
    exchange = Exchange()
    exchange.create_topic("T", 8)
    caller = exchange.connect()
    half = caller.prepare("T", b"paid", group="PG", queue_id=7)
    caller.send("T", b"by level", queue_id=6, DELAY="1")
    caller.send("T", b"by time", queue_id=5, TIMER_DELAY_SEC="2")
    caller.send("T", b"still read", queue_id=1, DELAY="1")
    exchange.create_topic("T", 4)
    assert caller.end(half, COMMIT).code == 0
    exchange.advance(5_000)
    assert {queue: caller.bodies("T", queue) for queue in range(8)} == {
        0: [], 1: [b"still read", b"by time"], 2: [b"by level"], 3: [b"paid"],
        4: [], 5: [], 6: [], 7: [],
    }  # fmt: skip


def test_a_queue_that_is_not_written_but_read_still_gets_what_waited_for_it() -> None:
    exchange = Exchange()
    exchange.create_topic("T", 8)
    caller = exchange.connect()
    half = caller.prepare("T", b"paid", group="PG", queue_id=7)
    exchange.create_topic("T", 8, writeQueueNums="4")
    assert caller.end(half, COMMIT).code == 0
    assert caller.bodies("T", 7) == [b"paid"]


def test_parked_halves_that_are_ended_otherwise_leave_nothing_behind() -> None:
    exchange = Exchange()
    exchange.create_topic("T", 1)
    caller = exchange.connect()
    halves = [caller.prepare("T", b"x", group="jobs", wants_id=True) for _ in range(20)]
    exchange.advance(7_000)
    engine = exchange.core.transactions.engine
    assert len(engine.halves.parked["jobs"]) == 20
    for half in halves:
        assert caller.end_by_id(half.escrow_id, COMMIT).code == 0
    assert engine.halves.parked == {}


# -- clean-up under what is pending --------------------------------------------------------------

SEGMENTED = msgspec.structs.replace(SMALL, log_segment_size=1 << 16, reserve_size=1 << 14)


def on_a_full_disk(*, is_sync: bool = False, seed: int = 0) -> tuple[Exchange, Caller]:
    """A broker with small segments; `clean_up` makes its disk too full for a while."""
    disk = SimDisk()
    disk.now_ms = START_MS
    settings = msgspec.structs.replace(SEGMENTED, is_sync_flush=is_sync)
    exchange = Exchange(BrokerSettings(), settings, disk=disk, seed=seed)
    exchange.create_topic("T", 1)
    exchange.create_topic("F", 1)
    caller = exchange.connect()
    caller.heartbeat(producer="PG")
    return exchange, caller


def clean_up(exchange: Exchange) -> None:
    caller = exchange.connect()
    for _ in range(6):
        caller.send("F", b"x" * 20_000)
    exchange.disk.used_percent = 86
    exchange.advance(30_000)
    exchange.disk.used_percent = 10


def begins_behind(exchange: Exchange, half: Half) -> bool:
    return exchange.core.broker.store.min_log_offset > half.log_offset


@pytest.mark.parametrize("is_sync", [False, True])
@pytest.mark.parametrize("verdict", [COMMIT, ROLLBACK])
def test_halves_are_carried_forward_before_their_segment_goes(is_sync: bool, verdict: int) -> None:
    exchange, caller = on_a_full_disk(is_sync=is_sync)
    half = caller.prepare(
        "T", b"h" * 5_000, group="PG", wants_id=True, CHECK_IMMUNITY_TIME_IN_SECONDS="3600"
    )
    other = caller.prepare(
        "T", b"other", group="PG", wants_id=True, CHECK_IMMUNITY_TIME_IN_SECONDS="3600"
    )
    for _ in range(3):  # it is carried more than once
        clean_up(exchange)
    assert begins_behind(exchange, other)
    assert len(exchange.core.transactions.engine.halves.pending) == 2
    assert caller.end(half, verdict).code == 0
    assert caller.end(half, verdict).code == 0, "the outcome is told again"
    assert caller.end_by_id(other.escrow_id, verdict).code == 0
    expected = [b"h" * 5_000, b"other"] if verdict == COMMIT else []
    assert caller.bodies("T") == expected
    exchange.reopen()
    assert exchange.connect().bodies("T") == expected
    assert len(exchange.core.transactions.engine.halves.pending) == 0


def test_a_carried_half_is_asked_about_once_and_answered_by_its_check() -> None:
    exchange, caller = on_a_full_disk()
    caller.prepare("T", b"h", group="PG", CHECK_IMMUNITY_TIME_IN_SECONDS="100")
    clean_up(exchange)
    assert caller.take(Request.CHECK_TRANSACTION_STATE) == []
    exchange.advance(80_000)
    assert len(caller.take(Request.CHECK_TRANSACTION_STATE)) == 1


def test_a_transaction_of_several_messages_is_carried_and_ended_as_a_whole() -> None:
    exchange, caller = on_a_full_disk()
    halves = [
        caller.prepare(
            "T",
            b"%d" % number,
            group="PG",
            escrowTransaction="one",
            CHECK_IMMUNITY_TIME_IN_SECONDS="3600",
        )
        for number in range(3)
    ]
    clean_up(exchange)
    exchange.crash()
    assert begins_behind(exchange, halves[-1])
    caller = exchange.connect()
    assert caller.end(halves[1], COMMIT).code == 0
    assert sorted(caller.bodies("T")) == [b"0", b"1", b"2"]


def test_a_transaction_whose_first_half_alone_is_carried_is_asked_about_all_the_same() -> None:
    """Its copy leads from then on, and its messages keep their order."""
    exchange, caller = on_a_full_disk()
    caller.prepare("T", b"0", group="PG", escrowTransaction="one")
    for _ in range(9):
        caller.send("F", b"x" * 20_000)
    caller.prepare("T", b"1", group="PG", escrowTransaction="one")
    exchange.advance(10_000)
    assert len(caller.take(CHECK)) == 1
    exchange.disk.used_percent = 86
    exchange.advance(30_000)
    exchange.disk.used_percent = 10
    pending = exchange.core.transactions.engine.halves.pending
    assert sorted(pending) == [1, 2]
    caller.take(CHECK)
    exchange.advance(70_000)
    assert caller.take(CHECK), "somebody is asked"
    assert exchange.core.transactions.engine.halves.bundles.is_first_of_bundle(2)


def test_a_sender_may_not_wish_for_more_time_than_halves_are_kept() -> None:
    exchange = Exchange(BrokerSettings(), msgspec.structs.replace(SMALL, reserved_hours=1))
    exchange.create_topic("T", 1)
    caller = exchange.connect()
    caller.heartbeat(producer="PG")
    caller.prepare("T", b"late", group="PG", CHECK_IMMUNITY_TIME_IN_SECONDS="604800")
    exchange.reopen()
    engine = exchange.core.transactions.engine
    assert len(engine.halves.pending) == 1
    caller = exchange.connect()
    caller.prepare("T", b"later", group="PG", CHECK_IMMUNITY_TIME_IN_SECONDS="604800")
    exchange.advance(3_600_000 + 60_000)
    assert len(engine.halves.pending) == 0
    assert engine.halves.counters.expired == 2


@pytest.mark.thorough
@pytest.mark.parametrize("is_sync", [False, True])
@pytest.mark.parametrize("loss", list(CrashLoss))
@pytest.mark.parametrize("seed", range(4))
def test_a_crash_while_halves_are_carried_neither_loses_nor_doubles_any(
    loss: CrashLoss, is_sync: bool, seed: int
) -> None:
    exchange, caller = on_a_full_disk(is_sync=is_sync, seed=seed)
    halves = [
        caller.prepare("T", b"%d" % n, group="PG", CHECK_IMMUNITY_TIME_IN_SECONDS="3600")
        for n in range(10)
    ]
    for _ in range(6):
        caller.send("F", b"x" * 20_000)
    exchange.advance(15_000)  # all of it is durable
    assert exchange.core.broker.store.durable_offset == exchange.core.broker.store.end_offset
    exchange.disk.used_percent = 86
    exchange.holds_syncs = True
    exchange.core.broker.store.retention.request_cleanup()
    exchange.core.wake(exchange.now_ms)
    engine = exchange.core.transactions.engine
    assert len(engine.halves.carried) == 10, "carried, and not durable yet"
    exchange.disk.used_percent = 10
    exchange.holds_syncs = False
    exchange.crash(loss, seed=seed)
    engine = exchange.core.transactions.engine
    assert len(engine.halves.pending) == 10
    exchange.crash(CrashLoss.NOTHING)
    caller = exchange.connect()
    assert [caller.end(half, COMMIT).code for half in halves] == [0] * 10
    assert sorted(caller.bodies("T")) == [b"%d" % n for n in range(10)]
    exchange.crash(CrashLoss.NOTHING)
    assert len(exchange.core.transactions.engine.halves.pending) == 0
    assert sorted(exchange.connect().bodies("T")) == [b"%d" % n for n in range(10)]


def test_a_copy_without_its_op_record_stands_for_the_half_before_it() -> None:
    exchange, caller = on_a_full_disk()
    half = caller.prepare("T", b"h", group="PG", CHECK_IMMUNITY_TIME_IN_SECONDS="3600")
    exchange.core.transactions.carrier.carry(1 << 40, exchange.now_ms)
    # It dies before the op record is written.
    exchange.core.transactions.engine.unsealed.ends.clear()
    exchange.crash()
    engine = exchange.core.transactions.engine
    assert list(engine.halves.pending) == [half.queue_offset + 1]
    caller = exchange.connect()
    assert caller.end(half, COMMIT).code == 0
    exchange.crash()
    assert exchange.connect().bodies("T") == [b"h"]


@pytest.mark.parametrize(
    ("days", "hours", "delay_max_s"), [(2, 72, 259_200), (5, 72, 7 * 86_400), (2, 24, 259_200)]
)
def test_a_delivery_time_beyond_retention_is_kept(days: int, hours: int, delay_max_s: int) -> None:
    disk = SimDisk()
    disk.now_ms = START_MS
    store: StoreSettings = msgspec.structs.replace(
        SMALL, reserved_hours=hours, clean_interval_ms=600_000, queue_flush_interval_ms=600_000
    )
    settings = BrokerSettings(timer_delay_max_s=delay_max_s, offsets_flush_ms=600_000)
    exchange = Exchange(settings, store, disk=disk)
    exchange.create_topic("T", 1)
    caller = exchange.connect()
    due_ms = exchange.now_ms + days * DAY_MS
    assert caller.send("T", b"rent", TIMER_DELIVER_MS=str(due_ms), UNIQ_KEY="K1").code == 0
    for _ in range(30):
        caller.send("T", b"x" * 90_000)
    for _ in range((days + 4) * 24):
        exchange.now_ms += 3_600_000
        disk.now_ms = exchange.now_ms
        for _ in range(3):
            exchange.core.wake(exchange.now_ms)
            exchange._perform()
        if exchange.now_ms == due_ms + 3_600_000:
            assert [body for body in caller.bodies("T") if body == b"rent"] == [b"rent"]
    assert exchange.core.broker.store.min_log_offset > 0, "then its segment goes"
    assert exchange.core.assembly.measuring.set_aside_count() == 0


def test_a_segment_that_is_kept_is_told_once_and_counted(
    caplog: pytest.LogCaptureFixture,
) -> None:
    exchange, caller = on_a_full_disk()
    caller.send("T", b"later", TIMER_DELAY_SEC="7200")
    with caplog.at_level(logging.WARNING):
        clean_up(exchange)
        clean_up(exchange)
    lines = [record.getMessage() for record in caplog.records]
    assert len([line for line in lines if "is past its retention time and is kept" in line]) == 1
    assert exchange.core.broker.store.retention.kept_count > 0

"""What waits goes on when the clock was wrong once, topics change, and nobody answers."""

from __future__ import annotations

import pytest

from escrowmq.base.codes import Request
from escrowmq.testing.exchange import COMMIT, START_MS, Exchange
from escrowmq.testing.sim.disk import SimDisk

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
    row = exchange.core._ends.engine.pending.row(half.queue_offset)
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
    engine = exchange.core._ends.engine
    assert len(engine.parked["jobs"]) == 20
    for half in halves:
        assert caller.end_by_id(half.escrow_id, COMMIT).code == 0
    assert engine.parked == {}

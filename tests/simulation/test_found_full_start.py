"""What the simulator found where a broker starts on a full disk, cut down to its shortest case:
queues wait there for room, and what their records say counts all the same."""

from __future__ import annotations

import msgspec
import pytest
from tests.harness.exchange import COMMIT, ROLLBACK, SMALL, Exchange
from tests.sim.reading import Reading
from tests.sim.stage import Violation
from tests.sim.world import World

from escrowmq.base.codes import Request
from escrowmq.base.message import Topic
from escrowmq.testing.disk import CrashLoss


def started_without_room(exchange: Exchange, folder: str, units_left: int = 0) -> None:
    """The units of a topic, or of a file of its queue, went with the power, and there is no room
    for new ones."""
    disk = exchange.disk
    for path in [path for path in disk.files if path.startswith(f"consumequeue/{folder}")]:
        removed = disk.files.pop(path)
        disk.used -= 4096 * len(removed.blocks)
    disk.small.pop("queues.json", None)
    disk.room = disk.used
    exchange.crash(CrashLoss.NOTHING)
    topic = folder.partition("/")[0]
    assert exchange.core.broker.store.bounds(topic, 0) == (0, units_left), "it waits for room"


def ops(exchange: Exchange) -> int:
    return exchange.core.broker.store.bounds(Topic.OP, 0)[1]


def test_an_end_counts_although_its_op_record_has_no_unit_yet() -> None:
    """The op records behind the queue's end were not read: who was rolled back was asked about
    again, and could be committed; who was committed got a second op record."""
    exchange = Exchange(store_settings=msgspec.structs.replace(SMALL, reserve_size=1 << 16))
    caller = exchange.connect()
    for verdict in (COMMIT, ROLLBACK):
        assert caller.end(caller.prepare("T", b"x", group="PG"), verdict).code == 0
    exchange.advance(10_000)
    started_without_room(exchange, Topic.OP)
    caller = exchange.connect()
    caller.heartbeat(producer="PG")
    exchange.advance(60_000)
    assert not caller.take(Request.CHECK_TRANSACTION_STATE)
    assert len(exchange.core.transactions.engine.halves.pending) == 0
    exchange.disk.room = None
    exchange.advance(60_000)
    assert ops(exchange) == 2
    exchange.crash(CrashLoss.NOTHING)
    assert len(exchange.core.transactions.engine.halves.pending) == 0


def test_a_half_is_pending_although_it_has_no_unit_yet() -> None:
    """It was in nobody's index until the next start: nobody was asked, and an END found nothing."""
    exchange = Exchange(store_settings=msgspec.structs.replace(SMALL, reserve_size=1 << 16))
    caller = exchange.connect()
    half = caller.prepare("T", b"waits", group="PG")
    exchange.advance(1_000)
    started_without_room(exchange, Topic.HALF)
    assert [*exchange.core.transactions.engine.halves.pending] == [half.queue_offset]
    exchange.disk.room = None
    exchange.advance(60_000)
    caller = exchange.connect()
    caller.heartbeat(producer="PG")
    exchange.advance(60_000)
    assert caller.take(Request.CHECK_TRANSACTION_STATE)
    assert caller.end(half, COMMIT).code == 0
    assert caller.bodies("T") == [b"waits"]


def test_a_half_that_was_ended_is_not_pending_because_it_has_no_unit_yet() -> None:
    """World 6129: a snapshot was taken while the half waited for its unit. It accounted for the op
    record, and not for the half: the next start found that pending."""
    two_units = msgspec.structs.replace(SMALL, queue_segment_size=40, reserve_size=1 << 16)
    exchange = Exchange(store_settings=two_units)
    caller = exchange.connect()
    halves = [caller.prepare("T", b"%d" % n, group="PG") for n in range(7)]
    for half in halves:
        if half.queue_offset not in (0, 5):
            assert caller.end(half, ROLLBACK).code == 0
    exchange.advance(10_000)
    started_without_room(exchange, f"{Topic.HALF}/0/{120:020d}", 6)
    transactions = exchange.core.transactions
    transactions.snapshot_ms, transactions.snapshot_min = 1_000, 2
    assert [*transactions.engine.halves.pending] == [0, 5]
    exchange.advance(10_000)
    exchange.reopen()
    assert [*exchange.core.transactions.engine.halves.pending] == [0, 5]


def test_the_world_in_which_a_half_was_given_up_and_nothing_said_so_keeps_its_promises() -> None:
    """7393: tests/unit/txn/test_engine.py has its shortest case."""
    assert World(7393).run().done["audits"]


def test_the_judge_counts_a_half_that_has_no_unit_yet() -> None:
    """He took it for one that was lost, and for one that is pending although it was ended."""
    exchange = Exchange(store_settings=msgspec.structs.replace(SMALL, reserve_size=1 << 16))
    caller = exchange.connect()
    open_half = caller.prepare("T", b"open", group="PG")
    ended = caller.prepare("T", b"ended", group="PG")
    assert caller.end(ended, COMMIT).code == 0
    exchange.advance(10_000)
    before = Reading(())
    before.advance(exchange.core.broker.store)
    started_without_room(exchange, Topic.HALF)
    found = Reading((), before)
    found.advance(exchange.core.broker.store)
    before.check_survivors(found, durable_offset=exchange.core.broker.store.end_offset)
    assert found.stored() == before.stored()
    assert found.open_halves() == {open_half.queue_offset}
    assert [*exchange.core.transactions.engine.halves.pending] == [open_half.queue_offset]
    with pytest.raises(Violation, match="was durable and is gone"):
        before.check_survivors(Reading(()), durable_offset=exchange.core.broker.store.end_offset)

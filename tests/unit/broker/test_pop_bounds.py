"""Limits of pops, and disks that are full."""

from __future__ import annotations

import errno

import pytest

from escrowmq.broker import pop_reader
from escrowmq.delivery import pop_ledger
from escrowmq.delivery.pop_ledger import DUE_MAX, GRACE_MS
from escrowmq.store.store import Store

from .consumer import PopConsumer
from .world import World, bodies


def make(count: int = 1) -> tuple[World, PopConsumer]:
    world = World()
    world.topic()
    for index in range(count):
        world.send(str(index))
    return world, PopConsumer(world)


def test_a_wake_settles_no_more_than_so_many_check_points() -> None:
    world, consumer = make(600)
    for _ in range(600):
        consumer.pop(maxMsgNums=1)
    world.now_ms += 10_000 + GRACE_MS
    ledger = world.core.assembly.pops.ledger
    assert [ledger.due(world.now_ms) for _ in range(4)] == [DUE_MAX, DUE_MAX, 600 - 2 * DUE_MAX, 0]


def test_nothing_is_handed_out_beyond_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pop_ledger, "CHECK_POINTS_MAX", 2)
    _, consumer = make(3)
    gots = [got for _ in range(3) for got in consumer.pop(maxMsgNums=1)]
    assert [got.body for got in gots] == ["0", "1"]
    consumer.ack(gots[0])
    assert [got.body for got in consumer.pop()] == ["2"]


def test_a_group_that_acknowledges_nothing_leaves_room_for_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(pop_ledger, "CHECK_POINTS_OF_GROUP_MAX", 2)
    world, consumer = make(3)
    assert sum(len(consumer.pop(maxMsgNums=1)) for _ in range(3)) == 2
    other = PopConsumer(world, group="other")
    assert [got.body for got in other.pop(maxMsgNums=1)] == ["0"]


def test_a_message_that_is_changed_all_the_time_keeps_no_other_from_coming_again() -> None:
    """No two of its check points have one pop time, so that those of one millisecond run ahead."""
    world, consumer = make(2)
    first, second = consumer.pop()
    for _ in range(5_000):
        first = consumer.change(first, 10_000)
    assert first.receipt.pop_ms == world.now_ms + 5_000
    consumer.change(second, 10_000)
    world.run(10_000 + GRACE_MS + 1_000)
    assert sorted(got.body for got in consumer.pop()) == ["0", "1"]


def test_what_a_full_disk_cannot_remember_is_not_handed_out() -> None:
    world, consumer = make()
    store = world.core.broker.store
    store.disk_watch.note_room("full")
    assert consumer.pop() == []
    store.disk_watch.note_room(None)
    consumer.pop()
    world.run(10_000 + GRACE_MS - 1)
    store.disk_watch.note_room("full")
    world.run(5_000)
    assert world.messages("%RETRY%G_T") == []
    store.disk_watch.note_room(None)
    world.run(2_000)
    assert [got.reconsume_times for got in consumer.pop()] == [1]


def test_what_came_again_before_the_disk_failed_is_noted_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world, consumer = make(2)
    consumer.pop()
    ledger = world.core.assembly.pops.ledger
    read, reads = Store.read_record, iter([0])

    def first_only(store: Store, log_offset: int, size: int) -> bytes:
        if next(reads, None) is None:
            raise OSError(errno.EIO, "Input/output error")
        return read(store, log_offset, size)

    monkeypatch.setattr(Store, "read_record", first_only)
    with pytest.raises(OSError, match="Input/output"):
        ledger.due(world.now_ms + 10_000 + GRACE_MS)
    ledger.note_progress(world.now_ms)  # which expects it
    monkeypatch.undo()
    world.crash()
    world.run(10_000 + GRACE_MS)
    assert [got.body for got in consumer.pop()] == ["0", "1"]


def test_acks_are_taken_on_a_full_disk() -> None:
    world, consumer = make()
    (got,) = consumer.pop()
    world.core.broker.store.disk_watch.note_room("full")
    consumer.ack(got)
    world.crash()
    world.run(60_000)
    assert consumer.pop() == []


def test_what_is_gone_gets_nothing_again() -> None:
    world, consumer = make()
    consumer.pop()
    world.core.broker.topics.delete("T", world.now_ms)
    world.run(60_000)
    assert world.messages("%RETRY%G_T") == []
    assert world.core.assembly.pops.ledger.popped.count == 0


def test_a_filter_that_finds_nothing_reads_on_without_keeping_others_waiting() -> None:
    world, consumer = make()
    reads = world.core.broker.store_settings.filter_scan_size // 20 * pop_reader.FILTER_ROUNDS_MAX
    for _ in range(reads):
        world.send("no", TAGS="no")
    world.send("yes", TAGS="yes")
    consumer.wait(exp="yes", expType="TAG")
    assert world.take_replies() == []
    world.run(1)
    assert bodies(world.reply()) == ["yes"]

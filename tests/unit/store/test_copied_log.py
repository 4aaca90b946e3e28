"""A log that grows by copying: what follows from its records, also over crashes and full disks."""

from __future__ import annotations

import random
from typing import Any

import msgspec
import pytest

from escrowmq.base.store_settings import StoreSettings
from escrowmq.codec.log_records import ScannedRecord, parse_records
from escrowmq.errors import CorruptRecord, DiskFull, StorageError
from escrowmq.store.copied_log import CopiedLog
from escrowmq.store.results import PutStatus
from escrowmq.store.store import Store
from escrowmq.testing.disk import _BLOCK_SIZE, CrashLoss, SimDisk
from tests.unit.store.stores import (
    SMALL,
    bodies,
    log_bytes,
    master,
    message,
    opened,
    small,
    sync,
    units,
)


def records(store: Store, start: int = 0) -> tuple[bytes, list[ScannedRecord]]:
    """The records of a log's first file from an offset on."""
    data = log_bytes(store, start, min(store.end_offset, SMALL.log_segment_size))
    found = parse_records(data, start)
    return data[: found.size], found.records


def copied(settings: StoreSettings = SMALL) -> tuple[Store, CopiedLog]:
    store, _ = opened(SimDisk(), settings)
    return store, store.become_copy()


def test_nothing_else_is_stored_in_a_copy() -> None:
    store, log = copied()
    log.append(*records(master(5)))
    put = store.put(message(1), 5_000)
    assert put.status is PutStatus.SERVICE_NOT_AVAILABLE
    assert "slave" in put.reason
    put = store.put(message(1), 5_000, is_settling=True)
    assert put.status is PutStatus.SERVICE_NOT_AVAILABLE
    sync(store, 60_000)
    store.wake(60_000)
    assert store.put(message(1), 60_000).status is PutStatus.SERVICE_NOT_AVAILABLE


def test_nothing_is_copied_while_what_a_failed_sync_may_have_lost_is_rewritten() -> None:
    """It is synced up to where the log ended then; what comes meanwhile would be taken for it."""
    data, found = records(master(12))
    half = found[6].log_offset
    store, log = copied()
    log.append(data[:half], found[:6])
    assert store.next_sync(60_000) is not None
    store.sync_failed("no such luck", 60_000)
    fault = r"a sync failed \(no such luck\)"
    with pytest.raises(StorageError, match=fault):
        log.append(data[half:], found[6:])
    with pytest.raises(StorageError, match=fault):
        log.roll()
    with pytest.raises(StorageError, match=fault):
        log.write_padding(half, b"x")
    assert log.end_offset == half
    for now_ms in range(61_000, 61_100, 10):
        store.wake(now_ms)
    assert sync(store, 61_100)
    assert store.durable_offset == half
    log.append(data[half:], found[6:])
    assert log.end_offset == len(data)


@pytest.mark.parametrize("count", [1, 2])
def test_records_that_were_damaged_here_fill_the_gaps_that_they_left(count: int) -> None:
    """Where the log was cut, its queues may still keep the offsets of what could not be read."""
    source = master(12)
    data, found = records(source)
    store, log = copied()
    gone = [record for record in found if record.queue_id == 0][-count:]
    kept = [record for record in found if record.log_offset < gone[0].log_offset]
    log.append(data[: gone[0].log_offset], kept)
    queue = store.queues.by_key["orders", 0]
    queue.fill_gap(gone[-1].queue_offset + 1)
    queue.reset_next_offset()
    log.append(data[gone[0].log_offset :], found[len(kept) :])
    assert units(store)["orders", 0] == units(source)["orders", 0][: len(units(store)["orders", 0])]
    assert bodies(store)[gone[0].queue_offset] == bodies(source)[gone[0].queue_offset]


def test_gaps_with_a_message_behind_them_stay() -> None:
    source = master(12)
    data, found = records(source)
    store, log = copied()
    log.append(data, found)
    queue = store.queues.by_key["orders", 0]
    end = queue.end
    queue.drop_trailing_gaps(end - 2)
    assert queue.end == end


def test_with_sync_flush_consumers_see_what_is_durable() -> None:
    source = master(5)
    store, log = copied(small(is_sync_flush=True))
    log.append(*records(source))
    assert log.safe_end == 0
    assert bodies(store) == {}
    assert sync(store, 5_000)
    assert log.safe_end == log.end_offset == source.end_offset
    assert units(store) == units(source)


def test_a_topic_that_began_again_begins_again_here() -> None:
    source = master(9)
    source.delete_topic("orders")
    source.put(message(50, body=b"new"), 2_000)
    source.put(message(51, body=b"newer", queue_id=1), 2_000)
    store, log = copied()
    log.append(*records(source))
    deletion = source.deleted.of_topic["orders"]
    assert log.deletions.apply_deletion("orders", deletion.log_end, deletion.stored_ms)
    assert units(store) == units(source)
    assert bodies(store) == {0: b"new"}
    store.close(9_000)
    store.disk.restart()  # type: ignore[attr-defined]
    again, _ = opened(store.disk)  # type: ignore[arg-type]
    assert bodies(again) == {0: b"new"}
    assert bodies(again, queue_id=1) == {0: b"newer"}


@pytest.mark.parametrize(
    "change",
    [{"topic": b"../x"}, {"queue_id": -1}, {"queue_offset": -1}, {"queue_offset": 1 << 40}],
)
def test_records_of_impossible_queues_are_refused(change: dict[str, Any]) -> None:
    data, found = records(master(3))
    store, log = copied()
    with pytest.raises(CorruptRecord):
        log.append(data, [*found[:2], found[2]._replace(**change)])
    assert store.end_offset == 0
    log.append(data, found)
    assert store.end_offset == len(data)


def test_without_room_nothing_is_lost_and_nothing_doubled() -> None:
    source = master(9)
    data, found = records(source)
    store, log = copied()
    assert isinstance(store.disk, SimDisk)
    store.disk.room = store.disk.used
    with pytest.raises(DiskFull):
        log.append(data, found)
    assert (store.end_offset, units(store)) == (0, {("orders", n): b"" for n in range(3)})
    store.disk.room = None
    log.append(data, found)
    assert units(store) == units(source)


@pytest.mark.parametrize("seed", range(60))
def test_a_copy_is_whole_after_any_crash(seed: int) -> None:
    chance = random.Random(seed)
    source = master(60, seed=seed)
    disk = SimDisk()
    settings = msgspec.structs.replace(SMALL, is_sync_flush=chance.random() < 0.5)
    store, _ = opened(disk, settings)
    log = store.become_copy()
    log.begin_at(0)
    now_ms = 3_000
    while log.end_offset < source.end_offset:
        base = log.end_offset
        data = source.log.read(base, chance.randrange(1, 2_000))
        found = parse_records(data, base)
        if found.size:
            log.append(data[: found.size], found.records)
        if found.is_filler:
            log.roll()
        if chance.random() < 0.3:
            now_ms += chance.randrange(2_000)
            sync(store, now_ms)
            store.wake(now_ms)
        if chance.random() < 0.1:
            kept = log.safe_end if settings.is_sync_flush else 0
            disk.crash(chance, chance.choice(list(CrashLoss)))
            store, _ = opened(disk, settings, now_ms=now_ms)
            log = store.become_copy()
            assert log.end_offset >= kept
            assert log_bytes(store) == log_bytes(source, 0, log.end_offset)
    store.close(now_ms)
    disk.restart()
    again, report = opened(disk, settings)
    assert not report.damaged
    assert log_bytes(again) == log_bytes(source)
    assert units(again) == units(source)


@pytest.mark.parametrize("size", [1, 2, 5, 100])
def test_records_are_found_by_their_keys_however_many_come_at_once(size: int) -> None:
    source = master(30)
    store, log = copied()
    while log.end_offset < source.end_offset:
        base = log.end_offset
        found = parse_records(source.log.read(base, SMALL.log_segment_size), base)
        if found.is_filler and not found.records:
            log.roll()
            continue
        few = found.records[:size]
        end = few[-1].log_offset + few[-1].size
        log.append(source.log.read(base, end - base), few)
    assert units(store) == units(source)
    for number in range(30):
        for key in (f"U{number:05d}", f"k{number}"):
            here, there = (
                each.query("orders", key, count_max=9, begin_ms=0, end_ms=1 << 60).records
                for each in (store, source)
            )
            assert len(here) == 1
            assert here == there


@pytest.mark.parametrize("blocks", range(8))
def test_a_disk_that_is_full_anywhere_loses_nothing(blocks: int) -> None:
    """The log is taken as far as it has room; what has no unit yet gets one when there is room."""
    source = master(60)
    store, log = copied(small(queue_segment_size=100))
    assert isinstance(store.disk, SimDisk)
    base = 0
    is_full, stalls = False, 0
    while log.end_offset < source.end_offset:
        if log.end_offset > source.end_offset // 3 and not is_full:
            store.disk.room, is_full = store.disk.used + blocks * _BLOCK_SIZE, True
        base = log.end_offset
        found = parse_records(source.log.read(base, SMALL.log_segment_size), base)
        few = found.records[:9]
        try:
            if few:
                log.append(source.log.read(base, few[-1].log_offset + few[-1].size - base), few)
            else:
                log.roll()
        except DiskFull:
            assert log.end_offset == base
            store.disk.room = None
        stalls += store.dispatcher.stalled is not None
    store.disk.room = None
    store.dispatcher.dispatch_waiting()
    assert not store.dispatcher.waiting
    assert units(store) == units(source)
    assert stalls or blocks not in (1, 6), "some of the examples stall a queue"
    for number in range(60):
        found_here = store.query("orders", f"k{number}", count_max=9, begin_ms=0, end_ms=1 << 60)
        assert len(found_here.records) == 1, number
    assert store.index is not None
    indexed = [at for file in store.index.files for _, at, _, _ in file.entries(1, file.count)]
    assert indexed == sorted(indexed), "what a repair of a failed sync takes for damage"


def test_a_queue_that_has_no_records_continues_where_the_master_says() -> None:
    store, log = copied()
    data, found = records(master(12))
    log.append(data, found)
    log.continue_queues({"orders": {0: 12, 7: 3}, "seldom": {0: 2}})
    assert store.bounds("orders", 0) == (0, 12)
    assert store.bounds("orders", 7) == (3, 3)
    assert store.bounds("seldom", 0) == (2, 2)
    log.continue_queues({"seldom": {0: 1}})
    assert store.bounds("seldom", 0) == (2, 2)


@pytest.mark.parametrize("ends", [{"a": {0: 0}}, {"a": {0: 99}}, {"a": {-1: 1}}, {"../a": {0: 1}}])
def test_ends_of_queues_that_cannot_be_are_refused(ends: dict[str, dict[int, int]]) -> None:
    store, log = copied()
    log.append(*records(master(12)))
    with pytest.raises(CorruptRecord, match="cannot end at"):
        log.continue_queues(ends)
    assert store.topics() == ["orders"]

"""Batches, and those that are too long for one turn."""

from __future__ import annotations

import random

import pytest

from escrowmq.base.fixed_limits import BATCH_PART_COUNT, RUNS_SHOWN_AT_ONCE
from escrowmq.base.message import Message
from escrowmq.base.store_settings import StoreSettings
from escrowmq.codec.properties import encode_properties
from escrowmq.store.batches import BatchWriter, LongBatch
from escrowmq.store.encoding import Piece
from escrowmq.store.store import PutResult, PutStatus, Store
from escrowmq.testing.disk import CrashLoss, SimDisk

from .stores import bodies, message, opened, small, sync

ROOMY = small(
    log_segment_size=1 << 20,
    queue_segment_size=20 * 4096,
    index_slots_count=1024,
    index_entries_max=20_000,
)
SHOWN = RUNS_SHOWN_AT_ONCE * BATCH_PART_COUNT
COUNT = 2 * SHOWN + 77
FIRST = Message(topic="orders", body=b"", born_ms=5, born_host=b"\x0a\0\0\1\0\0\1\2")


def piece(number: int) -> Piece:
    own = message(number)
    return (number % 7, own.body, encode_properties(own.properties), own.properties)


def begin(store: Store, count: int, first: Message = FIRST) -> LongBatch:
    batch = store.batches.begin(first)
    for start in range(0, count, BATCH_PART_COUNT):
        batch.add([piece(n) for n in range(start, min(count, start + BATCH_PART_COUNT))])
    return batch


def show_all(store: Store) -> int:
    """Wake the store until everything is shown; how often that took."""
    wakes = 0
    while store.wake_at_ms() == 0:
        store.wake(1_000)
        wakes += 1
    return wakes


@pytest.mark.parametrize("appends_crc", [False, True])
@pytest.mark.parametrize("host", [bytes(8), bytes(20)])
def test_long_batch_leaves_the_bytes_that_it_leaves_when_it_is_stored_at_once(
    host: bytes, appends_crc: bool
) -> None:
    settings = small(log_segment_size=1 << 20, appends_crc=appends_crc)
    first = Message(topic="orders", body=b"", born_ms=5, born_host=host, store_host=host)
    images = []
    for is_long in (False, True):
        store, _ = opened(SimDisk(), settings)
        store.put(message(0), 1_000)
        put: PutResult
        if is_long:
            put = store.batches.put_long(begin(store, 600, first), 1_001)
        else:
            put = store.batches.put(first, [piece(n) for n in range(600)], 1_001)[0]
        assert put.status is PutStatus.OK
        images.append(store.log.read(put.log_offset, store.end_offset - put.log_offset))
    assert images[0] == images[1]


def test_long_batch_is_shown_part_by_part_and_what_comes_behind_it_after_it() -> None:
    store, _ = opened(SimDisk(), ROOMY)
    batch = begin(store, COUNT)
    store.put(message(9_001), 1_000)  # while the batch was read
    put = store.batches.put_long(batch, 1_000)
    assert (put.queue_offset, put.record_size) == (1, sum(batch.sizes))
    assert put.log_end == store.end_offset
    late = store.put(message(9_002), 1_000)
    assert (late.queue_offset, late.log_offset) == (1 + COUNT, put.log_end)
    assert store.bounds("orders", 0) == (0, 1)
    store.wake(1_000)
    assert store.bounds("orders", 0) == (0, 1 + SHOWN)
    assert show_all(store) == 2
    found = list(bodies(store).values())
    assert found == [message(n).body for n in (9_001, *range(COUNT), 9_002)]
    assert [a.queue_offset for a in store.take_arrivals()] == list(range(COUNT + 2))
    places = list(batch.log_offsets(put.log_offset))
    (record,) = store.query("orders", "k1500", count_max=9, begin_ms=0, end_ms=1 << 60).records
    assert record == store.log.read(places[1500], batch.sizes[1500])


def test_message_that_is_not_shown_yet_is_found_by_its_place() -> None:
    store, _ = opened(SimDisk(), ROOMY)
    batch = begin(store, COUNT)
    put = store.batches.put_long(batch, 1_000)
    for number in (0, 700, COUNT - 1):
        place = list(batch.log_offsets(put.log_offset))[number]
        found = store.read(place)
        assert found is not None
        assert found.body == message(number).body
    assert store.read(put.log_offset + 1) is None


def test_with_sync_flush_a_long_batch_is_shown_when_it_is_durable() -> None:
    store, _ = opened(SimDisk(), StoreSettings(is_sync_flush=True, log_segment_size=1 << 20))
    store.batches.put_long(begin(store, COUNT), 1_000)
    assert store.wake_at_ms() > 0
    store.wake(1_000)
    assert store.bounds("orders", 0) == (0, 0)
    assert sync(store, 1_000)
    assert store.bounds("orders", 0) == (0, SHOWN)
    show_all(store)
    assert store.bounds("orders", 0) == (0, COUNT)


def test_long_batch_is_whole_after_a_stop_and_after_a_kill() -> None:
    for is_killed in (False, True):
        disk = SimDisk()
        store, _ = opened(disk, ROOMY)
        store.batches.put_long(begin(store, COUNT), 1_000)
        store.wake(1_000)
        if is_killed:
            disk.crash(random.Random(0), CrashLoss.NOTHING)
        else:
            store.close(1_000)
            disk.restart()
        again, _ = opened(disk, ROOMY)
        assert list(bodies(again).values()) == [message(n).body for n in range(COUNT)]


def test_messages_of_a_deleted_topic_that_wait_to_be_shown_are_not() -> None:
    store, _ = opened(SimDisk(), ROOMY)
    store.batches.put_long(begin(store, COUNT), 1_000)
    store.delete_topic("orders")
    show_all(store)
    assert store.bounds("orders", 0) == (0, 0)


def test_long_batch_without_room_leaves_nothing_and_what_no_segment_holds_is_illegal() -> None:
    disk = SimDisk()
    store, _ = opened(disk, small(log_segment_size=65_536))
    store.put(message(1), 1_000)
    end = store.end_offset
    assert store.batches.put_long(begin(store, 2_000), 1_000).status is PutStatus.MESSAGE_ILLEGAL
    batch = begin(store, 400)
    store.put(message(2, body=bytes(20_000)), 1_000)
    disk.room = disk.used
    put = store.batches.put_long(batch, 1_000)
    assert put.status is PutStatus.SERVICE_NOT_AVAILABLE
    assert store.batches.put_long(batch, 1_000).status is PutStatus.SERVICE_NOT_AVAILABLE
    assert store.bounds("orders", 0) == (0, 2)
    disk.room += 10_000_000
    store.wake(9_000)
    assert store.end_offset > end
    put = store.batches.put_long(batch, 9_000)
    assert (put.status, put.queue_offset) == (PutStatus.OK, 2)
    assert put.log_offset == 65_536  # a batch is in one segment
    show_all(store)
    assert len(bodies(store)) == 402


def test_no_long_batch_is_taken_while_too_much_waits_to_be_shown() -> None:
    store, _ = opened(SimDisk(), ROOMY)
    store.batches = BatchWriter(store._state, store.judge, unseen_max=1_000)
    store.batches.put_long(begin(store, COUNT), 1_000)
    put = store.batches.put_long(begin(store, COUNT), 1_000)
    assert put.status is PutStatus.SERVICE_NOT_AVAILABLE
    assert "wait to be shown to consumers" in put.reason
    show_all(store)
    assert store.batches.put_long(begin(store, COUNT), 1_000).status is PutStatus.OK

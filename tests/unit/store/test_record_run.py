"""Records of one input are written together, or not at all; on a full disk they are seen later."""

import random

import pytest

from escrowmq.codec.hashes import body_crc
from escrowmq.codec.properties import encode_properties
from escrowmq.codec.record_layout import HEAD_V4
from escrowmq.codec.store_entries import ENTRY
from escrowmq.store.index_chains import index_key
from escrowmq.store.record_run import QueueTail, RecordRun
from escrowmq.store.store import PutStatus, Store
from escrowmq.testing.disk import CrashLoss, SimDisk

from .stores import bodies, message, opened, small, sync

HOST = bytes(8)


def begun(store: Store, now_ms: int = 2_000) -> RecordRun:
    run = store.run_for(HOST)
    assert run.is_allowed
    run.begin(now_ms)
    return run


def tail_of(run: RecordRun, queue_id: int = 0) -> QueueTail:
    tail = run.tail("orders", queue_id)
    assert tail is not None
    return tail


def put(run: RecordRun, tail: QueueTail, number: int) -> int:
    one = message(number, queue_id=tail.queue_id, born_ms=1, topic=tail.topic)
    at = run.put(tail, one, encode_properties(one.properties), 0)
    if at >= 0:
        names = b"U%05d" % number, b"k%d" % number, b"all"
        keys = [index_key(tail.key_prefix, key, at, run.stored_ms) for key in names]
        run.put_laid_out(b"", [], b"".join(keys))
    return at


def _upcoming(tail: QueueTail) -> int:
    """The queue offset of the next record."""
    return tail.next_offset if tail.units else tail.queue.next_offset


def commit(run: RecordRun) -> bool:
    """Write it, and have it found."""
    is_written = run.write()
    if is_written:
        run.publish()
    return is_written


def laid_out(run: RecordRun, tails: list[QueueTail], numbers: range) -> None:
    """Put what another one would have laid out: here a run of its own, which is not committed."""
    before = {id(tail): len(tail.units) for tail in tails}
    upcoming = [_upcoming(tail) for tail in tails]
    end, room_end, stored_ms, host = run.end, run.room_end, run.stored_ms, run.host
    assert end < room_end
    records, units, keys = b"", {id(tail): bytearray() for tail in tails}, b""
    for nth, number in enumerate(numbers):
        which = nth % len(tails)
        tail, properties = tails[which], encode_properties(message(number).properties)
        body, offset = b"body %05d" % number, upcoming[which]
        rest = tail.topic_part + len(properties).to_bytes(2, "big") + properties
        size = HEAD_V4.size + len(body) + len(rest)
        at = end + len(records)
        records += HEAD_V4.fields.pack(
            size, tail.magic, body_crc(body), tail.queue_id, 0, offset, at, 0, 1, HOST, stored_ms,
            host, 0, 0, len(body),
        ) + body + rest  # fmt: skip
        upcoming[which] += 1
        units[id(tail)] += ENTRY.pack(at, size, 0)
        names = b"U%05d" % number, b"k%d" % number, b"all"
        keys += b"".join([index_key(tail.key_prefix, key, at, stored_ms) for key in names])
    run.put_laid_out(records, [(tail, units[id(tail)]) for tail in tails], keys)
    assert [_upcoming(tail) for tail in tails] == upcoming
    assert before == {id(tail): len(tail.units) - len(units[id(tail)]) for tail in tails}


def test_records_that_were_laid_out_elsewhere_are_as_those_of_single_puts() -> None:
    disks = SimDisk(), SimDisk()
    for disk, is_laid_out in zip(disks, (True, False), strict=True):
        store, _ = opened(disk)
        for queue_id in (0, 1):
            store.put(message(queue_id, queue_id=queue_id), 1_000)
        run = begun(store)
        tails = [tail_of(run, 0), tail_of(run, 1)]
        put(run, tails[1], 1)
        if is_laid_out:
            laid_out(run, tails, range(2, 8))
        else:
            for number in range(2, 8):
                put(run, tails[number % 2], number)
        put(run, tails[0], 8)
        assert commit(run)
        run.clear()
        store.close(3_000)
    first, second = [{n: bytes(f.live) for n, f in disk.files.items()} for disk in disks]
    assert first == second


def nobody(topic: str, queue_id: int) -> bool:
    return False


@pytest.mark.parametrize("is_sync", [False, True])
def test_run_leaves_what_single_puts_leave(*, is_sync: bool) -> None:
    disks = SimDisk(), SimDisk()
    for disk, is_run in zip(disks, (True, False), strict=True):
        store, _ = opened(disk, small(is_sync_flush=is_sync))
        for queue_id in (0, 1):
            store.put(message(queue_id, queue_id=queue_id), 1_000)
        run = begun(store)
        for number in range(2, 9):
            if is_run:
                assert put(run, tail_of(run, number % 2), number) >= 0
            else:
                one = message(number, queue_id=number % 2, born_ms=1)
                assert store.put(one, 2_000).status is PutStatus.OK
        if is_run:
            assert commit(run)
            run.clear()
        store.close(3_000)
    first, second = [{n: bytes(f.live) for n, f in disk.files.items()} for disk in disks]
    assert first == second


def test_only_queues_that_are_awaited_are_told_of() -> None:
    store, _ = opened(SimDisk())
    store.put(message(0), 1_000)
    store.put(message(1, queue_id=1), 1_000)
    store.take_arrivals()
    store.dispatcher.report_only_awaited(lambda topic, queue_id: queue_id == 1)
    store.put(message(0), 1_000)
    assert not store.dispatcher.arrivals
    run = begun(store)
    tails = tail_of(run), tail_of(run, 1)
    for tail in tails:
        put(run, tail, 2)
    assert commit(run)
    found = [(arrival.queue_id, arrival.queue_offset) for arrival in store.take_arrivals()]
    assert found == [(1, 1)]


def test_nothing_happens_where_a_segment_or_the_room_ends() -> None:
    disk = SimDisk()
    store, _ = opened(disk, small(log_segment_size=1024, reserve_size=0))
    store.put(message(0), 1_000)
    run = begun(store)
    tail, count = tail_of(run), 0
    while put(run, tail, 1 + count) >= 0:
        count += 1
    assert count > 2
    assert commit(run)
    run.clear()
    assert store.put(message(9), 2_000).status is PutStatus.OK  # the general path makes the next
    assert len(bodies(store)) == count + 2


def test_log_that_takes_nothing_leaves_everything_as_it_was(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    store, _ = opened(SimDisk())
    store.put(message(0), 1_000)
    run = begun(store)
    assert put(run, tail_of(run), 1) >= 0
    before = store.end_offset

    def refuse(record: bytes, stored_ms: int, *, is_settling: bool = False) -> None:
        raise OSError("no")

    monkeypatch.setattr(store.log, "append", refuse)
    assert not commit(run)
    monkeypatch.undo()
    assert (store.end_offset, store.bounds("orders", 0)) == (before, (0, 1))
    assert store.put(message(1), 2_000).queue_offset == 1


def test_queue_without_room_for_its_units_shows_them_when_there_is_some() -> None:
    disk = SimDisk()
    # Of the first queue's file one unit is free, so that the run needs another file.
    store, _ = opened(disk, small(queue_segment_size=60))
    for number in range(2):
        store.put(message(number), 1_000)
    store.put(message(2, queue_id=1), 1_000)
    run = begun(store)
    tails = tail_of(run), tail_of(run, 1)
    for number in range(3, 9):
        assert put(run, tails[number % 2], number) >= 0
    disk.room = disk.used
    assert commit(run)
    run.clear()
    assert not run.is_allowed
    assert store.unseen_size > 0
    assert store.put(message(9), 2_000).queue_offset == 5
    disk.room += 1_000_000
    store.wake(9_000)
    assert store.unseen_size == 0
    assert store.bounds("orders", 0) == (0, 6)
    assert store.bounds("orders", 1) == (0, 4)
    found = store.query("orders", "all", count_max=64, begin_ms=0, end_ms=1 << 60)
    assert len(found.records) == 10


def synced_store(disk: SimDisk, **changes: int) -> Store:
    """A store that shows what is durable, with one message in each of two queues."""
    store, _ = opened(disk, small(is_sync_flush=True, **changes))
    for queue_id in (0, 1):
        store.put(message(queue_id, queue_id=queue_id), 1_000)
    assert sync(store, 1_000)
    store.take_arrivals()
    return store


def test_run_is_seen_and_told_of_when_it_is_durable() -> None:
    store = synced_store(SimDisk())
    store.dispatcher.report_only_awaited(lambda topic, queue_id: queue_id == 1)
    run = begun(store)
    for number in range(2, 6):
        assert put(run, tail_of(run, number % 2), number) >= 0
    assert commit(run)
    run.clear()
    assert store.bounds("orders", 0) == store.bounds("orders", 1) == (0, 1)
    assert not store.dispatcher.arrivals
    assert store.put(message(6), 2_000).queue_offset == 3
    run.begin(2_000)  # what waits for the disk is in nobody's way
    assert run.is_allowed
    assert put(run, tail_of(run), 7) >= 0
    assert commit(run)
    run.clear()
    assert sync(store, 2_000)
    assert store.bounds("orders", 0) == (0, 5)
    assert store.bounds("orders", 1) == (0, 3)
    told = [(arrival.queue_id, arrival.queue_offset) for arrival in store.take_arrivals()]
    assert told == [(1, 1), (1, 2)]
    found = store.query("orders", "all", count_max=64, begin_ms=0, end_ms=1 << 60)
    assert len(found.records) == 8


def test_record_of_a_run_is_found_by_its_place_before_it_is_durable() -> None:
    store = synced_store(SimDisk())
    run = begun(store)
    places = [put(run, tail_of(run), number) for number in (2, 3)]
    assert commit(run)
    run.clear()
    for number, place in enumerate(places, 2):
        found = store.read(place)
        assert found is not None
        assert found.body == b"body %05d" % number
    assert store.read(places[1] + 1) is None
    (waiting,) = store.dispatcher.waiting
    assert [item.log_offset for item in waiting.single_dispatches()] == places


def test_run_of_a_topic_that_is_deleted_meanwhile_is_not_seen() -> None:
    store = synced_store(SimDisk())
    store.put(message(9, topic="bills"), 1_000)
    assert sync(store, 1_000)
    run = begun(store)
    bills = run.tail("bills", 0)
    assert bills is not None
    for tail in (bills, tail_of(run)):
        assert put(run, tail, 2) >= 0
    assert commit(run)
    run.clear()
    store.delete_topic("bills")
    assert store.put(message(3, topic="bills"), 2_000).queue_offset == 0
    assert sync(store, 2_000)
    assert store.bounds("bills", 0) == (0, 1)
    assert store.bounds("orders", 0) == (0, 2)


def test_durable_run_without_room_for_its_units_is_seen_when_there_is_some() -> None:
    disk = SimDisk()
    store = synced_store(disk, queue_segment_size=60)
    run = begun(store)
    for number in (3, 2, 4, 6, 5):
        assert put(run, tail_of(run, number % 2), number) >= 0
    assert commit(run)
    run.clear()
    disk.room = disk.used
    assert sync(store, 2_000)  # the second queue has two units of room in its file, and needs two
    assert store.bounds("orders", 1) == (0, 3)
    assert store.bounds("orders", 0) == (0, 1)
    assert not run.is_allowed
    assert store.put(message(9), 2_000).queue_offset == 4
    disk.room += 1_000_000
    store.wake(9_000)
    assert sync(store, 9_000)
    assert run.is_allowed
    assert store.unseen_size == 0
    assert store.bounds("orders", 0) == (0, 5)
    found = store.query("orders", "all", count_max=64, begin_ms=0, end_ms=1 << 60)
    assert len(found.records) == 8


@pytest.mark.parametrize("is_sync_flush", [False, True])
def test_what_of_a_run_has_no_room_outlives_a_kill(*, is_sync_flush: bool) -> None:
    """Units of newer records stand in the queue that had room, and the log is durable behind
    both: the checkpoint says from where on units are missing."""
    disk = SimDisk()
    settings = small(is_sync_flush=is_sync_flush, queue_segment_size=60, has_index=False)
    store = Store(disk, settings, boot="the same each time")
    store.open(1_000)
    for number in range(2):
        store.put(message(number), 1_000)
    store.put(message(2, queue_id=1), 1_000)
    while sync(store, 12_000):
        pass
    run = begun(store, 13_000)
    tails = tail_of(run), tail_of(run, 1)
    for number in (3, 4, 6, 5):  # the even ones go to queue 0, which wants a file more
        assert put(run, tails[number % 2 == 1], number) >= 0
    disk.room = disk.used
    assert commit(run)
    run.clear()
    assert synced_wholly(store, 40_000)
    disk.crash(random.Random(1), CrashLoss.NOTHING)
    disk.room = None
    store = Store(disk, settings, boot="the same each time")
    store.open(50_000)
    store.wake(60_000)
    assert bodies(store) == {at: b"body %05d" % n for at, n in enumerate((0, 1, 4, 6))}
    assert bodies(store, queue_id=1) == {at: b"body %05d" % n for at, n in enumerate((2, 3, 5))}


def synced_wholly(store: Store, now_ms: int) -> bool:
    """Sync until the checkpoint calls all of the log durable."""
    while sync(store, now_ms):
        now_ms += 10_000
    return store.checkpoint.value.confirmed_offset == store.end_offset

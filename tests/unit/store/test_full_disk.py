"""A full disk: ordinary puts are refused, settling ones served, and all is well again after."""

import random
from collections.abc import Callable

import pytest

from escrowmq.base.store_settings import StoreSettings
from escrowmq.codec.record import decode_record
from escrowmq.codec.record_layout import HEAD_V4
from escrowmq.errors import DiskFull
from escrowmq.store import dispatch, queue_snapshot
from escrowmq.store.store import ABORT, PutResult, PutStatus, Store
from escrowmq.testing.disk import CrashLoss, SimDisk

from .stores import bodies, message, opened, small, sync


def test_full_disk_refuses_ordinary_puts_and_serves_settling_ones(
    caplog: pytest.LogCaptureFixture,
) -> None:
    disk = SimDisk()
    store, _ = opened(disk, small(log_segment_size=65_536, reserve_size=8_192))
    store.put(message(0), 1_000)
    disk.room = disk.used
    number = 1
    while (put := store.put(message(number), 1_000)).status is PutStatus.OK:
        number += 1
        assert number < 2_000
    assert put.status is PutStatus.SERVICE_NOT_AVAILABLE
    assert "full" in str(store.refusal)
    settled = 0
    while store.put(message(0), 1_000, is_settling=True).status is PutStatus.OK:
        settled += 1
    assert settled * put_size(store) > 8_192 - 200
    store.wake(3_000)
    assert store.refusal is not None
    disk.room += 10_000_000
    store.wake(6_000)
    assert store.refusal is None
    assert store.put(message(3), 6_000).status is PutStatus.OK
    assert store.unseen_size == 0
    assert len(bodies(store)) == number + settled + 1
    told = [(record.levelname, record.getMessage()[:24]) for record in caplog.records]
    assert told == [("ERROR", "no new messages are acce"), ("WARNING", "the disk has space: mess")]


def test_a_disk_that_a_put_found_full_is_looked_at_each_second() -> None:
    disk = SimDisk()
    settings = small(log_segment_size=65_536, reserve_size=8_192, clean_interval_ms=60_000)
    store, _ = opened(disk, settings, now_ms=1_000)
    assert store.retention.wake_at_ms() > 10_000
    disk.room = disk.used
    while store.put(message(0), 1_500).status is PutStatus.OK:
        pass
    assert store.retention.wake_at_ms() == 2_000
    store.wake(2_000)
    assert store.refusal is not None
    assert store.retention.wake_at_ms() == 3_000
    disk.room += 10_000_000
    store.wake(3_000)
    assert store.refusal is None
    assert store.retention.wake_at_ms() > 10_000


def put_one(store: Store, now_ms: int) -> PutResult:
    return store.put(message(0), now_ms)


def put_batch(store: Store, now_ms: int) -> PutResult:
    return store.batches.put(message(0), [(0, b"b", b"", {})], now_ms)[0]


def put_long_batch(store: Store, now_ms: int) -> PutResult:
    batch = store.batches.begin(message(0))
    batch.add([(0, b"b", b"", {})])
    return store.batches.put_long(batch, now_ms)


@pytest.mark.parametrize("put", [put_one, put_batch, put_long_batch])
def test_store_on_a_disk_that_was_full_from_the_start_starts_again(
    put: Callable[[Store, int], PutResult],
) -> None:
    """World 6313: the time of a message that was refused went into the checkpoint, and the next
    start missed the log of which that told."""
    disk = SimDisk()
    store, _ = opened(disk)
    disk.room = disk.used
    assert put(store, 900_000).status is PutStatus.SERVICE_NOT_AVAILABLE
    assert store.last_stored_ms == 0
    store.close(900_000)
    disk.restart()
    disk.room = None
    store, _ = opened(disk, now_ms=910_000)
    assert put(store, 910_000).stored_ms == 910_000
    assert store.last_stored_ms == 910_000


def put_size(store: Store) -> int:
    return store.end_offset // store.bounds("orders", 0)[1]


def test_dispatch_that_a_full_disk_stalls_goes_on_when_there_is_room() -> None:
    disk = SimDisk()
    settings = small(log_segment_size=65_536, queue_segment_size=8_000, reserve_size=32_768)
    store, _ = opened(disk, settings)
    store.put(message(0), 1_000)
    disk.room = disk.used
    statuses = [store.put(message(n), 1_000, is_settling=True).status for n in range(1, 230)]
    assert set(statuses) == {PutStatus.OK}
    assert store.dispatcher.stalled
    assert store.unseen_size > 0
    assert store.bounds("orders", 0)[1] < 230
    disk.room += 1_000_000
    store.wake(5_000)
    assert store.unseen_size == 0
    assert len(bodies(store)) == 230
    hits = store.query("orders", "k229", count_max=9, begin_ms=0, end_ms=9_999)
    assert len(hits.records) == 1


def killed_when_full(disk: SimDisk) -> StoreSettings:
    """A store of 190 messages whose index had no room for the last ones when the process died."""
    settings = small(log_segment_size=65_536, queue_segment_size=4_000, index_entries_max=900)
    store, _ = opened(disk, settings)
    assert [store.put(message(n), 1_000).status for n in range(120)] == 120 * [PutStatus.OK]
    assert hits_of(store, "k119") == 1
    disk.room = disk.used
    settled = [store.put(message(n), 1_000, is_settling=True).status for n in range(120, 190)]
    assert settled == 70 * [PutStatus.OK]
    assert hits_of(store, "k189") == 0
    assert store.dispatcher.stalled
    disk.restart()
    return settings


def test_store_that_was_killed_on_a_full_disk_opens_and_goes_on() -> None:
    disk = SimDisk()
    settings = killed_when_full(disk)
    store, report = opened(disk, settings, now_ms=5_000)
    assert report.index_rebuilt == []
    assert len(bodies(store)) == 190
    assert store.put(message(190), 5_000, is_settling=True).status is PutStatus.OK
    assert disk.room is not None
    disk.room += 10_000_000
    store.wake(9_000)
    for key in ("k0", "k189", "k190"):
        assert hits_of(store, key) == 1, key


@pytest.mark.parametrize("count", [1, 50])
def test_queues_that_a_full_disk_does_not_take_wait_over_a_kill(count: int) -> None:
    """Messages of a topic whose queue's folder could not even be made, between others."""
    disk = SimDisk()
    settings = small(log_segment_size=65_536, queue_segment_size=40, has_index=False)
    store, _ = opened(disk, settings)
    store.put(message(0), 1_000)
    disk.room = disk.used
    for number in range(1, 1 + count):
        for topic in ("paid", "orders"):
            put = store.put(message(number, topic=topic), 1_000, is_settling=True)
            assert put.status is PutStatus.OK
    disk.restart()
    for now_ms in (5_000, 6_000):  # killed again, before there is room
        store, report = opened(disk, settings, now_ms=now_ms)
        assert any("no room" in note for note in report.notes)
        assert store.dispatcher.stalled
        put = store.put(message(90, topic="paid"), now_ms, is_settling=True)
        assert put.status is PutStatus.OK
        assert store.bounds("paid", 0) == (0, 0)
        disk.restart()
    store, _ = opened(disk, settings, now_ms=7_000)
    disk.room += 10_000_000
    store.wake(9_000)
    assert store.unseen_size == 0
    for topic, wanted in (
        ("orders", [*range(1 + count)]),
        ("paid", [*range(1, 1 + count), 90, 90]),
    ):
        assert store.bounds(topic, 0) == (0, len(wanted))
        chunks = [store.get(topic, 0, at, count_max=1).chunks[0] for at in range(len(wanted))]
        assert [int(decode_record(chunk).body[5:]) for chunk in chunks] == wanted
    arrived = [(a.topic, a.queue_offset) for a in store.take_arrivals() if a.topic == "paid"]
    assert arrived == [("paid", number) for number in range(count + 2)]


def test_a_disk_without_room_for_more_index_entries_than_memory_takes_keeps_no_store_from_opening(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The messages are there; a later start adds the entries."""
    disk = SimDisk()
    settings = killed_when_full(disk)
    monkeypatch.setattr(dispatch, "KEYS_WAITING_MAX", 20)
    store, _ = opened(disk, settings, now_ms=5_000)
    assert "not found by their keys until the next start" in caplog.text
    assert len(bodies(store)) == 190
    assert (hits_of(store, "k0"), hits_of(store, "k189")) == (1, 0)
    assert disk.room is not None
    disk.room += 10_000_000
    for now_ms in range(6_000, 60_000, 500):
        sync(store, now_ms)
    disk.restart()
    store, _ = opened(disk, settings, now_ms=60_000)
    assert (hits_of(store, "k0"), hits_of(store, "k189")) == (1, 1)


def hits_of(store: Store, key: str) -> int:
    return len(store.query("orders", key, count_max=9, begin_ms=0, end_ms=9_999).records)


class NoNotes(SimDisk):
    """A disk without room for one small file more."""

    has_room_for_notes = True

    def replace(self, path: str, data: bytes, *, is_private: bool = False) -> None:
        if not self.has_room_for_notes:
            raise DiskFull("no room")
        super().replace(path, data, is_private=is_private)


def test_old_segments_are_deleted_though_the_disk_has_no_room_for_a_note_of_it() -> None:
    disk = NoNotes()
    store = Store(disk, small(reserved_hours=1), hour=lambda _: 4)
    store.open(1_000)
    for number in range(60):
        disk.now_ms = 1_000 + number
        store.put(message(number), 1_000 + number)
    while sync(store, 12_000):
        pass
    disk.now_ms = 3_800_000
    disk.has_room_for_notes = False
    store.wake(3_800_000)
    assert store.min_log_offset > 0


@pytest.mark.parametrize("second_count", [1, 2, 5])
def test_a_second_life_is_found_on_a_disk_that_has_no_room_for_the_first(
    second_count: int,
) -> None:
    """As of RocketMQ's folder, in which nothing notes a deletion, without its queues."""
    disk = SimDisk()
    settings = small(log_segment_size=65_536, queue_segment_size=4_000, has_index=False)
    store, _ = opened(disk, settings)
    for number in range(3):
        store.put(message(number), 1_000)
    store.delete_topic("orders")
    for number in range(10, 10 + second_count):
        store.put(message(number), 1_000)
    store.close(2_000)
    disk.restart()
    for path in [path for path in disk.files if path.startswith("consumequeue/")]:
        disk.remove(path)
    disk.remove(queue_snapshot.PATH)
    disk.room = disk.used
    store, _ = opened(disk, settings, now_ms=5_000)
    assert disk.room is not None
    disk.room += 10_000_000
    store.wake(9_000)
    assert bodies(store) == {at: b"body %05d" % (10 + at) for at in range(second_count)}


def test_a_gap_among_units_that_have_no_room_stays_one() -> None:
    """A record in the middle is damaged, and its queue is built again on a full disk."""
    disk = SimDisk()
    settings = small(log_segment_size=65_536, queue_segment_size=4_000, has_index=False)
    store, _ = opened(disk, settings)
    puts = [store.put(message(number), 1_000) for number in range(4)]
    store.close(2_000)
    disk.restart()
    for path in [path for path in disk.files if path.startswith("consumequeue/")]:
        disk.remove(path)
    disk.remove(queue_snapshot.PATH)
    log = disk.open(f"commitlog/{0:020d}", size=65_536)
    log.write(puts[1].log_offset + HEAD_V4.size, b"?")
    disk.room = disk.used
    store, _ = opened(disk, settings, now_ms=5_000)
    assert disk.room is not None
    disk.room += 10_000_000
    store.wake(9_000)
    assert bodies(store) == {at: b"body %05d" % at for at in (0, 2, 3)}


def opened_in_boot(disk: SimDisk, settings: StoreSettings, now_ms: int) -> Store:
    store = Store(disk, settings, boot="the same each time")
    store.open(now_ms)
    return store


@pytest.mark.parametrize("has_room_for_notes", [True, False])
@pytest.mark.parametrize("stops", ["ss", "sk", "ks", "kk", "sss", "kkk"])
def test_what_waits_for_room_is_found_by_the_start_after_the_next(
    stops: str, *, has_room_for_notes: bool
) -> None:
    """World 63692: the first start gave another queue, which had room, its later units; the second
    read the log from the newest of these on, and the one that still had no room was lost."""
    disk = NoNotes()
    settings = small(log_segment_size=65_536, queue_segment_size=40, has_index=False)
    store = opened_in_boot(disk, settings, 1_000)
    for number in range(2):
        store.put(message(number), 1_000)
    store.put(message(10, topic="others"), 1_000)
    disk.room = disk.used
    disk.has_room_for_notes = has_room_for_notes
    assert store.put(message(2), 1_000).status is PutStatus.OK
    assert store.put(message(11, topic="others"), 1_000).status is PutStatus.OK
    for nth, stop in enumerate(stops):
        if stop == "s":
            store.close(2_000 + nth)
            disk.restart()
        else:
            disk.crash(random.Random(nth), CrashLoss.NOTHING)
        store = opened_in_boot(disk, settings, 3_000 + nth)
    disk.room = None
    store.wake(60_000)
    assert bodies(store) == {at: b"body %05d" % at for at in range(3)}
    assert bodies(store, "others") == {at: b"body %05d" % (10 + at) for at in range(2)}


@pytest.mark.parametrize("loss", list(CrashLoss))
def test_a_start_needs_no_room_after_a_clean_stop(loss: CrashLoss) -> None:
    """Not even for the file that says that it is not closed, which the next start must know."""
    disk = NoNotes()
    settings = small(is_sync_flush=True, has_index=False)
    store = opened_in_boot(disk, settings, 1_000)
    store.put(message(0), 1_000)
    store.close(1_000)
    disk.restart()
    disk.room, disk.has_room_for_notes = disk.used, False
    store = opened_in_boot(disk, settings, 2_000)
    assert store.put(message(1), 2_000, is_settling=True).status is PutStatus.OK
    assert sync(store, 2_000)
    disk.crash(random.Random(1), loss)
    assert ABORT not in disk.small
    store = Store(disk, settings, boot="another")
    assert not store.open(3_000).was_clean
    assert bodies(store) == {0: b"body 00000", 1: b"body 00001"}
    disk.has_room_for_notes = True
    disk.room = None
    store.close(3_000)
    disk.restart()
    assert opened(disk, settings, now_ms=4_000)[1].was_clean

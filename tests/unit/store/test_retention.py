"""What is old goes, at its hour or when the disk is full; what leads there follows."""

import random
from datetime import UTC
from itertools import pairwise

import pytest

from escrowmq.errors import StorageError
from escrowmq.store.consume_queue import ConsumeQueue
from escrowmq.store.store import GetStatus, Store
from escrowmq.store.unseen import UnseenRecord
from escrowmq.testing.disk import CrashLoss, SimDisk

from .stores import SMALL, bodies, message, opened, small, sync

TRIMMED = ConsumeQueue.drop_before


def fill(store: Store, count: int, topics: tuple[str, ...] = ("orders",)) -> None:
    """Open it, with so many messages that are durable, of these topics in turn."""
    store.open(1_000)
    for n in range(count):
        store.put(message(n, topic=topics[n % len(topics)]), 1_000)
    while sync(store, 12_000):
        pass


def test_old_segments_are_deleted_at_the_hour_and_queues_and_index_follow() -> None:
    disk = SimDisk()
    hours = iter([3] * 3 + [4] * 100)
    settings = small(reserved_hours=1)
    store = Store(disk, settings, hour=lambda _: next(hours), zone=UTC)
    store.open(1_000)
    for n in range(100):
        disk.now_ms = 1_000 + n
        store.put(message(n), 1_000 + n)
    while sync(store, 12_000):
        pass
    store.wake(3_700_000)
    assert store.min_log_offset == 0  # not the hour
    for now_ms in range(3_710_000, 3_800_000, 10_000):
        disk.now_ms = now_ms
        store.wake(now_ms)
    assert store.min_log_offset == store.log.segments.last_start == 12_288
    low, high = store.bounds("orders", 0)
    assert 0 < low < high == 100
    assert store.get("orders", 0, 0).status is GetStatus.OFFSET_TOO_SMALL
    assert store.stored_ms_at("orders", 0, low) > 0
    assert min(bodies(store)) == low
    files = sorted(n for n in disk.files if n.startswith("consumequeue"))
    assert files[0] == f"consumequeue/orders/0/{low // 20 * 400:020d}"
    store.close(3_800_000)
    disk.restart()
    again, report = opened(disk, settings, now_ms=3_900_000)
    assert again.bounds("orders", 0) == (low, high)
    assert not report.queues_mended


def test_young_segments_go_only_when_the_disk_is_nearly_full() -> None:
    disk = SimDisk()
    store = Store(disk, SMALL, hour=lambda _: 12, zone=UTC)
    fill(store, 100)
    for now_ms, percent, deletes in ((30_000, 50, False), (50_000, 80, False), (70_000, 88, True)):
        disk.used_percent = percent
        store.wake(now_ms)
        assert (store.min_log_offset > 0) is deletes


def test_clean_up_can_be_asked_for() -> None:
    disk = SimDisk()
    store = Store(disk, small(reserved_hours=1), hour=lambda _: 12, zone=UTC)
    fill(store, 100)
    disk.now_ms = 4_000_000
    store.wake(4_000_000)
    assert store.min_log_offset == 0
    store.retention.request_cleanup()
    store.wake(4_000_001)
    assert store.min_log_offset == 12_288


def test_segment_that_somebody_has_removed_keeps_no_other() -> None:
    disk = SimDisk()
    store = Store(disk, small(reserved_hours=1), hour=lambda _: 4, zone=UTC)
    fill(store, 100)
    disk.now_ms = 4_000_000
    del disk.files[f"commitlog/{4096:020d}"]
    store.wake(4_000_000)
    assert store.min_log_offset == 12_288


def test_queue_that_cannot_be_trimmed_keeps_clean_up_from_no_other(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    disk = SimDisk()
    store = Store(disk, small(reserved_hours=1), hour=lambda _: 4, zone=UTC)
    fill(store, 100, topics=("orders", "odd"))
    odd = store.queues.by_key["odd", 0]

    def cut(_: int) -> int:
        raise StorageError("it has 7 bytes, 400 expected")

    monkeypatch.setattr(
        type(odd), "drop_before", lambda queue, at: cut(at) if queue is odd else TRIMMED(queue, at)
    )
    disk.now_ms = 4_000_000
    store.wake(4_000_000)
    assert store.bounds("orders", 0)[0] > 0
    assert "odd/0 is not trimmed: it has 7 bytes" in caplog.text
    assert store.retention.wake_at_ms() > 4_000_000


def test_unsynced_segments_are_never_deleted() -> None:
    disk = SimDisk()
    store = Store(disk, small(reserved_hours=1), hour=lambda _: 4, zone=UTC)
    store.open(1_000)
    for n in range(100):
        store.put(message(n), 1_000)
    store.wake(400_000_000)
    assert store.min_log_offset == 0


def test_a_deletion_that_lost_power_has_undone_in_part_is_finished() -> None:
    disk = SimDisk()
    settings = small(reserved_hours=1)
    store = Store(disk, settings, hour=lambda _: 4, zone=UTC)
    store.open(1_000)
    for n in range(100):
        disk.now_ms = 1_000 + n
        store.put(message(n), 1_000 + n)
    while sync(store, 12_000):
        pass
    oldest = "commitlog/00000000000000000000"
    kept = disk.files[oldest]
    disk.now_ms = 3_800_000
    store.wake(3_800_000)
    low, high = store.bounds("orders", 0)
    assert oldest not in disk.files
    assert store.min_log_offset == 12_288
    disk.files[oldest] = kept
    disk.crash(random.Random(0), CrashLoss.NOTHING)
    again, report = opened(disk, settings, now_ms=3_900_000)
    assert report.notes[0] == f"{oldest} was deleted before"
    assert not report.damaged
    assert again.bounds("orders", 0) == (low, high)
    assert sorted(bodies(again)) == list(range(low, high))


def test_snapshot_that_was_missing_at_a_deletion_tells_of_a_queue_that_is_lost_later() -> None:
    disk = SimDisk()
    settings = small(reserved_hours=1)
    store = Store(disk, settings, hour=lambda _: 4, zone=UTC)
    store.open(1_000)
    for n in range(100):
        disk.now_ms = 1_000 + n
        store.put(message(n, topic=("orders", "paid")[n % 2]), 1_000 + n)
    store.close(12_000)
    disk.restart()
    store = Store(disk, settings, hour=lambda _: 4, zone=UTC)
    store.open(13_000)
    del disk.small["queues.json"]
    disk.now_ms = 3_800_000
    store.wake(3_800_000)
    assert store.min_log_offset == 12_288
    wanted = bodies(store)
    assert wanted
    disk.crash(random.Random(0), CrashLoss.NOTHING)
    for path in [path for path in disk.files if path.startswith("consumequeue/orders/")]:
        del disk.files[path]
    again, report = opened(disk, settings, now_ms=3_900_000)
    assert any(note.startswith("queues lack units: orders/0") for note in report.notes)
    assert bodies(again) == wanted


def test_many_queues_are_trimmed_in_several_turns() -> None:
    disk = SimDisk()
    store = Store(disk, small(reserved_hours=1, has_index=False), hour=lambda _: 4)
    store.open(1_000)
    for _ in range(2):
        for number in range(600):
            store.put(message(number, topic=f"t{number}"), 1_000)
    while sync(store, 90_000):
        pass
    disk.now_ms = 3_800_000

    def behind() -> int:
        return sum(
            1
            for queue in store.queues
            if queue.min < queue.first_at_log_offset(store.log.min_offset)
        )

    store.wake(3_800_000)
    assert store.min_log_offset > 0
    turns = [behind()]
    while behind():
        assert store.wake_at_ms() == 0
        store.wake(3_800_001)
        turns.append(behind())
    assert max(before - after for before, after in pairwise(turns)) <= 256
    assert len(turns) > 1


def test_what_nobody_could_see_yet_stays_however_old_it_is() -> None:
    """World 70570: a queue's next file could not be opened, and the clock was set a day forward;
    the segment with the records that waited for it was deleted."""
    disk = SimDisk()
    store = Store(disk, small(reserved_hours=1), hour=lambda _: 4, zone=UTC)
    store.open(1_000)
    puts = [store.put(message(n), 1_000) for n in range(100)]
    while sync(store, 12_000):
        pass
    queue = store.queues.by_key["orders", 0]
    waits = puts[40]
    assert 4_096 < waits.log_offset < 8_192
    places = 40, waits.log_offset, waits.record_size, 1_000
    store.dispatcher.stall("no descriptor", [UnseenRecord(queue, message(40), *places)])
    disk.now_ms = 3_800_000
    assert store.retention.clean_up(3_800_000) == 1
    assert store.min_log_offset == 4_096


def test_segments_stay_till_what_stands_for_their_messages_is_durable() -> None:
    """World 111444: a delayed message was delivered and waited for the disk, and the segment that
    held it was deleted meanwhile. A loss of power would have left neither."""
    disk = SimDisk()
    store = Store(disk, small(reserved_hours=1), hour=lambda _: 4, zone=UTC)
    fill(store, 80)
    is_delivered, now_ms = False, 3_800_000
    disk.now_ms = now_ms

    def keeper(_until: int, now_ms: int) -> int:
        nonlocal is_delivered
        if not is_delivered:
            store.put(message(100), now_ms)
            is_delivered = True
        return 8_192

    def looked() -> int:
        store.retention.clean_up(now_ms)
        return store.min_log_offset

    store.retention.keeper = keeper
    assert [looked(), looked()] == [0, 0]
    now_ms += 1_000
    wanted = store.next_sync(now_ms)
    assert wanted is not None
    store.put(message(101), now_ms)  # others do not make it wait
    assert looked() == 0
    for file in wanted.files:
        file.sync()
    store.sync_finished(wanted.log_offset, now_ms)
    assert store.durable_offset < store.end_offset
    assert looked() == 8_192


def test_segments_of_a_group_stay_till_its_members_have_what_stands_for_their_messages() -> None:
    disk = SimDisk()
    store = Store(disk, small(reserved_hours=1), hour=lambda _: 4, zone=UTC)
    fill(store, 80)
    store.ends.lead_group(timeout_ms=3_000)
    store.ends.set_in_sync(2)
    now_ms = disk.now_ms = 3_800_000

    def looked() -> int:
        store.retention.clean_up(now_ms)
        return store.min_log_offset

    assert looked() == 0, "no member has any of it"
    store.ends.set_confirmed(store.end_offset)
    store.retention.keeper = lambda _until, _now_ms: 8_192
    store.put(message(100), now_ms)
    carried = store.end_offset
    while sync(store, now_ms + 60_000):
        pass
    assert store.durable_offset == carried
    assert [looked(), looked()] == [0, 0]
    store.put(message(101), now_ms)
    store.ends.set_confirmed(carried)
    assert looked() == 8_192


def test_segments_found_free_later_wait_for_what_was_appended_by_then() -> None:
    disk = SimDisk()
    store = Store(disk, small(reserved_hours=1), hour=lambda _: 4, zone=UTC)
    fill(store, 80)
    now_ms, free_to = 3_800_000, [4_096]
    disk.now_ms = now_ms
    store.retention.keeper = lambda _until, _now_ms: free_to[0]
    store.put(message(100), now_ms)
    assert store.retention.clean_up(now_ms) == 0
    first = store.next_sync(now_ms)
    assert first is not None
    store.sync_finished(first.log_offset, now_ms)
    free_to[0] = 8_192
    store.put(message(101), now_ms)
    assert (store.retention.clean_up(now_ms), store.min_log_offset) == (1, 4_096)
    assert (store.retention.clean_up(now_ms), store.min_log_offset) == (0, 4_096)
    while sync(store, now_ms + 60_000):
        pass
    assert (store.retention.clean_up(now_ms), store.min_log_offset) == (1, 8_192)


def test_where_queues_end_whose_records_are_all_deleted_is_known_when_all_are_trimmed() -> None:
    disk = SimDisk()
    store = Store(disk, small(reserved_hours=1), zone=UTC)
    seldom = tuple(f"seldom{n}" for n in range(300))
    fill(store, 300, seldom)
    for n in range(100):
        store.put(message(n), 1_000)
    while sync(store, 24_000):
        pass
    disk.now_ms = 7_200_000
    store.retention.request_cleanup()
    for _ in range(10):
        store.retention.clean_up(7_200_000)
    assert len(store.queues.ends_without_records()) < len(seldom)
    assert store.retention.ends_of_emptied_queues() == {topic: {0: 1} for topic in seldom}

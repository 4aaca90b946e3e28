from __future__ import annotations

import random
from typing import Final

import pytest

from escrowmq.base.effects import Sync
from escrowmq.base.store_settings import StoreSettings
from escrowmq.codec.log_records import parse_records
from escrowmq.store.copied_log import CopiedLog
from escrowmq.store.store import Store
from escrowmq.testing.disk import CrashLoss, SimDisk, SimFile
from tests.unit.store.stores import SMALL, bodies, log_bytes, message, opened, small, sync
from tests.unit.store.test_copied_log import records

OLD: Final = 1_000
NEW: Final = 2_000


def copied(settings: StoreSettings = SMALL) -> tuple[Store, CopiedLog]:
    store, _ = opened(SimDisk(), settings)
    return store, store.become_copy()


def put(store: Store, number: int, queue_id: int, now_ms: int) -> None:
    store.put(message(number, queue_id=queue_id, body=b"%d" % number), now_ms)


def of_queues(store: Store) -> dict[int, list[bytes]]:
    found = {queue_id: bodies(store, "orders", queue_id) for queue_id in range(3)}
    return {queue_id: list(bodies.values()) for queue_id, bodies in found.items() if bodies}


@pytest.mark.parametrize("is_sync_flush", [False, True])
def test_queues_of_the_new_topic_stay_when_another_begins_again(is_sync_flush: bool) -> None:
    """One of them was empty before; with SYNC_FLUSH nothing is in its queue yet."""
    source, _ = opened(SimDisk())
    put(source, 1, 0, OLD)
    put(source, 2, 2, OLD)
    put(source, 3, 0, OLD)
    source.delete_topic("orders")
    put(source, 4, 1, NEW)
    put(source, 5, 0, NEW)
    store, log = copied(small(is_sync_flush=is_sync_flush))
    log.append(*records(source))
    if is_sync_flush:
        assert sync(store, NEW)
    assert of_queues(store) == of_queues(source) == {0: [b"5"], 1: [b"4"]}


@pytest.mark.parametrize("is_sync_flush", [False, True])
def test_a_queue_stays_whole_until_it_is_known_that_it_is_old(is_sync_flush: bool) -> None:
    """It has records on both sides of the last one of a queue that begins again (world 1000073)."""
    source, _ = opened(SimDisk())
    for number, queue_id in enumerate((0, 1, 0)):
        put(source, number, queue_id, OLD)
    source.delete_topic("orders")
    deletion = source.deleted.of_topic["orders"]
    put(source, 3, 1, NEW)
    store, log = copied(small(is_sync_flush=is_sync_flush))
    log.append(*records(source))
    if is_sync_flush:
        assert sync(store, NEW)
    assert of_queues(store) == {0: [b"0", b"2"], 1: [b"3"]}
    assert log.deletions.apply_deletion("orders", deletion.log_end, deletion.stored_ms)
    assert of_queues(store) == of_queues(source) == {1: [b"3"]}


def test_a_start_brings_nothing_back_that_a_queue_that_began_again_ended() -> None:
    source, _ = opened(SimDisk())
    put(source, 1, 0, OLD)
    source.delete_topic("orders")
    put(source, 2, 1, NEW)
    put(source, 3, 0, NEW)
    store, log = copied()
    log.append(*records(source))
    store.close(9_000)
    disk = store.disk
    assert isinstance(disk, SimDisk)
    disk.restart()
    for name in list(disk.files):
        if name.startswith("consumequeue/"):
            disk.remove(name)
    again, _ = opened(disk)
    assert of_queues(again) == {0: [b"3"], 1: [b"2"]}


@pytest.mark.parametrize("is_sync_flush", [False, True])
def test_a_deletion_removes_what_has_nothing_newer(is_sync_flush: bool) -> None:
    """Also one that is heard of late: the new topic has messages by then."""
    source, _ = opened(SimDisk())
    put(source, 1, 0, OLD)
    source.delete_topic("orders")
    deletion = source.deleted.of_topic["orders"]
    put(source, 2, 1, NEW)
    store, log = copied(small(is_sync_flush=is_sync_flush))
    data, found = records(source)
    log.append(data[: deletion.log_end], found[:1])
    assert not log.deletions.apply_deletion("orders", deletion.log_end + 1, OLD)
    assert store.queues_of("orders") == [0]
    log.append(data[deletion.log_end :], found[1:])
    for _ in range(2):
        assert log.deletions.apply_deletion("orders", deletion.log_end, deletion.stored_ms)
        assert store.queues_of("orders") == [1]
    if is_sync_flush:
        assert sync(store, NEW)
    assert of_queues(store) == {1: [b"2"]}


def test_an_older_deletion_that_is_heard_of_late_changes_nothing() -> None:
    store, log = twice_deleted()
    newest = store.deleted.of_topic["orders"]
    assert log.deletions.apply_deletion("orders", newest.log_end - 1, OLD)
    assert store.deleted.of_topic["orders"] == newest


def twice_deleted() -> tuple[Store, CopiedLog]:
    """A copy of a topic that was deleted twice, with nothing after it."""
    source, _ = opened(SimDisk())
    store, log = copied()
    for number in range(2):
        put(source, number, 0, OLD)
        source.delete_topic("orders")
    log.append(*records(source))
    assert log.deletions.apply_deletion("orders", store.end_offset, OLD)
    assert store.queues_of("orders") == []
    return store, log


def test_a_start_knows_of_a_deletion() -> None:
    store, _ = twice_deleted()
    known = store.deleted.of_topic["orders"]
    disk = store.disk
    assert isinstance(disk, SimDisk)
    disk.crash(random.Random(0), CrashLoss.NOTHING)
    again, report = opened(disk)
    assert again.deleted.of_topic["orders"] == known
    assert again.queues_of("orders") == []
    assert not report.queues_mended
    assert "the whole log is read" not in str(report.notes)


def test_files_of_a_deleted_topic_are_not_synced_any_more() -> None:
    """While senders wait, a sync takes a few of them, and the rest of the round follows."""
    roomy = small(log_segment_size=1 << 16, is_sync_flush=True)
    source, _ = opened(SimDisk(), roomy)
    for queue_id in range(20):
        put(source, queue_id, queue_id, OLD)
    end = source.end_offset
    source.put(message(0, topic="busy"), NEW)
    data = log_bytes(source, 0, source.end_offset)
    found = parse_records(data, 0).records
    store, log = copied(roomy)
    log.append(data[:end], found[:-1])
    assert sync(store, OLD)
    log.append(data[end:], found[-1:])
    under_way = store.next_sync(60_000)
    assert under_way is not None
    assert log.deletions.apply_deletion("orders", end, OLD)
    store.sync_finished(under_way.log_offset, 60_000)
    while (under_way := store.next_sync(60_000)) is not None:
        assert not queue_files(under_way)
        store.sync_finished(under_way.log_offset, 60_000)


def queue_files(one: Sync) -> list[str]:
    files = [file.path for file in one.files if isinstance(file, SimFile)]
    return [path for path in files if path.startswith("consumequeue/orders/")]


@pytest.mark.parametrize("is_known", [False, True])
def test_a_queue_without_any_record_may_begin_again(is_known: bool) -> None:
    """Damage has taken what it had."""
    source, _ = opened(SimDisk())
    for number in range(3):
        put(source, number, 0, OLD)
    store, log = copied()
    log.append(*records(source))
    if is_known:
        store.deleted.record_deletion("orders", log_end=1, stored_ms=OLD)
    queue = store.queues.by_key["orders", 0]
    queue.truncate(0)
    queue.set_next_offset(3)
    log.deletions.remove_restarted_queue(queue)
    assert store.queues_of("orders") == []

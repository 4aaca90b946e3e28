"""Queues and index become durable in rounds, a few files at a time."""

import random
from itertools import pairwise
from typing import Any

import msgspec
import pytest

from escrowmq.base.ports import File
from escrowmq.store.consume_queue import ConsumeQueue
from escrowmq.store.store import Store
from escrowmq.testing.disk import CrashLoss, SimDisk
from tests.unit.store.stores import SMALL, bodies, message, opened, small, sync

COUNT = 100
AT_ONCE = 32


def filled(disk: SimDisk, stored_ms: int = 1_000) -> Store:
    settings = msgspec.structs.replace(SMALL, log_segment_size=65_536)
    store, _ = opened(disk, settings, now_ms=stored_ms)
    put_in_each(store, stored_ms)
    return store


def put_in_each(store: Store, stored_ms: int) -> None:
    for queue_id in range(COUNT):
        store.put(message(queue_id, queue_id=queue_id), stored_ms)


def dirty(store: Store) -> int:
    return sum(queue.is_dirty for queue in store.queues)


def test_a_round_over_many_queues_looks_at_a_few_of_them_at_a_time() -> None:
    disk = SimDisk()
    store = filled(disk)
    now_ms, counts = 20_000, [dirty(store)]
    while sync(store, now_ms):
        counts.append(dirty(store))
        assert counts[-1] == 0 or store.checkpoint.value.queue_ms < 1_000
    assert all(before - after <= AT_ONCE for before, after in pairwise(counts))
    assert (counts[0], counts[-1]) == (COUNT, 0)
    assert store.checkpoint.value.queue_ms >= 1_000
    disk.crash(random.Random(1), CrashLoss.ALL)
    store, report = opened(disk, msgspec.structs.replace(SMALL, log_segment_size=65_536))
    assert not report.queues_mended
    assert bodies(store, queue_id=COUNT - 1) == {0: b"body %05d" % (COUNT - 1)}


def test_what_is_written_while_a_round_goes_on_is_of_the_next_one() -> None:
    store = filled(SimDisk())
    sync(store, 20_000)
    put_in_each(store, 20_001)
    while sync(store, 20_001):
        pass
    assert store.checkpoint.value.queue_ms < 20_001
    assert dirty(store) > 0
    while sync(store, 90_000):
        pass
    assert (store.checkpoint.value.queue_ms, dirty(store)) == (20_001, 0)


def quiet(disk: SimDisk) -> Store:
    """A store in which something is stored that need not be durable yet, and was asked."""
    store, _ = opened(disk, msgspec.structs.replace(SMALL, log_segment_size=65_536))
    while sync(store, 20_000):
        pass
    store.put(message(0), 20_000)
    assert store.next_sync(20_001) is None
    return store


def test_what_was_not_due_is_wanted_when_it_is() -> None:
    store = quiet(SimDisk())
    due_ms = store.flusher.wake_at_ms()
    assert store.next_sync(due_ms - 1) is None
    assert store.next_sync(due_ms) is not None


def test_a_clock_that_is_set_back_makes_nothing_wait() -> None:
    store = quiet(SimDisk())
    store.allow_earlier_times(5_000)
    store.put(message(1), 5_000)
    assert store.next_sync(5_001) is None
    assert store.next_sync(20_000) is not None  # before it was due by the clock of before


def test_nothing_is_a_matter_of_time_while_a_sync_is_under_way() -> None:
    """A wake would find nothing that may be synced, again and again."""
    store = filled(SimDisk())
    assert store.flusher.wake_at_ms() < 100_000
    wanted = store.next_sync(20_000)
    assert wanted is not None
    never_ms = store.flusher.wake_at_ms()
    assert never_ms > 1 << 60
    for file in wanted.files:
        file.sync()
    store.sync_finished(wanted.log_offset, 20_000)
    assert store.flusher.wake_at_ms() < never_ms


PAGE = 4_096


def timed(*sizes: int, **changes: Any) -> Store:
    """A store with so many unsynced bytes of log, where only the log is ever due."""
    store, _ = opened(
        SimDisk(),
        small(
            log_segment_size=1 << 20, flush_interval_ms=500, flush_thorough_ms=10_000,
            flush_pages_min=4, queue_flush_interval_ms=60_000, **changes,
        ),
    )  # fmt: skip
    overhead = store.put(message(0, body=b"x"), 1_000).record_size - 1
    assert sync(store, 70_000)
    while sync(store, 70_000):
        pass
    for size in sizes:
        store.put(message(0, body=b"x" * (size - overhead)), 70_000)
    return store


@pytest.mark.parametrize(("size", "due_ms"), [(4 * PAGE, 500), (4 * PAGE - 1, 10_000), (0, None)])
def test_some_pages_are_synced_soon_and_less_in_the_end(size: int, due_ms: int | None) -> None:
    flusher = timed(*[size] * (size > 0)).flusher
    for passed_ms in (0, 499, 500, 501, 9_999, 10_000, 10_001):
        wanted = flusher.next_sync(70_000 + passed_ms)
        assert (wanted is not None) == (passed_ms == due_ms)
        if wanted is not None:
            flusher.sync_finished(wanted.log_offset, 70_000)
            return
    assert due_ms is None


@pytest.mark.parametrize(("is_sync_flush", "quiet_ms"), [(False, 500), (True, 0)])
def test_nothing_is_looked_for_before_it_can_be_due(*, is_sync_flush: bool, quiet_ms: int) -> None:
    flusher = timed(is_sync_flush=is_sync_flush).flusher
    assert flusher.next_sync(70_000) is None
    assert flusher.quiet_until_ms == (70_000 + quiet_ms if quiet_ms else 0)


def test_a_sync_that_ends_after_the_close_changes_nothing() -> None:
    store = timed(4 * PAGE)
    wanted = store.next_sync(80_000)
    assert wanted is not None
    assert store.flusher.sync_everything(80_000)
    before = store.flusher._durability.checkpoint.log_ms
    store.flusher._durability.checkpoint.log_ms = 0
    store.flusher.sync_finished(wanted.log_offset, 80_001)
    assert (before, store.flusher._durability.checkpoint.log_ms) == (70_000, 0)


def test_units_whose_file_cannot_be_opened_do_not_count_as_durable(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    store = filled(SimDisk())
    dirty_files = ConsumeQueue.take_dirty_files

    def fails(queue: ConsumeQueue) -> list[File]:
        if queue.queue_id == 50:
            raise OSError("too many open files")
        return dirty_files(queue)

    before = store.flusher._durability.derived_offset
    with monkeypatch.context() as patched:
        patched.setattr(ConsumeQueue, "take_dirty_files", fails)
        for now_ms in range(20_000, 25_000, 100):
            sync(store, now_ms)
        assert store.durable_offset == store.end_offset
        assert store.flusher.wake_at_ms() < 90_000, "it is tried again"
    assert store.flusher._durability.derived_offset == before
    assert caplog.text.count("queues and index are made durable later: too many open files") == 1
    for now_ms in range(25_000, 90_000, 1_000):
        while sync(store, now_ms):
            pass
    assert store.flusher._durability.derived_offset == store.end_offset
    assert store.flusher.wake_at_ms() > 1 << 60, "nothing is left to do"


def test_each_time_that_files_cannot_be_opened_is_logged_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    store, _ = opened(SimDisk(), small(has_index=False))

    def fails(queue: ConsumeQueue) -> list[File]:
        raise OSError("too many open files")

    for begin_ms in (20_000, 200_000):
        store.put(message(0), begin_ms)
        with monkeypatch.context() as patched:
            patched.setattr(ConsumeQueue, "take_dirty_files", fails)
            for now_ms in range(begin_ms, begin_ms + 60_000, 1_000):
                sync(store, now_ms)
        for now_ms in range(begin_ms + 60_000, begin_ms + 120_000, 1_000):
            sync(store, now_ms)
        assert dirty(store) == 0
    assert caplog.text.count("queues and index are made durable later") == 2


def test_the_files_of_the_index_are_in_the_round() -> None:
    store = filled(SimDisk())
    assert store.index is not None
    while (due_ms := store.flusher.wake_at_ms()) < 1 << 60:
        assert sync(store, due_ms)
    assert list(store.index.take_dirty_files()) == []


def test_units_count_as_durable_when_all_files_of_the_round_are_synced() -> None:
    store, _ = opened(SimDisk(), small(log_segment_size=1 << 20, has_index=False))
    for number in range(900):  # one queue with more files than one sync takes
        store.put(message(number), 1_000)
    assert sync(store, 20_000)
    assert store.checkpoint.value.queue_ms < 1_000
    while sync(store, 20_000):
        pass
    assert store.checkpoint.value.queue_ms == 1_000


@pytest.mark.parametrize(("size", "due_ms"), [(4 * PAGE, 70_500), (4 * PAGE - 1, 80_000)])
def test_a_wake_is_due_when_a_sync_is(size: int, due_ms: int) -> None:
    flusher = timed(size).flusher
    assert flusher.wake_at_ms() == due_ms
    flusher.sync_failed("planted")
    assert flusher.wake_at_ms() > 1 << 60, "the repair has its own time"


def test_no_sync_is_wanted_beside_another_or_after_the_close() -> None:
    flusher = timed(4 * PAGE).flusher
    assert not flusher.is_busy
    wanted = flusher.next_sync(80_000)
    assert wanted is not None
    assert flusher.is_busy
    flusher.sync_finished(wanted.log_offset, 80_000)
    assert not flusher.is_busy
    assert flusher.sync_everything(80_000)
    assert flusher.is_busy


def test_units_of_the_millisecond_of_the_checkpoint_are_made_durable_too() -> None:
    store = timed(PAGE, has_index=False)
    for _ in range(2):
        while (due_ms := store.flusher.wake_at_ms()) < 1 << 60:
            assert sync(store, due_ms)
        assert dirty(store) == 0
        store.put(message(0), 70_000)


@pytest.mark.parametrize("stored_ms", [0, 1_000])
def test_a_round_slower_than_the_interval_ends_all_the_same(stored_ms: int) -> None:
    store = filled(SimDisk(), stored_ms)
    first_end = store.end_offset
    for now_ms in range(20_000, 1_400_000, 120_000):
        sync(store, now_ms)
        put_in_each(store, stored_ms)
    assert store.flusher._durability.derived_offset > first_end


def test_a_queue_counts_as_clean_when_the_next_sync_has_its_file() -> None:
    store, _ = opened(SimDisk(), small(log_segment_size=65_536, has_index=False))
    for now_ms in (1_000, 20_000):
        while sync(store, now_ms):
            pass
        put_in_each(store, now_ms)
    log_files = store.log.unsynced_files()
    wanted = store.next_sync(80_000)
    assert wanted is not None
    not_of_queues = len(log_files) + 1  # the checkpoint
    assert len(wanted.files) - not_of_queues == COUNT - dirty(store) > 0


def test_the_checkpoint_is_written_when_a_round_has_changed_it() -> None:
    store = timed(PAGE)
    while (due_ms := store.flusher.wake_at_ms()) < 1 << 60:
        assert sync(store, due_ms)
    assert not store.flusher._durability.is_stale


def test_a_queue_that_could_not_be_opened_and_is_deleted_leaves_nothing_to_do(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    store, _ = opened(SimDisk(), small(has_index=False))

    def fails(queue: ConsumeQueue) -> list[File]:
        raise OSError("too many open files")

    store.put(message(0), 1_000)
    with monkeypatch.context() as patched:
        patched.setattr(ConsumeQueue, "take_dirty_files", fails)
        for now_ms in range(20_000, 100_000, 1_000):
            sync(store, now_ms)
    store.delete_topic("orders")
    for now_ms in range(100_000, 400_000, 1_000):
        sync(store, now_ms)
    assert store.flusher.wake_at_ms() > 1 << 60

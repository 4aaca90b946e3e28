"""Queues and index become durable in rounds, a few files at a time."""

import random
from itertools import pairwise

import msgspec

from escrowmq.store.store import Store
from escrowmq.testing.disk import Loss, SimDisk
from tests.unit.store.stores import SMALL, bodies, message, opened, sync

COUNT = 100
AT_ONCE = 32


def filled(disk: SimDisk) -> Store:
    store, _ = opened(disk, msgspec.structs.replace(SMALL, log_segment_size=65_536))
    for queue_id in range(COUNT):
        store.put(message(queue_id, queue_id=queue_id), 1_000)
    return store


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
    disk.crash(random.Random(1), Loss.ALL)
    store, report = opened(disk, msgspec.structs.replace(SMALL, log_segment_size=65_536))
    assert not report.queues_mended
    assert bodies(store, queue_id=COUNT - 1) == {0: b"body %05d" % (COUNT - 1)}


def test_what_is_written_while_a_round_goes_on_is_of_the_next_one() -> None:
    store = filled(SimDisk())
    sync(store, 20_000)
    for queue_id in range(COUNT):
        store.put(message(queue_id, queue_id=queue_id), 20_001)
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
    assert store.sync_wanted(20_001) is None
    return store


def test_what_was_not_due_is_wanted_when_it_is() -> None:
    store = quiet(SimDisk())
    due_ms = store.flusher.wake_at_ms()
    assert store.sync_wanted(due_ms - 1) is None
    assert store.sync_wanted(due_ms) is not None


def test_a_clock_that_is_set_back_makes_nothing_wait() -> None:
    store = quiet(SimDisk())
    store.go_back(5_000)
    store.put(message(1), 5_000)
    assert store.sync_wanted(5_001) is None
    assert store.sync_wanted(20_000) is not None  # before it was due by the clock of before


def test_nothing_is_a_matter_of_time_while_a_sync_is_under_way() -> None:
    """A wake would find nothing that may be synced, again and again."""
    store = filled(SimDisk())
    assert store.flusher.wake_at_ms() < 100_000
    wanted = store.sync_wanted(20_000)
    assert wanted is not None
    never_ms = store.flusher.wake_at_ms()
    assert never_ms > 1 << 60
    for file in wanted.files:
        file.sync()
    store.synced(wanted.log_offset, 20_000)
    assert store.flusher.wake_at_ms() < never_ms

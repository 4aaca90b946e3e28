"""An index that cannot be written keeps no message from its consumers, and a start completes it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from escrowmq.errors import DiskFull
from escrowmq.store import dispatch
from escrowmq.store.held_back import RETRY_MS
from escrowmq.store.index import Index, IndexFile
from escrowmq.store.index_chains import index_key
from escrowmq.store.recovery import ABORT
from escrowmq.store.store import PutStatus, Store
from escrowmq.testing.disk import SimDisk

from .stores import bodies, message, opened, small, sync

SETTINGS = small(log_segment_size=65_536)


@contextmanager
def failing_index(error: Exception | None = None) -> Iterator[list[int]]:
    """No index takes keys while the block runs. Yields the sizes of those that it was to take."""
    asked: list[int] = []

    def fail(_: Index, keys: bytearray) -> None:
        asked.append(len(keys))
        raise error or OSError("planted")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Index, "put", fail)
        yield asked


def put(store: Store, *numbers: int, now_ms: int = 1_000) -> None:
    for number in numbers:
        assert store.put(message(number), now_ms).status is PutStatus.OK


def find(store: Store, number: int) -> int:
    found = store.query("orders", f"k{number}", count_max=9, begin_ms=0, end_ms=1 << 40)
    return len(found.records)


def index_files(store: Store) -> list[IndexFile]:
    assert store.index is not None
    return store.index.files


def restart(disk: SimDisk) -> Store:
    disk.restart()
    return opened(disk, SETTINGS)[0]


def test_it_is_logged_once_and_tried_again(caplog: pytest.LogCaptureFixture) -> None:
    store, _ = opened(SimDisk(), SETTINGS)
    put(store, 5)
    store.wake(1_000)
    assert not index_files(store), "keys are collected while all is well"
    with failing_index():
        for number in range(3):
            put(store, number)
            store.dispatcher.flush_keys()
            store.wake(2_000 + number * RETRY_MS)
            assert store.dispatcher.stalled is None, "messages do not wait for it"
    assert caplog.text.count("new messages are not found by their keys for now: planted") == 1
    assert len(bodies(store)) == 4
    assert not index_files(store)
    store.wake(2_000 + 2 * RETRY_MS + 1)
    assert not index_files(store), "a pause between two attempts"
    store.wake(2_000 + 3 * RETRY_MS)
    assert index_files(store)
    assert [find(store, number) for number in range(3)] == [1, 1, 1]
    with failing_index():
        store.dispatcher.flush_keys()
        put(store, 3)
        store.dispatcher.flush_keys()
    assert caplog.text.count("not found by their keys for now") == 2


def test_a_full_disk_is_reported_elsewhere(caplog: pytest.LogCaptureFixture) -> None:
    store, _ = opened(SimDisk(), SETTINGS)
    with failing_index(DiskFull("planted")):
        put(store, 0)
        store.dispatcher.flush_keys()
    assert "by their keys" not in caplog.text


def test_a_failing_index_is_not_tried_with_each_batch() -> None:
    """Each attempt copied all keys that waited."""
    store, _ = opened(SimDisk(), SETTINGS)
    with failing_index() as asked:
        put(store, *range(2_000))
    assert len(asked) == 1
    put(store, *range(2_000, 2_300))
    assert not index_files(store)
    store.wake(1_000)
    assert [find(store, number) for number in (0, 1_999, 2_299)] == [1, 1, 1]
    before = store.dispatcher.keys_count
    put(store, *range(3_000, 3_200))
    assert store.dispatcher.keys_count > before, "it is written with each batch again"


@pytest.mark.parametrize("is_clean", [True, False])
def test_a_start_adds_what_the_index_could_not_take(is_clean: bool) -> None:
    """A clean stop said that the index was complete; and the syncs' checkpoint passed them by."""
    disk = SimDisk()
    store, _ = opened(disk, SETTINGS)
    put(store, 0)
    for now_ms in range(2_000, 10_000, 500):
        sync(store, now_ms)
    index_ms = store.checkpoint.value.index_ms
    assert index_ms == 1_000
    with failing_index():
        for number in range(1, 1_200):
            put(store, number, now_ms=10_000 + number)
        assert len(store.log.segments.starts) > 2
        for now_ms in range(200_000, 300_000, 500):
            sync(store, now_ms)
        assert store.checkpoint.value.index_ms <= 10_001
        if is_clean:
            store.close(300_000)
    store = restart(disk)
    assert [find(store, number) for number in (0, 1, 600, 1_199)] == [1, 1, 1, 1]


@pytest.mark.parametrize("is_clean", [True, False])
def test_a_start_goes_on_while_the_index_still_cannot_be_written(
    is_clean: bool, caplog: pytest.LogCaptureFixture
) -> None:
    disk = SimDisk()
    store, _ = opened(disk, SETTINGS)
    put(store, 0)
    store.dispatcher.flush_keys()
    with failing_index():
        put(store, *range(1, 300))
        if is_clean:
            store.close(2_000)
        for _ in range(2):
            caplog.clear()
            store = restart(disk)
            assert caplog.text.count("new messages are not found by their keys for now") == 1
            assert len(bodies(store)) == 300
            store.close(3_000)
    store = restart(disk)
    assert [find(store, number) for number in (0, 1, 299)] == [1, 1, 1]
    store.close(4_000)
    assert store.checkpoint.value.unseen_from == -1


def test_a_start_adds_the_other_keys_of_the_record_at_the_end_of_a_full_file(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    disk, settings = SimDisk(), small(index_entries_max=41, log_segment_size=65_536)
    store, _ = opened(disk, settings)
    put(store, *range(13))  # three keys each; the file has room for another one
    store.dispatcher.flush_keys()

    def fail(*_: object) -> None:
        raise OSError("planted")

    with monkeypatch.context() as patch:
        patch.setattr(Index, "_create_file", fail)
        put(store, *range(13, 20))
        store.close(2_000)
    assert store.checkpoint.value.unseen_from >= 0
    disk.restart()
    store, _ = opened(disk, settings)
    assert [find(store, number) for number in range(20)] == [1] * 20
    store.close(3_000)
    assert store.checkpoint.value.unseen_from == -1
    assert disk.size(ABORT) is None


def test_a_stop_without_a_whole_index_is_not_a_clean_one() -> None:
    """RocketMQ's broker rebuilds no index after a clean stop."""
    disk = SimDisk()
    store, _ = opened(disk, SETTINGS)
    put(store, 0)
    with failing_index():
        store.close(2_000)
    assert disk.size(ABORT) is not None


def test_an_index_is_given_up_when_too_many_keys_wait(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They took memory without a limit."""
    monkeypatch.setattr(dispatch, "KEYS_WAITING_MAX", 3_000)
    disk = SimDisk()
    store, _ = opened(disk, SETTINGS)
    put(store, 0)
    with failing_index() as asked:
        for number in range(1, 2_000):
            put(store, number, now_ms=10_000 + number)
    assert len(asked) == 2
    assert caplog.text.count("new messages are not found by their keys until the next start") == 1
    assert store.dispatcher.stalled is None
    assert len(bodies(store)) == 2_000
    store.wake(20_000)
    assert find(store, 0) == find(store, 1_999) == 0
    for now_ms in range(200_000, 300_000, 500):
        sync(store, now_ms)
    assert store.checkpoint.value.index_ms <= 10_001
    store.close(300_000)
    store = restart(disk)
    assert [find(store, number) for number in (0, 1, 1_000, 1_999)] == [1, 1, 1, 1]


def test_keys_that_a_start_finds_missing_wait_as_those_of_new_records(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    store, _ = opened(SimDisk(), SETTINGS)
    dispatcher, key = store.dispatcher, index_key(0, "k", 0, 1_000)
    with monkeypatch.context() as patch, failing_index() as asked:
        patch.setattr(dispatch, "KEYS_WAITING_MAX", 300)
        for count in (1, 298, 1, 1):
            assert dispatcher.index is not None or count == 1
            dispatcher.index_recovered_keys(bytearray(key * count))
        assert [size // len(key) for size in asked] == [1, 300]
        assert dispatcher.index is None
    dispatcher.flush_keys()
    assert not index_files(store), "it was given up, and keeps nothing"

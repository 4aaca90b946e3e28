"""After a failed sync: what it may have lost is written anew, and then messages are taken again."""

import logging
import random

import msgspec
import pytest

from escrowmq.store.failed_syncs import AGAIN_MAX_MS, FIRST_RETRY_MS
from escrowmq.store.results import PutResult, PutStatus
from escrowmq.store.store import Store
from escrowmq.testing.disk import CrashLoss, SimDisk
from tests.unit.store.stores import SMALL, bodies, message, opened, small, sync

SYNC = msgspec.structs.replace(SMALL, is_sync_flush=True)


def fail(store: Store, disk: SimDisk, now_ms: int) -> None:
    """The disk loses what a sync was to keep, and says so; it is sound afterwards."""
    wanted = store.next_sync(now_ms)
    assert wanted is not None
    disk.sync_error = "Input/output error"
    failed = 0
    for file in wanted.files:
        try:
            file.sync()
        except OSError:
            failed += 1
    assert failed
    disk.sync_error = None
    store.sync_failed("Input/output error", now_ms)


def mend(store: Store, now_ms: int) -> int:
    """Let the store do what is due until it takes messages; when that was."""
    for _ in range(1_000):
        store.wake(now_ms)
        sync(store, now_ms)
        if store.refusal is None:
            return now_ms
        now_ms = max(now_ms, min(store.mending.wake_at_ms(), now_ms + AGAIN_MAX_MS))
    raise AssertionError(store.refusal)


def put(store: Store, numbers: range, now_ms: int = 1_000) -> list[PutResult]:
    return [store.put(message(number), now_ms) for number in numbers]


@pytest.mark.parametrize("settings", [SYNC, SMALL])
def test_what_a_failed_sync_lost_is_durable_when_messages_are_taken_again(
    settings: object, caplog: pytest.LogCaptureFixture
) -> None:
    disk = SimDisk()
    store, _ = opened(disk, settings)  # type: ignore[arg-type]
    put(store, range(3))
    sync(store, 1_000)
    put(store, range(3, 40), 20_000)
    fail(store, disk, 20_000)
    assert store.refusal is not None
    now_ms = mend(store, 20_000)
    assert now_ms == 20_000 + FIRST_RETRY_MS
    assert store.durable_offset == store.end_offset
    assert store.put(message(40), now_ms).status is PutStatus.OK
    assert [record.levelno for record in caplog.records] == [logging.CRITICAL, logging.WARNING]
    disk.crash(random.Random(1), CrashLoss.ALL)
    store, _ = opened(disk, settings, now_ms=now_ms)  # type: ignore[arg-type]
    assert bodies(store) == {n: b"body %05d" % n for n in range(40)}
    found = store.query("orders", "k30", count_max=9, begin_ms=0, end_ms=1 << 60)
    assert len(found.records) == 1


def test_with_sync_flush_nothing_is_seen_before_it_is_written_anew() -> None:
    disk = SimDisk()
    store, _ = opened(disk, SYNC)
    put(store, range(3))
    fail(store, disk, 1_000)
    store.wake(1_000)
    assert store.bounds("orders", 0) == (0, 0)
    mend(store, 1_000)
    assert len(store.take_arrivals()) == 3


def test_attempts_come_ever_more_seldom_while_the_disk_is_not_sound(
    caplog: pytest.LogCaptureFixture,
) -> None:
    disk = SimDisk()
    store, _ = opened(disk, SYNC)
    put(store, range(3))
    fail(store, disk, 1_000)
    now_ms, waits = 1_000, []
    for _ in range(9):
        waits.append(store.mending.wake_at_ms() - now_ms)
        now_ms = store.mending.wake_at_ms()
        while (wanted := store.next_sync(now_ms)) is None:
            store.wake(now_ms)
        assert wanted.log_offset == store.end_offset
        store.sync_failed("Input/output error", now_ms)
    assert waits == [FIRST_RETRY_MS << n for n in range(6)] + [AGAIN_MAX_MS] * 3
    assert store.mending.failures_count == 10
    assert len(caplog.records) == 1
    mend(store, now_ms)
    put(store, range(3, 4), now_ms)
    fail(store, disk, now_ms)
    assert store.mending.wake_at_ms() == now_ms + FIRST_RETRY_MS


def test_what_cannot_be_read_back_whole_wants_a_restart(caplog: pytest.LogCaptureFixture) -> None:
    disk = SimDisk()
    disk.drops_pages = True
    store, _ = opened(disk, SYNC)
    put(store, range(3))
    fail(store, disk, 1_000)
    store.wake(1_000 + FIRST_RETRY_MS)
    assert store.refusal is not None
    assert "restart" in store.refusal
    assert "restart" in caplog.records[-1].message
    assert store.next_sync(9_000_000) is None
    store.close(9_000_000)
    assert disk.size("abort") is not None


@pytest.mark.parametrize("lost", ["body", "properties", "units", "entries"])
def test_every_lost_sector_is_noticed(lost: str) -> None:
    disk = SimDisk()
    is_log = lost in ("body", "properties")
    store, _ = opened(disk, small(log_segment_size=65_536, is_sync_flush=is_log))
    text = {"UNIQ_KEY": "U1", "long": "x" * 2_000}
    found = [store.put(message(n, body=b"y" * 2_000, properties=text), 1_000) for n in range(8)]
    store.dispatcher.flush_keys()
    path, at, size = {
        "body": ("commitlog/" + "0" * 20, found[3].log_offset + 512, 512),
        "properties": ("commitlog/" + "0" * 20, found[4].log_offset - 1_024, 512),
        "units": ("consumequeue/orders/0/" + "0" * 20, 40, 60),
        "entries": ("index/19700101000001000", 40 + 16 * 4 + 60, 40),
    }[lost]
    at -= at % 512 if is_log else 0
    disk.overwrite(path, at, bytes(size))
    fail(store, disk, 60_000)
    for _ in range(20):
        store.wake(90_000)
    assert store.refusal is not None
    assert "restart" in store.refusal


@pytest.mark.parametrize("boot", ["", "same"])
def test_a_start_in_the_same_boot_writes_anew_what_the_process_before_wrote(boot: str) -> None:
    disk = SimDisk()
    store = Store(disk, SYNC, boot=boot)
    store.open(1_000)
    put(store, range(5))
    fail(store, disk, 1_000)
    disk.restart()  # the process ends; what it wrote is in memory, and nowhere else
    store = Store(disk, SYNC, boot=boot)
    store.open(2_000)
    assert len(bodies(store)) == 5
    disk.crash(random.Random(1), CrashLoss.ALL)
    store, _ = opened(disk, SYNC)
    assert len(bodies(store)) == 5


def test_a_start_takes_no_note_of_an_older_boot_for_that_of_the_process_before() -> None:
    """World 134383: the note of the boot had no room when the process before began."""
    disk = SimDisk()
    store = Store(disk, SYNC, boot="first")
    store.open(1_000)
    put(store, range(3))
    store.close(1_000)
    disk.crash(random.Random(1), CrashLoss.ALL)
    disk.room = disk.used
    store = Store(disk, SYNC, boot="second")
    store.open(1_000)
    disk.room = None
    now_ms = mend(store, 60_000)
    put(store, range(3, 5), now_ms)
    fail(store, disk, now_ms)
    disk.restart()
    store = Store(disk, SYNC, boot="second")
    store.open(now_ms)
    assert len(bodies(store)) == 5
    disk.crash(random.Random(1), CrashLoss.ALL)
    store, _ = opened(disk, SYNC)
    assert len(bodies(store)) == 5


def test_a_start_in_the_same_boot_finds_units_that_were_dropped_from_memory() -> None:
    disk = SimDisk()
    store = Store(disk, SMALL, boot="same")
    store.open(1_000)
    put(store, range(50), 5_000)
    disk.overwrite("consumequeue/orders/0/" + "0" * 16 + "0400", 100, bytes(80))
    disk.restart()
    store = Store(disk, SMALL, boot="same")
    store.open(6_000)
    assert bodies(store) == {n: b"body %05d" % n for n in range(50)}


@pytest.mark.parametrize("parts_count", range(1, 7))
def test_topics_may_be_deleted_while_their_units_are_written_anew(parts_count: int) -> None:
    """World 121200: a topic was deleted while those of another were, and then its turn came."""
    disk = SimDisk()
    store, _ = opened(disk, SYNC)
    for topic in ("a", "b", "c"):
        store.put(message(1, topic=topic), 1_000)
    sync(store, 1_000)
    store.put(message(2, topic="a"), 1_000)
    fail(store, disk, 1_000)
    for _ in range(parts_count):
        store.wake(1_000 + FIRST_RETRY_MS)
    for topic in ("a", "b", "c"):
        store.delete_topic(topic)
    mend(store, 1_000 + FIRST_RETRY_MS)

"""A queue whose file cannot be written keeps nobody else's messages from their consumers."""

from __future__ import annotations

import errno
import random
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import pytest

from escrowmq.base.store_settings import StoreSettings
from escrowmq.codec.log_records import parse_records
from escrowmq.codec.properties import encode_properties
from escrowmq.codec.record import decode_record
from escrowmq.errors import DiskFull, StorageError
from escrowmq.store import held_back
from escrowmq.store.consume_queue import ConsumeQueue
from escrowmq.store.held_back import stall_reason
from escrowmq.store.store import PutStatus, Store
from escrowmq.testing.disk import CrashLoss, SimDisk

from .stores import bodies, log_bytes, message, opened, small, sync

BROKEN = f"consumequeue/broken/0/{0:020d}"
RETRY_MS = held_back.RETRY_MS


def broken_store(settings: StoreSettings | None = None) -> tuple[SimDisk, Store]:
    disk = SimDisk()
    store, _ = opened(disk, settings or small(log_segment_size=65_536))
    disk.unreadable.add(BROKEN)
    return disk, store


def put(store: Store, *numbers: int, topic: str = "broken", now_ms: int = 1_000) -> None:
    for number in numbers:
        stored = store.put(message(number, topic=topic), now_ms)
        assert stored.status is PutStatus.OK


@contextmanager
def full_disk() -> Iterator[None]:
    """No queue has space while the block runs."""

    def full(*_: object) -> None:
        raise DiskFull("planted")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ConsumeQueue, "append_at", full)
        yield


def seen(store: Store, topic: str = "broken") -> list[int]:
    return [int(body.split()[1]) for _, body in sorted(bodies(store, topic).items())]


def test_other_queues_go_on_and_it_follows_in_its_order(caplog: pytest.LogCaptureFixture) -> None:
    """Nothing was shown any more, of any topic, and nothing was logged."""
    caplog.set_level("INFO")
    disk, store = broken_store()
    for number in range(0, 20, 2):
        put(store, number)
        put(store, number + 1, topic="sound")
        store.wake(1_000)
    assert seen(store, "sound") == [*range(1, 20, 2)]
    assert seen(store) == []
    assert store.bounds("broken", 0) == (0, 0)
    assert len(store.dispatcher.held_back.units) == 1
    assert store.unseen_size > 0
    told = [record.getMessage() for record in caplog.records if record.levelname == "ERROR"]
    assert len(told) == 1
    assert f"messages of broken/0 are not visible: {BROKEN}: " in told[0]
    store.take_arrivals()
    store.wake(store.wake_at_ms())
    assert seen(store) == []
    disk.unreadable.clear()
    assert store.wake_at_ms() <= 1_000 + 2 * RETRY_MS
    store.wake(1_000 + 2 * RETRY_MS)
    assert seen(store) == [*range(0, 20, 2)]
    arrived = store.take_arrivals()
    assert [(each.topic, each.queue_offset) for each in arrived] == [
        ("broken", offset) for offset in range(10)
    ]
    assert store.unseen_size == 0
    assert "all messages of broken/0 are visible now" in caplog.text
    put(store, 20)
    assert seen(store)[-1] == 20


def test_messages_of_it_are_found_by_their_keys_meanwhile() -> None:
    _, store = broken_store()
    put(store, 0, 1)
    found = store.query("broken", "k1", count_max=9, begin_ms=0, end_ms=9_000)
    assert len(found.records) == 1
    put(store, 2, topic="sound")
    assert len(store.query("sound", "k2", count_max=9, begin_ms=0, end_ms=9_000).records) == 1


@pytest.mark.parametrize("loss", CrashLoss)
@pytest.mark.parametrize("is_sync", [True, False])
def test_nothing_of_it_is_lost_when_the_machine_stops(loss: CrashLoss, *, is_sync: bool) -> None:
    """The checkpoint must not say that all units up to the last message are written."""
    disk, store = broken_store(small(log_segment_size=65_536, is_sync_flush=is_sync))
    now_ms = 1_000
    for number in range(0, 40, 2):
        now_ms += 500
        put(store, number, now_ms=now_ms)
        put(store, number + 1, topic="sound", now_ms=now_ms)
        store.wake(now_ms)
        while sync(store, now_ms):
            pass
    disk.unreadable.clear()
    disk.crash(random.Random(1), loss)
    again, _ = opened(disk, store.settings, now_ms=now_ms)
    found = sorted(seen(again) + seen(again, "sound"))
    assert found == [*range(len(found))]
    assert len(found) == 40 or (loss is not CrashLoss.NOTHING and not is_sync)


def test_a_store_that_is_closed_meanwhile_finds_them_at_the_next_start() -> None:
    disk, store = broken_store()
    put(store, 0, 1)
    put(store, 2, topic="sound")
    store.close(2_000)
    disk.unreadable.clear()
    disk.restart()
    again, _ = opened(disk, store.settings)
    assert (seen(again), seen(again, "sound")) == ([0, 1], [2])


def test_it_accepts_only_so_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(held_back, "HELD_UNITS_MAX", 3)
    disk, store = broken_store()
    put(store, 0, 1, 2)
    refused = store.put(message(3, topic="broken"), 1_000)
    assert refused.status is PutStatus.SERVICE_NOT_AVAILABLE
    assert "3 messages wait for queues that cannot be written" in refused.reason
    put(store, 3, topic="sound")
    assert store.put(message(4, topic="broken"), 1_000, is_settling=True).status is PutStatus.OK
    disk.unreadable.clear()
    store.wake(1_000 + 2 * RETRY_MS)
    put(store, 5)
    assert seen(store) == [0, 1, 2, 4, 5]


def test_a_deleted_topic_leaves_nothing() -> None:
    _, store = broken_store()
    put(store, 0, 1)
    put(store, 2, topic="sound")
    assert store.delete_topic("broken") == 1
    assert store.unseen_size == 0
    assert store.dispatcher.held_back.units == {}
    store.wake(1_000 + 2 * RETRY_MS)
    assert seen(store, "sound") == [2]


def test_no_log_is_deleted_from_which_it_must_still_be_shown() -> None:
    settings = small(reserved_hours=1)
    disk, store = broken_store(settings)
    put(store, 0)
    for number in range(1, 60):
        put(store, number, topic="sound", now_ms=2_000 + number)
    for hours in range(1, 200):
        store.wake(hours * 3_600_000)
        sync(store, hours * 3_600_000)
    assert store.min_log_offset == 0
    disk.unreadable.clear()
    store.wake(201 * 3_600_000)
    assert seen(store) == [0]


def test_a_full_disk_stalls_all_as_before() -> None:
    _, store = broken_store()
    with full_disk():
        put(store, 0, topic="sound")
        assert store.dispatcher.stalled == "planted"
        assert store.dispatcher.held_back.units == {}
    store.wake(1_500)
    assert seen(store, "sound") == [0]


def source_of(chance: random.Random, count: int) -> Store:
    """A master with messages of three topics."""
    source, _ = opened(SimDisk(), small(log_segment_size=65_536))
    for number in range(count):
        topic = chance.choice(["broken", "sound", "other"])
        assert source.put(message(number, topic=topic), 1_000 + number).status is PutStatus.OK
    return source


@pytest.mark.parametrize("seed", range(10))
def test_a_copy_of_a_log_has_the_same_in_the_end(seed: int) -> None:
    chance = random.Random(seed)
    source = source_of(chance, 60)
    data = log_bytes(source, 0, source.end_offset)
    found = parse_records(data, 0).records
    disk = SimDisk()
    store, _ = opened(disk, small(log_segment_size=65_536))
    log = store.become_copy()
    paths = {name: f"consumequeue/{name}/0/{0:020d}" for name in ("broken", "other")}
    now_ms = 2_000
    while found:
        disk.unreadable = {path for path in paths.values() if chance.random() < 0.5}
        count = chance.randint(1, 9)
        some, found = found[:count], found[count:]
        log.append(data[some[0].log_offset : some[-1].log_offset + some[-1].size], some)
        now_ms += chance.randint(0, 2 * RETRY_MS)
        store.wake(now_ms)
    disk.unreadable.clear()
    for _ in range(3):
        now_ms += RETRY_MS
        store.wake(now_ms)
    for topic in ("broken", "sound", "other"):
        assert seen(store, topic) == seen(source, topic)
    assert store.unseen_size == 0


def in_log(store: Store, topics: Sequence[str]) -> dict[str, list[int]]:
    """The numbers of the messages of each topic that the log has."""
    found: dict[str, list[int]] = {topic: [] for topic in topics}
    data = log_bytes(store, 0, store.end_offset)
    for record in parse_records(data, 0).records:
        body = decode_record(data, record.log_offset).body
        found[record.topic.decode()].append(int(body.split()[1]))
    return found


@pytest.mark.parametrize("seed", range(40))
def test_queues_that_fail_by_turns_keep_their_order_over_crashes(seed: int) -> None:
    chance = random.Random(seed)
    settings = small(log_segment_size=65_536, is_sync_flush=chance.random() < 0.5)
    disk = SimDisk()
    store, _ = opened(disk, settings)
    topics, now_ms = ("broken", "sound", "other"), 1_000
    stored: dict[str, list[int]] = {topic: [] for topic in topics}
    for number in range(150):
        topic = chance.choice(topics)
        if chance.random() < 0.1:
            disk.unreadable = {
                f"consumequeue/{name}/0/{20 * first:020d}"
                for name in topics
                for first in (0, 20, 40)
                if chance.random() < 0.4
            }
        assert store.put(message(number, topic=topic), now_ms).status is PutStatus.OK
        stored[topic].append(number)
        now_ms += chance.randint(0, 500)
        while sync(store, now_ms):
            pass
        store.wake(now_ms)
        for name in topics:
            visible = store.bounds(name, 0)[1]
            assert disk.unreadable or visible <= len(stored[name])
        if chance.random() < 0.05:
            disk.unreadable.clear()
            disk.crash(random.Random(number), chance.choice([*CrashLoss]))
            store, _ = opened(disk, settings, now_ms=now_ms)
            stored = in_log(store, topics)
            assert {topic: seen(store, topic) for topic in topics} == stored
    disk.unreadable.clear()
    for _ in range(4):
        now_ms += RETRY_MS
        while sync(store, now_ms):
            pass
        store.wake(now_ms)
    assert {topic: seen(store, topic) for topic in topics} == stored
    assert store.unseen_size == 0
    assert store.dispatcher.derived_offset == store.end_offset


def caused_by(number: int) -> StorageError:
    error = StorageError("planted")
    error.__cause__ = OSError(number, "planted")
    return error


@pytest.mark.parametrize(
    ("error", "is_of_all"),
    [
        (DiskFull("planted"), True),
        (OSError(errno.EMFILE, "planted"), True),
        (caused_by(errno.ENFILE), True),
        (caused_by(errno.EIO), False),
        (OSError(errno.EACCES, "planted"), False),
        (StorageError("planted"), False),
    ],
)
def test_what_keeps_all_queues_from_being_written(error: Exception, *, is_of_all: bool) -> None:
    assert stall_reason(error) == (str(error) if is_of_all else None)


def test_what_is_held_back_is_found_by_its_place() -> None:
    _, store = broken_store()
    put(store, 0, 1, 2)
    put(store, 3, topic="sound")
    held = store.dispatcher.held_back
    queue = store.queues.by_key["broken", 0]
    first, second, third = held.units[queue]
    assert held.covers(queue, second.log_offset)
    assert not held.covers(queue, second.log_offset + 1)
    assert not held.covers(store.queues.by_key["sound", 0], second.log_offset)
    assert held.entries("broken", 1) == [second[1:4], third[1:4]]
    assert held.entries("broken", 0)[0] == first[1:4]
    for topic in ("a", "sound", "z"):
        assert held.entries(topic, 0) == []


def test_many_are_shown_in_several_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(held_back, "_AT_ONCE", 2)
    disk, store = broken_store()
    put(store, 0, 1, 2, 3, 4)
    store.wake(1_000)
    disk.unreadable.clear()
    for count in (2, 4, 5):
        store.wake(3_000)
        assert len(seen(store)) == count
    assert store.dispatcher.held_back.retry_at_ms > 1 << 60


def test_a_deleted_queue_is_not_tried_again() -> None:
    _, store = broken_store()
    put(store, 0)
    store.delete_topic("broken")
    assert store.dispatcher.held_back.retry_at_ms > 1 << 60


def test_a_copy_takes_no_more_when_too_many_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(held_back, "HELD_UNITS_MAX", 2)
    source, _ = opened(SimDisk(), small(log_segment_size=65_536))
    put(source, 0, 1, 2)
    data = log_bytes(source, 0, source.end_offset)
    found = parse_records(data, 0).records
    _, store = broken_store()
    log = store.become_copy()
    for one in found[:2]:
        log.append(data[one.log_offset : one.log_offset + one.size], [one])
    store.wake(1_000)
    last = found[2]
    with pytest.raises(StorageError, match="too many messages wait"):
        log.append(data[last.log_offset :], [last])


def test_a_batch_for_it_waits_for_its_turn() -> None:
    disk, store = broken_store()
    put(store, 0)
    store.wake(1_000)
    disk.unreadable.clear()
    batch = message(0, topic="broken")
    pieces = [
        (0, b"body %05d" % number, encode_properties(batch.properties), batch.properties)
        for number in (1, 2)
    ]
    assert {each.status for each in store.batches.put(batch, pieces, 1_001)} == {PutStatus.OK}
    assert seen(store) == []
    put(store, 3)
    store.wake(1_002)
    store.wake(1_000 + 2 * RETRY_MS)
    assert seen(store) == [0, 1, 2, 3]


def test_what_a_full_disk_keeps_waiting_is_found_by_its_place() -> None:
    _, store = broken_store()

    with full_disk():
        put(store, 0, 1, topic="sound")
        put(store, 2, topic="other")
        first, second, _ = store.dispatcher.waiting
        entries = store.dispatcher.unseen_entries
        assert [each[0] for each in entries("sound", 0)] == [first.log_offset, second.log_offset]
        assert [each[0] for each in entries("sound", 1)] == [second.log_offset]
        for topic in ("a", "z"):
            assert entries(topic, 0) == []


def test_not_all_is_synced_while_a_full_disk_keeps_records_waiting() -> None:
    _, store = broken_store()

    with full_disk():
        put(store, 0, topic="sound")
        assert not store.flusher.sync_everything(1_000)
    assert store.flusher.sync_everything(1_000)
    put(store, 1)
    assert not store.flusher.sync_everything(1_000), "a queue is held back"

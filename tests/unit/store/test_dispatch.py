"""What waits to become visible, and what keeps it waiting."""

from __future__ import annotations

import pytest

from escrowmq.base.message import StoredMessage, Topic
from escrowmq.codec.properties import encode_properties
from escrowmq.codec.record import encode_message
from escrowmq.codec.store_entries import ENTRY
from escrowmq.store.dispatch import schedule_unit_code
from escrowmq.store.encoding import Piece
from escrowmq.store.index_chains import KEY, index_key
from escrowmq.store.store import Store
from escrowmq.store.unseen import QueueUnits, UnseenRecord, UnseenRun
from escrowmq.testing.disk import SimDisk
from tests.unit.store.stores import bodies, message, opened, small, sync


def test_a_record_may_be_seen_once_the_log_is_durable_up_to_its_end() -> None:
    store, _ = opened(SimDisk(), small(is_sync_flush=True))
    dispatcher = store.dispatcher
    assert not dispatcher.has_due_items
    put = store.put(message(1), 1_000)
    assert not dispatcher.has_due_items
    assert not dispatcher.is_overdue
    store.ends.set_durable(put.log_end - 1)
    assert not dispatcher.has_due_items
    assert not dispatcher.is_overdue
    store.ends.set_durable(put.log_end)
    assert dispatcher.has_due_items
    assert dispatcher.is_overdue


def test_what_a_full_disk_keeps_waiting_is_held_up_and_waits_for_no_sync() -> None:
    store, _ = opened(SimDisk(), small(is_sync_flush=True))
    store.put(message(1), 1_000)
    store.dispatcher.stall("the disk is full")
    assert store.dispatcher.is_overdue
    store.ends.set_durable(store.end_offset)
    assert store.dispatcher.is_overdue
    assert not store.dispatcher.has_due_items


def test_of_what_waits_a_deleted_topic_alone_never_becomes_visible() -> None:
    store, _ = opened(SimDisk(), small(is_sync_flush=True))
    for topic in ("a", "m", "z"):
        store.put(message(1, topic=topic), 1_000)
    store.dispatcher.detach_queues({store.queues.by_key["m", 0]})
    assert sync(store, 2_000)
    store.wake(2_000)
    assert [len(bodies(store, topic)) for topic in ("a", "m", "z")] == [1, 0, 1]


@pytest.mark.parametrize("topic", ["a", "m", "z"])
def test_of_a_run_a_deleted_topic_alone_gets_no_units(topic: str) -> None:
    store, _ = opened(SimDisk())
    store.put(message(1, topic="m"), 1_000)
    queues = {name: store.queues.get_or_create(name, 0) for name in ("a", "m", "z")}
    parts = [QueueUnits(queue, name, 0, 0, b"") for name, queue in queues.items()]
    left = UnseenRun(0, b"", 1_000, parts, b"").without_queues({queues[topic]})
    assert [part.topic for part in left.parts if part.queue is None] == [topic]


def test_a_record_that_waits_is_known_by_where_it_starts() -> None:
    one = UnseenRecord(None, message(1), 0, 100, 50, 1_000)
    part = QueueUnits(None, "T", 0, 0, ENTRY.pack(100, 50, 0) + ENTRY.pack(150, 50, 0))
    run = UnseenRun(100, bytes(100), 1_000, [part], b"")
    assert [at for at in range(90, 210) if one.covers(at)] == [100]
    assert [at for at in range(90, 210) if run.covers(at)] == [100, 150]


def test_a_run_that_is_held_back_in_part_keeps_the_order_of_its_keys() -> None:
    store, _ = opened(SimDisk())
    a, b = (store.queues.get_or_create(name, 0) for name in "ab")
    records = [
        encode_message(StoredMessage(topic=topic, body=b"x", queue_id=0, queue_offset=nth,
                                     log_offset=0, stored_ms=1_000, record_size=0))
        for topic, nth in (("a", 0), ("b", 0), ("a", 1))
    ]  # fmt: skip
    begins = [100 + sum(map(len, records[:nth])) for nth in range(3)]
    unit = [ENTRY.pack(at, len(data), 0) for at, data in zip(begins, records, strict=True)]
    key = [KEY.pack(7, at, 1_000) for at in begins]
    parts = [QueueUnits(a, "a", 0, 0, unit[0] + unit[2]), QueueUnits(b, "b", 0, 0, unit[1])]
    run = UnseenRun(100, b"".join(records), 1_000, parts, b"".join(key))
    held, before = run.rest_from_part(1)
    assert before == key[0], "keys enter the index in the log's order"
    assert [(one.queue, one.log_offset) for one in held] == [(b, begins[1]), (None, begins[2])]


def piece(number: int, **properties: str) -> Piece:
    given = properties or {"UNIQ_KEY": f"U{number:05d}"}
    return 0, b"body %05d" % number, encode_properties(given), given


def put_batch(store: Store, count: int = 2) -> None:
    store.batches.put(message(0), [piece(number) for number in range(count)], 1_000)


@pytest.mark.parametrize("is_batch", [True, False])
def test_what_is_put_behind_records_that_wait_waits_too(*, is_batch: bool) -> None:
    store, _ = opened(SimDisk())
    store.ends.set_in_sync(1)
    store.put(message(1), 1_000)
    store.ends.set_in_sync(2)  # nobody waits for the disk any more
    if is_batch:
        put_batch(store)
    else:
        store.put(message(2), 1_000)
    assert bodies(store) == {}
    store.wake(1_000)
    assert len(bodies(store)) == 2 + is_batch


def test_with_sync_flush_a_batch_is_shown_when_it_is_durable() -> None:
    store, _ = opened(SimDisk(), small(is_sync_flush=True))
    store.put(message(1), 1_000)
    assert sync(store, 1_000)
    store.wake(1_000)
    put_batch(store)
    assert len(bodies(store)) == 1
    assert sync(store, 1_000)
    store.wake(1_000)
    assert len(bodies(store)) == 3


def test_a_batch_that_is_shown_is_reported_record_by_record() -> None:
    store, _ = opened(SimDisk())
    put_batch(store, 3)
    assert [arrival.queue_offset for arrival in store.take_arrivals()] == [0, 1, 2]
    store.dispatcher.report_only_awaited(lambda topic, queue_id: False)
    put_batch(store, 3)
    assert store.take_arrivals() == []


def test_a_batch_of_delayed_messages_has_their_times_for_tags() -> None:
    store, _ = opened(SimDisk())
    pieces = [piece(0, DELAY="1"), piece(1, DELAY="2")]
    (put, *_) = store.batches.put(message(0, topic=Topic.SCHEDULE), pieces, 1_000)
    store.wake(1_000)
    codes = [code for _, _, code in store.read_units(Topic.SCHEDULE, 0, 0, 2)]
    assert codes == [put.stored_ms + 1_000, put.stored_ms + 5_000]


@pytest.mark.parametrize(
    ("delays_ms", "code"), [({}, 7), ({1: 10, 2: 20, 3: 30, 4: 40}, 1_030), ({1: 10, 2: 20}, 1_020)]
)
def test_a_delay_has_the_time_of_its_level_or_of_the_highest(
    delays_ms: dict[int, int], code: int
) -> None:
    assert schedule_unit_code({"DELAY": "3"}, 1_000, 7, delays_ms) == code
    assert schedule_unit_code({}, 1_000, 7, delays_ms) == 7


def test_index_entries_are_written_256_at_a_time() -> None:
    store, _ = opened(SimDisk(), small(log_segment_size=1 << 20, index_entries_max=2_000))
    written = store.dispatcher
    for number in range(255):
        store.put(message(number, properties={"UNIQ_KEY": "u"}), 1_000)
    assert written.keys_count == 0
    store.put(message(255, properties={"UNIQ_KEY": "u"}), 1_000)
    assert written.keys_count == 256
    for _ in range(5):
        put_batch(store, 51)
    assert written.keys_count == 256
    put_batch(store, 1)
    assert written.keys_count == 512
    for count, total in ((255, 512), (1, 768)):
        keys = index_key(1, "u", 0, 1_000) * count
        written.note_run_dispatched(store.end_offset, 1_000, keys)
        assert written.keys_count == total


def test_without_an_index_no_keys_are_kept() -> None:
    store, _ = opened(SimDisk(), small(has_index=False))
    store.put(message(1), 1_000)
    put_batch(store)
    store.dispatcher.note_run_dispatched(store.end_offset, 1_000, index_key(1, "u", 0, 1_000))
    store.dispatcher.flush_keys()
    assert not store.dispatcher._keys
    assert len(bodies(store)) == 3


def test_a_disk_that_takes_the_index_has_room_again_unless_units_wait() -> None:
    store, _ = opened(SimDisk())
    dispatcher = store.dispatcher
    for waiting, stalled in (
        ((), None),
        ((UnseenRecord(None, message(1), 0, 0, 9, 1_000),), "full"),
    ):
        store.put(message(1), 1_000)
        dispatcher.stall("full", waiting)
        dispatcher.flush_keys()
        assert dispatcher.stalled == stalled
        assert not dispatcher._keys

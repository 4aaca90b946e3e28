"""What is durable, and what the checkpoint says of it."""

from __future__ import annotations

from escrowmq.base.message import Message
from escrowmq.store.durable_ends import DurableEnds
from escrowmq.store.store import Store
from escrowmq.testing.disk import SimDisk
from tests.unit.store.stores import SMALL, opened


def store_with(*stored_ms: int) -> tuple[Store, DurableEnds]:
    store, _ = opened(SimDisk(), SMALL)
    for each in stored_ms:
        store.put(Message(topic="t", body=b"x"), each)
    durability = DurableEnds(store.ends, store.checkpoint, has_index=True)
    return store, durability


def test_a_sync_of_the_log_says_nothing_of_what_leads_there() -> None:
    store, durability = store_with(1_000, 9_000)
    durability.note_log_synced(100, 1_000)
    assert store.durable_offset == durability.checkpoint.confirmed_offset == 100
    assert durability.checkpoint.log_ms == 1_000
    assert durability.derived_offset == 0
    durability.note_log_synced(50, 500)  # never back
    assert (store.durable_offset, durability.checkpoint.log_ms) == (100, 1_000)


def test_what_is_safe_is_durable_everywhere() -> None:
    _, durability = store_with(1_000, 9_000)
    durability.note_log_synced(180, 9_000)
    durability.note_derived_synced(150, 8_000)
    assert durability.derived_offset == 150
    assert durability.checkpoint.queue_ms == durability.checkpoint.index_ms == 8_000
    assert durability.durable_until_ms == 5_000  # three seconds less, for clocks and rounds


def test_when_all_is_synced_the_checkpoint_says_so_once() -> None:
    store, durability = store_with(1_000, 9_000)
    durability.note_all_synced(9_000, store.end_offset, 9_000)
    assert store.durable_offset == durability.derived_offset == store.end_offset
    assert durability.is_stale
    assert durability.write_checkpoint(store.end_offset) == durability.checkpoint_files()
    assert not durability.is_stale
    assert durability.write_checkpoint(store.end_offset) == ()


def test_the_checkpoint_says_what_is_durable_and_has_no_unit() -> None:
    store, durability = store_with(1_000, 9_000)
    durability.note_all_synced(9_000, 100, 1_000)
    assert durability.write_checkpoint(100)
    assert (durability.checkpoint.unseen_from, durability.checkpoint.queue_ms) == (100, 1_000)
    durability.write_checkpoint(store.end_offset)
    assert durability.checkpoint.unseen_from == -1

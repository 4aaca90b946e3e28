"""What the store's tests share: small settings, a store on a simulated disk, messages."""

from typing import Any

import msgspec

from escrowmq.base.broker_settings import StoreSettings
from escrowmq.base.message import Message
from escrowmq.codec.record import decode_record
from escrowmq.store.store import Put, PutStatus, RecoveryReport, Store
from escrowmq.testing.disk import SimDisk
from tests.harness.stores import split

SMALL = StoreSettings(
    log_segment_size=4096,
    queue_segment_size=400,
    index_slots_count=16,
    index_entries_max=40,
    reserve_size=512,
    clean_interval_ms=1_000,
)


def small(**changes: Any) -> StoreSettings:
    return msgspec.structs.replace(SMALL, **changes)


def opened(
    disk: SimDisk, settings: StoreSettings = SMALL, *, now_ms: int = 1_000
) -> tuple[Store, RecoveryReport]:
    store = Store(disk, settings)
    return store, store.open(now_ms)


def message(number: int, *, topic: str = "orders", queue_id: int = 0, **fields: Any) -> Message:
    fields.setdefault("properties", {"UNIQ_KEY": f"U{number:05d}", "KEYS": f"k{number} all"})
    fields.setdefault("body", b"body %05d" % number)
    return Message(topic=topic, queue_id=queue_id, **fields)


def filled(disk: SimDisk, count: int, settings: StoreSettings = SMALL) -> list[Put]:
    """A store with messages, cleanly closed."""
    store, _ = opened(disk, settings)
    puts = [store.put(message(number), 1_000 + number) for number in range(count)]
    assert all(put.status is PutStatus.OK for put in puts)
    store.close(2_000)
    disk.restart()
    return puts


def sync(store: Store, now_ms: int) -> bool:
    wanted = store.sync_wanted(now_ms)
    if wanted is None:
        return False
    for file in wanted.files:
        file.sync()
    store.synced(wanted.log_offset, now_ms)
    return True


def bodies(store: Store, topic: str = "orders", queue_id: int = 0) -> dict[int, bytes]:
    """Bodies by queue offset, as a consumer sees them."""
    found = {}
    at, end = store.bounds(topic, queue_id)
    while at < end:
        got = store.get(topic, queue_id, at, count_max=5)
        records = split(b"".join(got.chunks))
        for queue_offset, record in zip(got.queue_offsets, records, strict=True):
            found[queue_offset] = decode_record(record, check_crc=True).body
        at = got.next_offset
    return found

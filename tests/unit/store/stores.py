"""What the store's tests share: small settings, a store on a simulated disk, messages."""

import random
from typing import Any

import msgspec

from escrowmq.base.message import Message
from escrowmq.base.store_settings import StoreSettings
from escrowmq.codec.record import decode_record
from escrowmq.store.store import PutResult, PutStatus, RecoveryReport, Store
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


def filled(disk: SimDisk, count: int, settings: StoreSettings = SMALL) -> list[PutResult]:
    """A store with messages, cleanly closed."""
    store, _ = opened(disk, settings)
    puts = [store.put(message(number), 1_000 + number) for number in range(count)]
    assert all(put.status is PutStatus.OK for put in puts)
    store.close(2_000)
    disk.restart()
    return puts


def sync(store: Store, now_ms: int) -> bool:
    wanted = store.next_sync(now_ms)
    if wanted is None:
        return False
    for file in wanted.files:
        file.sync()
    store.sync_finished(wanted.log_offset, now_ms)
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


def master(count: int, *, seed: int = 1) -> Store:
    """An open store with messages of all sizes, the same for the same seed."""
    chance = random.Random(seed)
    store, _ = opened(SimDisk(), SMALL)
    for number in range(count):
        body = chance.randbytes(chance.randrange(300))
        store.put(message(number, queue_id=number % 3, body=body), 1_000 + number)
    return store


def log_bytes(store: Store, start: int = 0, end: int | None = None) -> bytes:
    """The log as it stands, over files."""
    end = store.end_offset if end is None else end
    found = b""
    while start + len(found) < end:
        part = store.log.read(start + len(found), end - start - len(found))
        assert part
        found += part
    return found


def units(store: Store) -> dict[tuple[str, int], bytes]:
    """What stands in each queue."""
    return {
        (queue.topic, queue.queue_id): queue.units(queue.min, queue.end - queue.min)
        for queue in store.queues
    }

"""A full disk: ordinary puts are refused, settling ones served, and all is well again after."""

from escrowmq.store.store import PutStatus, Store
from escrowmq.testing.sim.disk import SimDisk

from .stores import bodies, message, opened, small


def test_full_disk_refuses_ordinary_puts_and_serves_settling_ones() -> None:
    disk = SimDisk()
    store, _ = opened(disk, small(log_segment_size=65_536, reserve_size=8_192))
    store.put(message(0), 1_000)
    disk.room = disk.used
    number = 1
    while (put := store.put(message(number), 1_000)).status is PutStatus.OK:
        number += 1
        assert number < 2_000
    assert put.status is PutStatus.SERVICE_NOT_AVAILABLE
    assert "full" in str(store.refusal)
    settled = 0
    while store.put(message(0), 1_000, is_settling=True).status is PutStatus.OK:
        settled += 1
    assert settled * put_size(store) > 8_192 - 200
    store.wake(3_000)
    assert not store.is_writable
    disk.room += 10_000_000
    store.wake(6_000)
    assert store.is_writable
    assert store.put(message(3), 6_000).status is PutStatus.OK
    assert store.behind_size == 0
    assert len(bodies(store)) == number + settled + 1


def put_size(store: Store) -> int:
    return store.end_offset // store.bounds("orders", 0)[1]


def test_disk_above_the_warning_level_refuses_until_it_is_below() -> None:
    disk = SimDisk()
    store, _ = opened(disk)
    disk.used_percent = 95
    store.wake(20_000)
    assert store.put(message(0), 20_000).status is PutStatus.SERVICE_NOT_AVAILABLE
    assert store.put(message(0), 20_000, is_settling=True).status is PutStatus.OK
    assert store.disk_percent == 95
    assert store.wake_at_ms() <= 21_000
    disk.used_percent = 50
    store.wake(21_000)
    assert store.put(message(1), 21_000).status is PutStatus.OK


def test_dispatch_that_a_full_disk_stalls_goes_on_when_there_is_room() -> None:
    disk = SimDisk()
    settings = small(log_segment_size=65_536, queue_segment_size=8_000, reserve_size=32_768)
    store, _ = opened(disk, settings)
    store.put(message(0), 1_000)
    disk.room = disk.used
    statuses = [store.put(message(n), 1_000, is_settling=True).status for n in range(1, 230)]
    assert set(statuses) == {PutStatus.OK}
    assert store.dispatcher.stalled
    assert store.behind_size > 0
    assert store.bounds("orders", 0)[1] < 230
    disk.room += 1_000_000
    store.wake(5_000)
    assert store.behind_size == 0
    assert len(bodies(store)) == 230
    hits = store.query("orders", "k229", count_max=9, begin_ms=0, end_ms=9_999)
    assert len(hits.records) == 1

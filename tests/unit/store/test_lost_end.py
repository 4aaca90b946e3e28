"""What a start says of the end of a log: what a process wrote is there after it was killed."""

import random

import pytest

from escrowmq.codec.record_layout import HEAD_V4
from escrowmq.store.store import PutResult, RecoveryReport, Store
from escrowmq.testing.disk import CrashLoss, SimDisk

from .stores import SMALL, bodies, filled, message, opened

LOG = "commitlog/00000000000000000000"
QUEUE = "consumequeue/orders/0/00000000000000000000"


def expected(count: int) -> dict[int, bytes]:
    return {number: b"body %05d" % number for number in range(count)}


def killed(disk: SimDisk, count: int) -> list[PutResult]:
    """A store with messages whose process was killed; the machine goes on."""
    store = Store(disk, SMALL, boot="this one")
    store.open(1_000)
    puts = [store.put(message(number), 1_000 + number) for number in range(count)]
    store.dispatcher.dispatch_waiting()
    disk.crash(random.Random(1), CrashLoss.NOTHING)
    return puts


def restarted(disk: SimDisk) -> tuple[Store, RecoveryReport]:
    store = Store(disk, SMALL, boot="this one")
    return store, store.open(2_000)


def test_kill_loses_nothing_and_is_no_damage() -> None:
    disk = SimDisk()
    killed(disk, 10)
    store, report = restarted(disk)
    assert bodies(store) == expected(10)
    assert report.lost_from is None


def test_last_record_with_a_flipped_bit_is_damage_and_is_not_written_over() -> None:
    """The process was killed, the machine was not: all that was written is there."""
    disk = SimDisk()
    last = killed(disk, 10)[-1]
    disk.flip_bit(LOG, last.log_offset + HEAD_V4.size + 3)
    store, report = restarted(disk)
    assert [(d.log_offset, d.size) for d in report.damaged] == [(last.log_offset, last.record_size)]
    assert report.lost_from == last.log_offset
    put = store.put(message(77), 3_000)
    assert (put.log_offset, put.queue_offset) == (last.log_end, 10)
    assert bodies(store) == expected(9) | {10: b"body 00077"}


def test_damage_is_known_although_the_disk_was_full_at_the_start() -> None:
    """There was no room to note the boot; now there is."""
    disk = SimDisk()
    filled(disk, 3)
    disk.room = disk.used
    store, _ = restarted(disk)
    store.wake(2_000)
    disk.room = None
    store.wake(3_000)
    last = store.put(message(3), 3_000)
    disk.crash(random.Random(1), CrashLoss.NOTHING)
    disk.flip_bit(LOG, last.log_offset + HEAD_V4.size + 3)
    store, report = restarted(disk)
    assert report.lost_from == last.log_offset
    assert store.end_offset == last.log_end
    assert bodies(store) == expected(3)


def test_last_record_with_a_damaged_head_is_known_by_its_queue() -> None:
    disk = SimDisk()
    last = killed(disk, 10)[-1]
    disk.overwrite(LOG, last.log_offset, b"\xff" * 16)
    _, report = restarted(disk)
    assert report.lost_from == last.log_offset
    assert report.log_end == last.log_end


def test_unit_that_leads_nowhere_says_nothing_about_the_log() -> None:
    disk = SimDisk()
    last = killed(disk, 10)[-1]
    disk.overwrite(QUEUE, 9 * 20, b"\x00\x00\x10" + bytes(5))
    store, report = restarted(disk)
    assert report.lost_from is None
    assert report.log_end == last.log_end
    assert bodies(store) == expected(10)


def test_record_without_properties_is_damage_too() -> None:
    disk = SimDisk()
    store = Store(disk, SMALL, boot="this one")
    store.open(1_000)
    put = store.put(message(0, properties={}), 1_000)
    disk.crash(random.Random(1), CrashLoss.NOTHING)
    disk.flip_bit(LOG, put.log_offset + HEAD_V4.size + 3)
    disk.files.pop(QUEUE, None)
    _, report = restarted(disk)
    assert report.lost_from == put.log_offset


@pytest.mark.parametrize("size", range(1, 130, 3))
def test_write_that_the_kill_cut_off_is_no_damage(size: int) -> None:
    disk = SimDisk()
    killed(disk, 10)
    store, _ = restarted(disk)
    put = store.put(message(10), 3_000)
    store.queues.by_key["orders", 0].truncate(10)  # units are written after their records
    kept = min(size, put.record_size - 4)
    disk.crash(random.Random(1), CrashLoss.NOTHING)
    disk.overwrite(LOG, put.log_offset + kept, bytes(put.record_size - kept))
    store, report = restarted(disk)
    assert report.lost_from is None
    assert report.log_end == put.log_offset
    assert bodies(store) == expected(10)


def test_log_that_ends_before_what_was_durable_has_lost_something() -> None:
    disk = SimDisk()
    puts = filled(disk, 60)
    *_, newest = sorted(path for path in disk.files if path.startswith("commitlog"))
    disk.remove(newest)
    _, report = opened(disk)
    assert report.lost_from == report.log_end < puts[-1].log_end

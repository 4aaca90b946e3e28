"""The disk is looked at now and then, and the store says whether it takes messages."""

import pytest

from escrowmq.base.ports import DiskUsage
from escrowmq.store.disk_watch import used_percent
from escrowmq.store.store import PutStatus
from escrowmq.testing.disk import SimDisk

from .stores import message, opened


@pytest.mark.parametrize(
    ("total", "free", "used"), [(1_000, 1_000, 0), (1_000, 101, 89), (1_000, 0, 100), (0, 0, 0)]
)
def test_what_is_used_is_told_in_percent(total: int, free: int, used: int) -> None:
    assert used_percent(DiskUsage(total, free)) == used


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


def test_a_disk_with_room_does_not_lift_what_somebody_else_refuses() -> None:
    disk = SimDisk()
    store, _ = opened(disk)
    store.write_gate.pause("not now")
    store.wake(20_000)
    assert store.refusal == "not now"
    disk.used_percent = 95
    store.wake(40_000)
    assert "full" in str(store.refusal)
    store.write_gate.resume()
    assert "full" in str(store.refusal)
    store.write_gate.pause("not yet")
    disk.used_percent = 50
    store.wake(60_000)
    assert store.refusal == "not yet"
    assert store.put(message(0), 60_000).status is PutStatus.SERVICE_NOT_AVAILABLE
    store.write_gate.resume()
    assert store.put(message(0), 60_000).status is PutStatus.OK

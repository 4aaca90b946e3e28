import pytest

from escrowmq.errors import DiskFull
from escrowmq.store.segment import Segments
from escrowmq.store.settling_reserve import SettlingReserve
from escrowmq.testing.disk import SimDisk

SEGMENT = 65_536


def made(disk: SimDisk, size: int = 8_192) -> SettlingReserve:
    segments = Segments(disk, "log", segment_size=SEGMENT, is_sequential=True)
    return SettlingReserve(segments, segment_size=SEGMENT, size=size)


def test_ordinary_writes_leave_the_reserve() -> None:
    disk = SimDisk()
    reserve = made(disk)
    ordinary_end = reserve.reserve_until(100, is_settling=False)
    assert ordinary_end == SEGMENT - 8_192
    disk.room = disk.used
    with pytest.raises(DiskFull):
        reserve.reserve_until(ordinary_end + 1, is_settling=False)
    assert reserve.reserve_until(SEGMENT, is_settling=True) == ordinary_end
    with pytest.raises(DiskFull):
        reserve.reserve_until(SEGMENT + 1, is_settling=True)
    disk.room += 10 * SEGMENT
    assert reserve.reserve_until(SEGMENT + 1, is_settling=True) == 2 * SEGMENT - 8_192


def test_no_more_than_a_segment_is_reserved() -> None:
    disk = SimDisk()
    reserve = made(disk, size=10 * SEGMENT)
    assert reserve.reserve_until(1, is_settling=False) == SEGMENT
    assert len(disk.files) == 2


def test_a_reserve_begins_where_the_log_does() -> None:
    reserve = made(SimDisk())
    reserve.begin_at(3 * SEGMENT)
    assert reserve.reserve_until(3 * SEGMENT, is_settling=False) == 4 * SEGMENT - 8_192

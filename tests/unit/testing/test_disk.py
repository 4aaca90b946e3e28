import random

import pytest

from escrowmq.base.ports import SyncNotStarted
from escrowmq.errors import DiskFull, StorageError, StoreLocked
from escrowmq.testing.disk import (
    CrashLoss,
    DescriptorShortage,
    SimCrash,
    SimDisk,
    is_out_of_descriptors,
)


def test_synced_writes_survive_every_loss() -> None:
    for loss in CrashLoss:
        for seed in range(20):
            disk = SimDisk()
            file = disk.open("f", size=2_000)
            file.write(0, b"a" * 1_500)
            file.sync()
            file.write(100, b"b" * 1_000)
            disk.crash(random.Random(seed), loss)
            data = disk.open("f", size=2_000).read(0, 2_000)
            assert set(data[:100]) == {97}
            assert set(data[100:1_100]) <= {97, 98}
            assert set(data[1_100:1_500]) == {97}


def test_each_loss_loses_in_its_own_way() -> None:
    seen: dict[CrashLoss, set[bytes]] = {loss: set() for loss in CrashLoss}
    for loss in CrashLoss:
        for seed in range(200):
            disk = SimDisk()
            file = disk.open("f", size=1_024)
            file.sync()
            for at in (0, 600):
                file.write(at, b"xy")
            disk.crash(random.Random(seed), loss)
            data = disk.open("f", size=1_024).read(0, 1_024)
            seen[loss].add(data[:2] + data[600:602])
    nothing, first, second, both = b"\0\0\0\0", b"xy\0\0", b"\0\0xy", b"xyxy"
    assert seen[CrashLoss.NOTHING] == {both}
    assert seen[CrashLoss.ALL] == {nothing}
    assert seen[CrashLoss.PREFIX] == {nothing, b"x\0\0\0", first, b"xyx\0", both}
    assert seen[CrashLoss.SUBSET] == seen[CrashLoss.SECTORS] == {nothing, first, second, both}


def test_plan_stops_the_machine_before_the_operation() -> None:
    disk = SimDisk()
    file = disk.open("f", size=10)
    disk.stop_at = disk.steps_count + 2
    file.write(0, b"a")
    with pytest.raises(SimCrash):
        file.write(1, b"b")
    with pytest.raises(SimCrash):
        file.read(0, 2)
    disk.restart()
    assert disk.open("f", size=10).read(0, 2) == b"a\0"


def test_handle_of_before_the_crash_is_of_no_use() -> None:
    disk = SimDisk()
    file = disk.open("f", size=10)
    disk.restart()
    with pytest.raises(AssertionError):
        file.write(0, b"a")


def test_room_is_counted_in_blocks() -> None:
    disk = SimDisk()
    disk.room = 8_192
    file = disk.open("f", size=100_000)
    file.write(0, b"a")
    file.reserve(4_096, 10)
    with pytest.raises(DiskFull):
        file.write(50_000, b"a")
    file.write(5_000, b"a")
    assert disk.usage("").free_size == 0
    with pytest.raises(DiskFull):
        disk.open("g", size=1)
    disk.remove("f")
    assert disk.usage("").free_size == 8_192


def test_files_are_named_sized_replaced_and_removed() -> None:
    disk = SimDisk()
    disk.open("a/b/c", size=5)
    disk.replace("a/t", b"one")
    disk.replace("a/t", b"two")
    assert disk.names("a") == ["b", "t"]
    assert (disk.size("a/b/c"), disk.size("a/t"), disk.size("a")) == (5, 3, None)
    assert (disk.read("a/t"), disk.read("a/b/c"), disk.read("x")) == (b"two", bytes(5), None)
    disk.remove("a/t")
    assert disk.read("a/t") is None
    with pytest.raises(StorageError):
        disk.open("a/b/c", size=6)


def test_new_names_and_removals_may_come_undone_in_a_crash() -> None:
    found = set()
    for seed in range(50):
        disk = SimDisk()
        disk.open("old", size=1).sync()
        disk.remove("old")
        disk.open("new", size=1)
        disk.crash(random.Random(seed), CrashLoss.ALL)
        found.add(tuple(disk.names("")))
    assert found == {(), ("old",), ("new",), ("new", "old")}


def test_lock_is_held_till_the_program_ends() -> None:
    disk = SimDisk()
    disk.lock("lock")
    with pytest.raises(StoreLocked):
        disk.lock("lock")
    disk.restart()
    disk.lock("lock")


def test_flipped_bit_is_in_memory_and_on_the_disk() -> None:
    disk = SimDisk()
    disk.replace("t", b"\x00")
    file = disk.open("f", size=2)
    file.sync()
    for path in ("t", "f"):
        disk.flip_bit(path, 0, bit=3)
    disk.crash(random.Random(0), CrashLoss.ALL)
    assert (disk.read("t"), disk.read("f")) == (b"\x08", b"\x08\x00")


def test_failing_sync_makes_nothing_durable() -> None:
    disk = SimDisk()
    file = disk.open("f", size=2)
    file.sync()
    file.write(0, b"a")
    disk.sync_error = "broken"
    with pytest.raises(OSError, match="broken"):
        file.sync()
    disk.crash(random.Random(0), CrashLoss.ALL)
    assert disk.read("f") == b"\0\0"


def test_without_descriptors_only_what_is_mapped_can_be_used() -> None:
    disk = SimDisk()
    mapped, other = disk.open("mapped", size=10), disk.open("other", size=10)
    for file in (mapped, other):
        file.write(0, b"a")
        file.sync()
    disk.replace("small", b"1")
    disk.exhaust_descriptors(DescriptorShortage.SPARE_LEFT)
    mapped.is_mapped = True  # type: ignore[attr-defined]
    assert mapped.read(0, 1) == b"a"
    with pytest.raises(OSError, match="Too many open files") as raised:
        other.read(0, 1)
    assert is_out_of_descriptors(raised.value)
    for ask in (lambda: disk.open("new", size=1), lambda: disk.replace("small", b"2")):
        with pytest.raises(StorageError, match="Too many open files"):
            ask()
    for look in (lambda: disk.names(""), lambda: disk.read("small")):
        with pytest.raises(OSError, match="Too many open files"):
            look()
    other.sync()  # by the spare one
    disk.shortage = None
    assert other.read(0, 1) == b"a"
    assert disk.read("small") == b"1"


def test_a_sync_without_any_descriptor_has_not_begun_and_a_new_name_is_not_durable() -> None:
    disk = SimDisk()
    file = disk.open("f", size=10)
    file.write(0, b"a")
    disk.exhaust_descriptors(DescriptorShortage.ALL_GONE)
    with pytest.raises(SyncNotStarted):
        file.sync()
    disk.shortage = None
    file.sync()
    file.write(1, b"b")
    file.close()
    disk.exhaust_descriptors(DescriptorShortage.ALL_GONE)
    with pytest.raises(SyncNotStarted):
        file.sync()
    disk.crash(random.Random(1), CrashLoss.ALL)
    disk.shortage = None
    assert disk.open("f", size=10).read(0, 2) == b"a\0"


def test_a_judge_needs_no_descriptors_and_leaves_none() -> None:
    disk = SimDisk()
    file = disk.open("f", size=10)
    file.write(0, b"a")
    disk.exhaust_descriptors(DescriptorShortage.ALL_GONE)
    with disk.without_shortage():
        assert file.read(0, 1) == b"a"
    with pytest.raises(OSError, match="Too many open files"):
        file.read(0, 1)
    assert not is_out_of_descriptors(OSError(5, "Input/output error"))


def test_a_file_that_the_disk_does_not_give_can_be_neither_read_nor_opened() -> None:
    disk = SimDisk()
    held, other = disk.open("held", size=8), disk.open("other", size=8)
    disk.unreadable.add("held")
    for touch in (lambda: held.read(0, 1), lambda: disk.open("held", size=8)):
        with pytest.raises(StorageError, match="held: Input/output error"):
            touch()
    assert other.read(0, 1) == b"\0"
    disk.unreadable.clear()
    assert held.read(0, 1) == b"\0"

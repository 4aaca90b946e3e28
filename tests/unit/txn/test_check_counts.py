from __future__ import annotations

import random

import pytest

from escrowmq.errors import StorageError
from escrowmq.testing.disk import CrashLoss, DescriptorShortage, SimDisk
from escrowmq.txn.check_counts import COUNT_MAX, FOLDER, CheckCounts

from .ground import Ground, plain_half


def tally(disk: SimDisk, end: int) -> CheckCounts:
    found = CheckCounts(disk)
    found.load(end)
    return found


def test_counts_survive_a_killed_process() -> None:
    disk = SimDisk()
    first = tally(disk, 0)
    for queue_offset, checks in [(0, 1), (0, 2), (7, 15), (2_000_000, 300)]:
        first.record(queue_offset, checks)
    disk.crash(random.Random(0), CrashLoss.NOTHING)
    again = tally(disk, 2_000_001)
    assert [again.count(at) for at in (0, 1, 7, 2_000_000)] == [2, 0, 15, COUNT_MAX]


def test_a_check_writes_one_byte() -> None:
    disk = SimDisk()
    found = tally(disk, 0)
    found.record(5, 1)
    written: list[int] = []
    file = disk.files[f"{FOLDER}/{0:020d}"]
    before = bytes(file.live)
    found.record(6, 1)
    written = [
        at for at, (old, new) in enumerate(zip(before, file.live, strict=True)) if old != new
    ]
    assert written == [6]


def test_counts_of_halves_that_were_lost_are_not_those_of_their_successors() -> None:
    disk = SimDisk()
    first = tally(disk, 0)
    for queue_offset in (3, 9, 1_500_000):
        first.record(queue_offset, 14)
    disk.restart()
    again = tally(disk, 5)
    assert [again.count(at) for at in (3, 9, 1_500_000)] == [14, 0, 0]


@pytest.mark.parametrize("loss", [CrashLoss.ALL, CrashLoss.SECTORS, CrashLoss.SUBSET])
def test_they_do_not_come_back_with_the_next_loss_of_power(loss: CrashLoss) -> None:
    disk = SimDisk()
    first = tally(disk, 0)
    for queue_offset in (9, 1_500_000):
        first.record(queue_offset, 3)
    for file in disk.files.values():
        file.sync()
    disk.restart()
    tally(disk, 5)
    disk.crash(random.Random(1), loss)
    again = tally(disk, 2_000_000)  # the halves that took these places are durable
    assert [again.count(at) for at in (9, 1_500_000)] == [0, 0]


def test_files_of_settled_halves_go() -> None:
    disk = SimDisk()
    found = tally(disk, 0)
    found.record(1, 1)
    found.record(1_048_577, 2)
    found.drop_before(1_048_576)
    assert disk.names(FOLDER) == [f"{1 << 20:020d}"]
    again = tally(disk, 2_000_000)
    assert (again.count(1), again.count(1_048_577)) == (0, 2)


def test_the_count_of_a_half_that_is_stored_now_is_not_looked_up() -> None:
    disk = SimDisk()
    tally(disk, 0).record(5, 3)
    disk.restart()
    found = tally(disk, 6)
    disk.exhaust_descriptors(DescriptorShortage.ALL_GONE)
    assert found.count(6) == 0
    with pytest.raises((OSError, StorageError)):
        found.count(5)


def test_full_disk_and_strange_files_cost_counts_only() -> None:
    disk = SimDisk()
    disk.open(f"{FOLDER}/{0:020d}", size=10)
    found = tally(disk, 100)
    assert found.count(3) == 0
    disk.room = disk.used
    found.record(3, 1)
    assert found.count(3) == 0


def test_halves_that_come_together_keep_the_counts_that_earlier_processes_noted() -> None:
    ground = Ground()
    halves = ground.engine.halves
    halves.tally.record(1, 3)
    halves.tally.load(10)
    halves.add_plain_halves([plain_half(n, b"b") for n in range(3)], origin="c", account="")
    assert [halves.pending.checks_count(n) for n in range(3)] == [0, 3, 0]
    halves.add_plain_halves([plain_half(n, b"b") for n in range(10, 13)], origin="c", account="")
    assert [halves.pending.checks_count(n) for n in range(10, 13)] == [0, 0, 0]


def test_a_file_of_lost_halves_alone_is_removed_and_the_one_before_stays() -> None:
    disk = SimDisk()
    first = tally(disk, 0)
    second = 1 << 20  # of a file each, so many halves
    first.record(second - 1, 3)
    first.record(second, 4)
    disk.restart()
    again = tally(disk, second)
    assert [again.count(at) for at in (second - 1, second)] == [3, 0]
    assert [name for name in disk.files if name.startswith(FOLDER)] == [f"{FOLDER}/{0:020d}"]


def test_without_counts_every_half_is_new() -> None:
    found = tally(SimDisk(), 10)
    assert found.is_new(5)
    found.record(5, 1)
    assert not found.is_new(5)
    assert found.is_new(10)

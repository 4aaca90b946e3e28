"""A queue's units over several files: where it ends, what is trimmed, what a search passes over."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from escrowmq.codec.store_entries import ENTRY
from escrowmq.store.consume_queue import ConsumeQueue, count_valid_units
from escrowmq.store.queue_journal import QueueJournal
from escrowmq.testing.disk import CrashLoss, SimDisk

PER_FILE = 4


def empty(disk: SimDisk) -> ConsumeQueue:
    return ConsumeQueue(disk, "T", 0, segment_size=20 * PER_FILE, journal=QueueJournal(disk))


def queue_of(disk: SimDisk, log_offsets: list[int | None]) -> ConsumeQueue:
    """A queue with one unit for each log offset; None is a gap."""
    queue = empty(disk)
    for log_offset in log_offsets:
        if log_offset is None:
            queue.fill_gap(queue.end + 1)
        else:
            queue.append(log_offset, 100, 0)
        queue.next_offset = queue.end
    return queue


def test_trimming_keeps_the_file_in_which_the_queue_ends() -> None:
    """A later file may have been made ahead, for what a full disk then refused."""
    queue = queue_of(SimDisk(), [1000, 1100, 1200])
    queue.reserve_units(4)
    assert len(queue.files.starts) == 2
    assert queue.drop_before(500) == 0
    assert (queue.min, queue.end) == (0, 3)
    assert queue.unit(2) == (1200, 100, 0)


def test_file_made_ahead_leaves_the_one_that_is_written_to_unsynced() -> None:
    disk = SimDisk()
    queue = queue_of(disk, [1000, 1100, 1200])
    queue.reserve_units(4)
    for file in queue.take_dirty_files():
        file.sync()
    queue.append(1300, 100, 0)
    for file in queue.take_dirty_files():
        file.sync()
    disk.crash(random.Random(1), CrashLoss.ALL)
    again = empty(disk)
    again.load()
    assert (again.end, again.unit(3)) == (4, (1300, 100, 0))


@pytest.mark.parametrize("count", [1, 3, 4, 5])
def test_queue_ends_before_files_made_ahead(count: int) -> None:
    disk = SimDisk()
    queue = queue_of(disk, [1000 + number for number in range(count)])
    queue.reserve_units(2 * PER_FILE)
    again = empty(disk)
    again.load()
    assert again.end == count


def test_trimming_removes_files_that_lie_wholly_before() -> None:
    queue = queue_of(SimDisk(), [100 * number for number in range(10)])
    assert queue.drop_before(450) == 1
    assert (queue.min, queue.end) == (5, 10)
    assert queue.drop_before(99_999) == 1
    assert (queue.min, queue.end) == (10, 10)
    queue.append(100_000, 100, 0)
    assert queue.unit(10) == (100_000, 100, 0)


@pytest.mark.parametrize("gap", [1, 5, 64, 65, 200, 5000])
def test_trimming_keeps_what_stands_before_a_long_gap(gap: int) -> None:
    before, behind = [0, 100, 200, 300], [90_000 + number for number in range(3)]
    queue = queue_of(SimDisk(), [*before, *[None] * gap, *behind])
    assert queue.drop_before(0) == 0
    assert queue.min == 0
    queue.drop_before(200)
    assert queue.min == 2
    queue.drop_before(301)
    assert queue.unit(queue.min) in (None, (90_000, 100, 0))
    assert queue.min > 3
    assert queue.first_at_log_offset(90_002) == queue.end - 1


def test_a_gap_at_the_end_of_a_file_does_not_make_its_other_units_old() -> None:
    queue = queue_of(SimDisk(), [1000, 1100, 1200, None, 1400, 1500])
    assert queue.drop_before(1000) == 0
    assert queue.unit(0) == (1000, 100, 0)


def test_files_of_a_life_that_ended_are_removed_from_the_end() -> None:
    disk = SimDisk()
    queue_of(disk, [100 * number for number in range(10)])
    new = [5000, 5100]
    fresh = SimDisk()
    queue_of(fresh, [*new])
    disk.files["consumequeue/T/0/00000000000000000000"].live[:] = fresh.files[
        "consumequeue/T/0/00000000000000000000"
    ].live
    queue = empty(disk)
    queue.load()
    assert queue.remove_stale_files(4000)
    assert (queue.min, queue.end, queue.is_suspect) == (0, 2, False)
    assert not queue.remove_stale_files(4000)


def test_a_queue_of_which_nothing_but_the_old_life_is_left_is_empty() -> None:
    disk = SimDisk()
    queue_of(disk, [100 * number for number in range(10)])
    queue = empty(disk)
    queue.load()
    assert queue.remove_stale_files(4000)
    assert (queue.min, queue.end, queue.files.starts) == (0, 0, [])


@pytest.mark.parametrize(
    ("log_offsets", "kept"),
    [([0, 100, 200, 900, 1000, 1100], 3), ([0, 100, 800, 900, 1000, 1100], 2)],
    ids=["the records before it stand", "one before it is cut with those behind"],
)
def test_a_unit_that_was_lost_with_the_power_is_cut_with_those_behind_it(
    log_offsets: list[int | None], kept: int
) -> None:
    """The sector with the last unit of a file was lost, the next file was not; all of them lead
    behind what is left of the log."""
    disk = SimDisk()
    before = queue_of(disk, log_offsets)
    before.files.get_or_create(0).write(20 * 3, bytes(20))
    queue = empty(disk)
    queue.load()
    assert queue.end == 6
    queue.truncate_at_log_offset(600)
    assert (queue.end, queue.files.starts) == (kept, [0])


@pytest.mark.parametrize("log_offset", [500, 700])
@pytest.mark.parametrize("kept_size", range(1, 12))
@pytest.mark.parametrize("has_more", [False, True], ids=["a file made ahead", "a unit behind"])
def test_a_unit_that_was_torn_at_the_end_of_a_file_is_cut(
    log_offset: int, kept_size: int, *, has_more: bool
) -> None:
    """World 40677: it had its log offset and no size yet, and was taken for a gap for ever."""
    disk, log_start = SimDisk(), 0x0102_0304_0506_0000
    more = [800] if has_more else []
    before = queue_of(disk, [log_start + at for at in (0, 100, 200, log_offset, *more)])
    before.reserve_units(1)
    before.files.get_or_create(0).write(20 * 3 + kept_size, bytes(20 - kept_size))
    queue = empty(disk)
    queue.load()
    queue.truncate_at_log_offset(log_start + 600)
    assert (queue.end, queue.unit(2)) == (3, (log_start + 200, 100, 0))
    queue.append(log_start + 600, 100, 0)
    again = empty(disk)
    again.load()
    assert (again.end, again.unit(3)) == (4, (log_start + 600, 100, 0))


UNITS = st.lists(
    st.tuples(st.integers(-2, 40), st.sampled_from([100, 100, 100, 0, -1, 0x7FFFFFFF]))
)


@given(UNITS, st.integers(0, 9_000))
def test_units_rise_as_far_as_each_is_above_the_one_before(
    odd: list[tuple[int, int]], before: int
) -> None:
    """The odd ones stand behind any number of usual ones, across the border of what is read."""
    units = [(1_000 * (number - before), 100) for number in range(before)]
    units = [(offset + 9_000_000, size) for offset, size in units]
    units += [(9_000_000 + offset, size) for offset, size in odd]
    good, last = 0, -1
    for offset, size in units:
        if size <= 0 or (size != 0x7FFFFFFF and offset <= last):
            break
        last = offset if size != 0x7FFFFFFF else last
        good += 1
    encoded = b"".join(ENTRY.pack(offset, size, 0) for offset, size in units)
    assert count_valid_units(encoded) == good

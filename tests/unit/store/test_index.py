import tempfile

import pytest
from hypothesis import given
from hypothesis import strategies as st

from escrowmq.base.ports import Disk
from escrowmq.errors import DiskFull
from escrowmq.net.disk import FileDisk
from escrowmq.store.index import FOLDER, Index, all_below, decode_slots
from escrowmq.store.index_chains import KEY_SIZE, index_key, key_hash
from escrowmq.testing.disk import SimDisk

NUMBERS = st.sampled_from([-1, 0, 1, 254, 255, 256, 257, 65_535, 65_536, 65_537, 1 << 24]) | (
    st.integers(-(1 << 31), (1 << 31) - 1)
)


@given(slots=st.lists(NUMBERS | st.just(0), max_size=9), count=NUMBERS.filter(lambda n: n > 0))
def test_slots_are_below_a_number_when_each_is(slots: list[int], count: int) -> None:
    encoded = b"".join(slot.to_bytes(4, "big", signed=True) for slot in slots)
    assert all_below(encoded, count) == all(0 <= slot < count for slot in slots)
    below = [abs(slot) % count for slot in slots]
    assert all_below(b"".join(slot.to_bytes(4, "big") for slot in below), count)
    assert decode_slots(encoded).tolist() == slots


def made(disk: Disk, *, entries_max: int = 8) -> Index:
    index = Index(disk, slots_count=4, entries_max=entries_max)
    index.load()
    return index


def key_of(prefix: int, key: str, log_offset: int, stored_ms: int) -> bytearray:
    return bytearray(index_key(prefix, key, log_offset, stored_ms))


def test_chains_lead_from_the_newest_to_the_oldest_over_files_and_restarts() -> None:
    disk = SimDisk()
    index = made(disk)
    for number in range(20):
        index.put(key_of(1, "k", number * 100, 5_000 + number * 1_000))
    code = key_hash(1, "k")
    expected = [number * 100 for number in reversed(range(20))]
    assert list(index.find(code, begin_ms=0, end_ms=1 << 60)) == expected
    again = made(disk)
    assert len(again.files) == 3
    assert again.end_log_offset == 1_900
    assert list(again.find(code, begin_ms=0, end_ms=1 << 60)) == expected
    # Those that begin a file could be of a clock that had been set back.
    found = list(again.find(code, begin_ms=9_000, end_ms=11_000))
    assert found == [1_400, 700, 600, 500, 400]
    assert list(again.find(code, begin_ms=0, end_ms=1 << 60, after=1_600)) == [1_900, 1_800, 1_700]
    assert list(again.find(code, begin_ms=0, end_ms=1 << 60, after=600))[-1] == 700
    assert [file.begin_log_offset for file in again.files] == [0, 700, 1_400]
    assert again.drop_before(1_400) == 2
    assert again.drop_before(99_999) == 0  # never the last one


def test_files_stand_in_the_order_in_which_they_were_begun_whatever_the_clock_said() -> None:
    """By their names, by which a start reads them: one that was begun after a clock had been set
    back stood in front of others, which a start took for damage."""
    disk = SimDisk()
    index = made(disk)
    for number, day in enumerate((30, 30, 1, 1, 30)):
        for nth in range(7):
            place = (number * 7 + nth) * 100
            index.put(key_of(1, "k", place, day * 86_400_000 + nth))
    again = made(disk)
    begun = [file.begin_log_offset for file in again.files]
    assert begun == [file.begin_log_offset for file in index.files] == sorted(begun)
    assert len(begun) == 5
    last = again.files[-1]
    problems = [file.find_problem(is_last=file is last, is_thorough=True) for file in again.files]
    assert problems == [None] * 5


def test_batch_is_written_as_single_keys_are() -> None:
    keys = [key_of(7, f"k{n % 5}", n * 100, 1_000 + n) for n in range(20)]
    one, many = SimDisk(), SimDisk()
    index = made(one, entries_max=50)
    for key in keys:
        index.put(key.copy())
    made(many, entries_max=50).put(bytearray().join(keys))
    names = list(one.files)
    assert names == list(many.files)
    assert [one.files[n].live for n in names] == [many.files[n].live for n in names]


@given(
    parts=st.lists(
        st.lists(st.sampled_from(["k", "l", "key", "ü"]) | st.text(max_size=3), max_size=9),
        max_size=5,
    )
)
def test_index_in_memory_is_that_of_pieces(parts: list[list[str]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        simulated, real = SimDisk(), FileDisk(folder)
        indices = made(simulated, entries_max=20), made(real, entries_max=20)
        for nth, part in enumerate(parts):
            keys = bytearray().join(key_of(7, key, nth * 100, 1_000 * nth) for key in part)
            for index in indices:
                index.put(keys.copy())
        assert real.names(FOLDER) == simulated.names(FOLDER)
        for path in simulated.files:
            assert real.read(path) == bytes(simulated.files[path].live)
        real.close()


def test_empty_file_counts_from_one_and_header_is_the_peers() -> None:
    disk = SimDisk()
    index = made(disk)
    index.put(key_of(1, "k", 500, 1_234))
    header = bytes(disk.files[index.files[0].path].live[:40])
    fields = [int.from_bytes(header[at : at + 8], "big") for at in range(0, 32, 8)]
    assert fields == [1_234, 1_234, 500, 500]
    assert header[32:] == (1).to_bytes(4, "big") + (2).to_bytes(4, "big")


def test_old_files_may_be_removed_while_entries_are_written_again() -> None:
    """As a topic may be deleted then: what is gone is no reason to take no messages any more."""
    for parts_count in range(1, 6):
        disk = SimDisk()
        index = made(disk)
        for number in range(20):
            index.put(key_of(1, "k", number * 100, 5_000))
        assert len(index.files) == 3
        parts = index.write_again(0)
        for _ in range(parts_count):
            next(parts)
        assert index.drop_before(1_300) == 1
        for _ in parts:
            pass
        assert all(file in index.files for file in index._dirty)


def test_keys_that_find_no_room_are_left_those_of_a_record_among_them() -> None:
    """A file was full in the middle of a record's keys, and there was no room for the next one:
    those of the record that were left were taken for written."""
    disk = SimDisk()
    index = made(disk, entries_max=4)
    index.put(key_of(1, "before", 0, 1_000))
    disk.room = disk.used
    keys = bytearray().join(key_of(1, name, 100, 1_000) for name in ("a", "b", "c", "d"))
    left = keys[2 * KEY_SIZE :]
    with pytest.raises(DiskFull):
        index.put(keys)
    assert keys == left
    disk.room = None
    index.put(keys)
    assert not keys
    for name in ("a", "b", "c", "d"):
        assert list(index.find(key_hash(1, name), begin_ms=0, end_ms=1 << 60)) == [100]

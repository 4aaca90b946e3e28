"""Index files: from a message's key to the records that have it. Layout in codec/store_entries.py.

A slot has the number of the newest entry of its chain; an entry has the number of the next older
one. A number that is not below the header's count means that there is none. Only a hash of the key
is stored, so a reader must compare the record's key.
"""

from __future__ import annotations

import array
import struct
import sys
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, tzinfo
from typing import Final, Protocol, runtime_checkable

from escrowmq.base.ports import Disk, File
from escrowmq.codec.store_entries import INDEX_ENTRY, INDEX_HEADER, INDEX_SLOT
from escrowmq.errors import CorruptRecord
from escrowmq.lane import native
from escrowmq.store.index_chains import KEY, KEY_SIZE, build_chains, find_slots

FOLDER: Final = "index"
NAME_SIZE: Final = 17
_HEADER_SIZE: Final = INDEX_HEADER.size
_SLOT_SIZE: Final = INDEX_SLOT.size
_ENTRY_SIZE: Final = INDEX_ENTRY.size
_CHAIN_MAX: Final = 65_536
"""The most entries that one query follows from one slot."""

_BLOCK: Final = 16_384
_PAGE_SIZE: Final = 4096
_PAGES_AT_ONCE: Final = 256
_PUT_SIZE_MAX: Final = 16_384 * KEY_SIZE
"""The size of the keys that are added in one step, so that a step that fails is short."""


@runtime_checkable
class ScatterFile(Protocol):
    """A file that reads and writes many small pieces in one call. Measured: this halves the cost of
    a key, from 2.4 to 1.2 us."""

    def read_many(self, positions: list[int], size: int) -> bytes:
        """Return pieces of one size from these positions, joined."""

    def write_many(self, pieces: Sequence[tuple[int, bytes]]) -> None:
        """Write each piece at its position. Raises DiskFull, with nothing written, when there is no
        space for one."""


@runtime_checkable
class MappedFile(Protocol):
    """A file mapped into memory, in which the native lane reads and writes the slots itself.
    Measured: 1.6 us for a message, where pieces take 2.3."""

    block_bits: int
    """The size of the blocks in which reserved space is tracked, as a power of two."""

    def whole_mapping(self) -> native.Buffer:
        """Return the memory of the whole file."""

    def allocate_blocks(self, blocks: set[int]) -> None:
        """Make blocks safe to read and write. Raises DiskFull when there is no space for one."""


class IndexFile:
    """One index file: header, slots and entries."""

    def __init__(self, file: File, path: str, *, slots_count: int, entries_max: int) -> None:
        self.path = path
        self.file = file
        self.slots_count = slots_count
        self.entries_max = entries_max
        self.entries_at = _HEADER_SIZE + slots_count * _SLOT_SIZE
        self._scatter = file if isinstance(file, ScatterFile) else None
        self._in_memory = file if isinstance(file, MappedFile) else None
        self._read_header()

    def _read_header(self) -> None:
        header = INDEX_HEADER.unpack(self.file.read(0, _HEADER_SIZE))
        self.begin_ms: int
        self.end_ms: int
        self.begin_log_offset: int
        self.end_log_offset: int
        self.begin_ms, self.end_ms, self.begin_log_offset, self.end_log_offset = header[:4]
        self.used_slots_count: int = header[4]
        # A file that nothing was put in has zeros; the count starts at 1.
        self.count: int = min(max(header[5], 1), self.entries_max)

    @property
    def is_full(self) -> bool:
        """Whether no further entry fits."""
        return self.count >= self.entries_max

    def put(self, keys: bytes) -> int:
        """Add as many keys as fit. Return how many were added."""
        first = self.count
        keys = keys[: (self.entries_max - first) * KEY_SIZE]
        if not keys:
            return 0
        if first == 1:
            _, self.begin_log_offset, self.begin_ms = KEY.unpack_from(keys)
        fresh_count = self._put_in_memory(keys, first)
        if fresh_count is None:
            fresh_count = self._put_in_pieces(keys, first)
        self.used_slots_count += fresh_count
        taken_count = len(keys) // KEY_SIZE
        self.count = first + taken_count
        _, self.end_log_offset, stored_ms = KEY.unpack_from(keys, len(keys) - KEY_SIZE)
        self.end_ms = max(self.end_ms, stored_ms)
        # Last, because its count makes the new entries and slots valid.
        self.write_header()
        return taken_count

    def _put_in_pieces(self, keys: bytes, first: int) -> int:
        """Write entries, numbered from `first`, and their slots. Return how many slots were
        empty."""
        places = find_slots(keys, self.slots_count, _HEADER_SIZE)
        heads = self._slots_at(places)
        entries, newest, fresh_count = build_chains(keys, places, heads, first, self.begin_ms)
        # Entries first: a chain never leads to an entry that does not exist.
        self.file.write(self.entries_at + first * _ENTRY_SIZE, entries)
        self._put_slots(newest)
        return fresh_count

    def _put_in_memory(self, keys: bytes, first: int) -> int | None:
        """Write entries and slots with the native lane. Return how many slots were empty; None,
        with nothing done, if the lane cannot be used."""
        lane, file = native.index_lane, self._in_memory
        if lane is None or file is None:
            return None
        blocks = lane.find_blocks(keys, self.slots_count, _HEADER_SIZE, file.block_bits)
        if blocks is None:
            return None
        # First of all: if the disk has no space for a page, a write through the map kills the
        # process.
        file.allocate_blocks(blocks)
        entries, newest, fresh_count = lane.chain(
            file.whole_mapping(), keys, self.slots_count, _HEADER_SIZE, first, self.begin_ms
        )
        self.file.write(self.entries_at + first * _ENTRY_SIZE, entries)
        lane.lead(file.whole_mapping(), newest)
        return fresh_count

    def _slots_at(self, places: list[int]) -> bytes:
        if self._scatter is not None:
            return self._scatter.read_many(places, _SLOT_SIZE)
        return b"".join([self.file.read(at, _SLOT_SIZE) for at in places])

    def _put_slots(self, newest: dict[int, int]) -> None:
        # All or none: a slot that leads to an uncounted entry would cost the file at a restart.
        pieces = list(zip(newest, map(INDEX_SLOT.pack, newest.values()), strict=True))
        if self._scatter is not None:
            self._scatter.write_many(pieces)
            return
        for at, _ in pieces:
            self.file.reserve(at, _SLOT_SIZE)
        for at, piece in pieces:
            self.file.write(at, piece)

    def write_header(self) -> None:
        """Write the header."""
        self.file.write(
            0,
            INDEX_HEADER.pack(
                self.begin_ms,
                self.end_ms,
                self.begin_log_offset,
                self.end_log_offset,
                self.used_slots_count,
                self.count,
            ),
        )

    def write_again(self, log_offset: int) -> Iterator[None]:
        """Rewrite the entries of records from a log offset on in place, and the slots that lead to
        them, in parts. Raises CorruptRecord if an entry is not what was written."""
        first, newest = self._last_entry_before(log_offset), 0
        pages: set[int] = set()
        while first < self.count:
            last = min(first + _BLOCK, self.count)
            slots: dict[int, int] = {}
            for number, (code, at, _, _) in enumerate(self.entries(first, last), first):
                if at < newest or at > self.end_log_offset:
                    raise CorruptRecord(f"{self.path} lacks entry {number}")
                newest = at
                slots[_HEADER_SIZE + code % self.slots_count * _SLOT_SIZE] = number
            at = self.entries_at + first * _ENTRY_SIZE
            self.file.write_again(at, (last - first) * _ENTRY_SIZE)
            heads = struct.unpack(f">{len(slots)}i", self._slots_at(list(slots)))
            numbers = zip(slots.items(), heads, strict=True)
            self._put_slots({at: n for (at, n), head in numbers if not n <= head < self.count})
            pages.update(at // _PAGE_SIZE for at in slots)
            first = last
            yield None
        for nth, page in enumerate(sorted(pages)):
            at = page * _PAGE_SIZE
            self.file.write_again(at, min(_PAGE_SIZE, self.entries_at - at))
            if nth % _PAGES_AT_ONCE == 0:
                yield None
        if newest != self.end_log_offset:
            raise CorruptRecord(f"{self.path} lacks its last entry")
        self.write_header()
        self.file.write_again(0, _HEADER_SIZE)

    def _last_entry_before(self, log_offset: int) -> int:
        """Return the number of the last entry of a record before a log offset. Lost entries are
        zeros, so the number may be too low, but never too high."""
        first = self.count
        while first > 1:
            block = max(first - _BLOCK, 1)
            entries = self.entries(block, first)
            for number in range(first - 1, block - 1, -1):
                if 0 < entries[number - block][1] < log_offset:
                    return number
            first = block
        return first

    def find(self, code: int, *, begin_ms: int, end_ms: int) -> Iterator[int]:
        """Yield log offsets of entries with this hash within a span of time, newest first."""
        at = _HEADER_SIZE + code % self.slots_count * _SLOT_SIZE
        (number,) = INDEX_SLOT.unpack(self.file.read(at, _SLOT_SIZE))
        limit = self.count
        for _ in range(_CHAIN_MAX):
            if not 0 < number < limit:
                return
            found, log_offset, seconds, previous = self.entry(number)
            stored_ms = self.begin_ms + seconds * 1000
            # The entry has whole seconds; 0 also if a clock was set back, so that its real time may
            # be any time before the file's.
            is_early_enough = stored_ms <= end_ms or seconds == 0
            if found == code and begin_ms - 1000 < stored_ms and is_early_enough:
                yield log_offset
            limit, number = number, previous  # numbers fall along a chain: no loop

    def entry(self, number: int) -> tuple[int, int, int, int]:
        """Return an entry: hash, log offset, seconds since `begin_ms`, and the next older entry of
        the chain."""
        data = self.file.read(self.entries_at + number * _ENTRY_SIZE, _ENTRY_SIZE)
        found: tuple[int, int, int, int] = INDEX_ENTRY.unpack(data)
        return found

    def entries(self, first: int, last: int) -> list[tuple[int, int, int, int]]:
        """Return the entries from `first` to before `last`."""
        at = self.entries_at + first * _ENTRY_SIZE
        data = self.file.read(at, (last - first) * _ENTRY_SIZE)
        return list(INDEX_ENTRY.iter_unpack(data))

    def find_problem(self, *, is_last: bool, is_thorough: bool) -> str | None:
        """Return why the file cannot be trusted after an abnormal end; None if it can.

        A killed process leaves at most one batch that was not counted yet. A power failure leaves
        any mixture of old and new pages, so only a replay of all entries (`is_thorough`) can tell:
        0.2 us an entry.
        """
        # Files are begun one after the other: one that is not full is the last, or lost its head.
        if self.count == 1 or not (self.is_full or is_last):
            return None if is_last else "it is not full, and yet another one follows"
        encoded = self.file.read(_HEADER_SIZE, self.slots_count * _SLOT_SIZE)
        if not all_below(encoded, self.count):
            return "a slot leads to an entry that was never counted"
        if not is_thorough:
            return None
        # Replay all entries as they were written: each names the one before it in its slot, so that
        # an entry or a slot of an older page is found.
        slots = decode_slots(encoded)
        heads = array.array("i", bytes(_SLOT_SIZE * self.slots_count))
        slots_count, newest = self.slots_count, self.begin_log_offset
        for first in range(1, self.count, _BLOCK):
            entries = self.entries(first, min(first + _BLOCK, self.count))
            for number, (code, log_offset, _, previous) in enumerate(entries, first):
                slot = code % slots_count
                if heads[slot] != previous or log_offset < newest:
                    return f"entry {number} does not continue its chain"
                heads[slot] = number
                newest = log_offset
        if newest != self.end_log_offset:
            return "its last entry is not the one that its header names"
        return None if heads == slots else "a slot does not lead to its newest entry"


class Index:
    """All index files of a store. Keys are added to the newest."""

    def __init__(
        self, disk: Disk, *, slots_count: int, entries_max: int, zone: tzinfo = UTC
    ) -> None:
        self._disk = disk
        self._zone = zone
        self._slots_count = slots_count
        self._entries_max = entries_max
        self.file_size = _HEADER_SIZE + slots_count * _SLOT_SIZE + entries_max * _ENTRY_SIZE
        self.files: list[IndexFile] = []
        self._dirty: list[IndexFile] = []
        self.end_log_offset = -1
        """The log offset up to which records are indexed."""

    def load(self) -> list[str]:
        """Open the existing files. Remove those of a wrong length, to be rebuilt."""
        notes = []
        for name in self._disk.names(FOLDER):
            path = f"{FOLDER}/{name}"
            if len(name) != NAME_SIZE or not name.isdigit():
                continue
            if self._disk.size(path) != self.file_size:
                self._disk.remove(path)
                notes.append(f"{path} has another length than the settings say and is rebuilt")
                continue
            self.files.append(self._open_file(path))
        self._find_end()
        return notes

    def put(self, keys: bytearray) -> None:
        """Add keys, in new files as needed, and remove the added ones from the array. If the disk
        is full (DiskFull), the others stay in it."""
        while keys:
            if not self.files or self.files[-1].is_full:
                _, _, stored_ms = KEY.unpack_from(keys)
                self._create_file(stored_ms)
            file = self.files[-1]
            del keys[: file.put(bytes(keys[:_PUT_SIZE_MAX])) * KEY_SIZE]
            self.end_log_offset = file.end_log_offset
            if file not in self._dirty:
                self._dirty.append(file)

    def find(self, code: int, *, begin_ms: int, end_ms: int, after: int = -1) -> Iterator[int]:
        """Yield the log offsets, newest first, of records that may have a key with this hash. Only
        records after a log offset and within a span of time are returned."""
        for file in reversed(self.files):
            if file.end_log_offset <= after:
                return
            if file.count > 1 and file.end_ms >= begin_ms:
                for log_offset in file.find(code, begin_ms=begin_ms, end_ms=end_ms):
                    if log_offset <= after:
                        return
                    yield log_offset

    def drop_before(self, log_offset: int) -> int:
        """Remove files that lead only to records before a log offset, except the last file. Return
        how many."""
        removed = 0
        while len(self.files) > 1 and self.files[0].end_log_offset < log_offset:
            self._remove(self.files[0])
            removed += 1
        return removed

    def drop_from(self, file: IndexFile) -> None:
        """Remove a file and all newer ones."""
        at = self.files.index(file)
        for doomed in self.files[at:][::-1]:
            self._remove(doomed)
        self._find_end()

    def remove_all(self) -> None:
        """Remove every file."""
        while self.files:
            self._remove(self.files[-1])
        self.end_log_offset = -1

    def take_dirty_files(self) -> list[File]:
        """Return the files that may hold unsynced entries, and treat the index as clean from now
        on."""
        dirty, self._dirty = self._dirty, []
        return [file.file for file in dirty]

    def mark_unsynced_from(self, log_offset: int) -> None:
        """Treat the files with entries of records from a log offset on as unsynced."""
        self._dirty = [file for file in self.files if file.end_log_offset >= log_offset]

    def write_again(self, log_offset: int) -> Iterator[None]:
        """Rewrite the entries of records from a log offset on in place, in parts. Old files may be
        removed between parts."""
        for file in [file for file in self.files if file.end_log_offset >= log_offset]:
            if file.count > 1:
                parts = file.write_again(log_offset)
                while file in self.files and next(parts, parts) is None:
                    yield None
                if file in self.files and file not in self._dirty:
                    self._dirty.append(file)

    def close(self) -> None:
        """Close the files."""
        for file in self.files:
            file.file.close()
        self.files = []

    def _find_end(self) -> None:
        filled = [file.end_log_offset for file in self.files if file.count > 1]
        self.end_log_offset = max(filled, default=-1)

    def _open_file(self, path: str) -> IndexFile:
        return IndexFile(
            self._disk.open(path, size=self.file_size),
            path,
            slots_count=self._slots_count,
            entries_max=self._entries_max,
        )

    def _remove(self, file: IndexFile) -> None:
        file.file.close()
        self._disk.remove(file.path)
        self.files.remove(file)
        if file in self._dirty:
            self._dirty.remove(file)

    def _create_file(self, now_ms: int) -> None:
        taken = set(self._disk.names(FOLDER))
        last = self.files[-1] if self.files else None
        number = int(index_name(now_ms, self._zone))
        if last is not None:
            # A start must read it after the last file, even if a clock was set back.
            number = max(number, int(last.path.rpartition("/")[2]) + 1)
        while (name := f"{number:0{NAME_SIZE}d}") in taken:
            number += 1
        made = self._open_file(f"{FOLDER}/{name}")
        if last is not None:
            # As RocketMQ (IndexService.getAndCreateLastIndexFile) seeds a further file.
            made.begin_ms = made.end_ms = last.end_ms
            made.begin_log_offset = made.end_log_offset = last.end_log_offset
        self.files.append(made)


_LOOKED_AT_MAX: Final = 100_000
"""Up to this number, slots are checked one by one; beyond it, all slots of the file are checked in
one operation."""


def decode_slots(encoded: bytes) -> array.array[int]:
    """Decode slots to numbers. This takes 20 MB for a file of the usual size."""
    found = array.array("i")
    assert found.itemsize == _SLOT_SIZE, found.itemsize
    found.frombytes(encoded)
    if sys.byteorder == "little":
        found.byteswap()
    return found


def all_below(encoded: bytes, count: int) -> bool:
    """Whether all slots are at least 0 and below a number. They are compared byte by byte, all
    slots in one operation: 25 ms for 5 M slots, where `max` and `min` take 250."""
    for nth in range(_SLOT_SIZE):
        column, edge = encoded[nth::_SLOT_SIZE], count >> 8 * (_SLOT_SIZE - 1 - nth) & 0xFF
        if column.translate(None, bytes(range(edge + 1))):
            return False  # a larger byte
        if not edge:
            continue  # all bytes of this place are 0, as that of the number is
        if column.count(edge) > _LOOKED_AT_MAX:
            slots = decode_slots(encoded)
            return max(slots) < count and min(slots) >= 0
        at = column.find(edge)
        while at >= 0:
            if int.from_bytes(encoded[at * _SLOT_SIZE : (at + 1) * _SLOT_SIZE], "big") >= count:
                return False
            at = column.find(edge, at + 1)
        return True
    return not encoded


def index_name(now_ms: int, zone: tzinfo) -> str:
    """Return the name of an index file: the local time of its creation as 17 digits."""
    moment = datetime.fromtimestamp(now_ms // 1000, zone)
    return f"{moment:%Y%m%d%H%M%S}{now_ms % 1000:03d}"

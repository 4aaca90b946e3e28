"""The snapshot of the timer's pending records: with it, a start need not read all records that were
delivered.

One message that is due in three days would otherwise make each start read all records of the
timer's topic after it, before the next message is delivered. The file is not required: without it,
or with an old one, a start takes longer.

`escrow/delayed`, big-endian:
  offset size field
       0    4 mark           ESCD
       4    4 CRC-32         of all bytes after it
       8    8 taken          records before this queue offset are pending if they are listed
      16    8 border, time   24 8 border, queue offset: keys before it are delivered
      32  8 n queue offsets
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable
from typing import Final, NamedTuple

from escrowmq.codec.offset_list import decode_offset_list, encode_offset_list
from escrowmq.delivery.timer_file import OFFSET_BITS, OFFSET_MASK, TimerProgress
from escrowmq.store.durable_progress import ProgressMark, ProgressMarks

PATH: Final = "escrow/delayed"
SNAPSHOT_MIN: Final = 20_000
"""A snapshot is written only if at least this many records follow the oldest pending one."""

SNAPSHOT_MS: Final = 30_000
SNAPSHOT_MAX: Final = 500_000
"""The most pending records of a snapshot: it takes 40 ms, in which no request is served."""

_MS_PER_RECORD: Final = 0.1
_MARK: Final = b"ESCD"


class TimerSnapshot(NamedTuple):
    """The pending records at a moment when the timer had read those before `taken`, and delivered
    those with keys before `border`."""

    taken: int
    border: int
    pending: array[int]
    """Their queue offsets, in order."""

    def shortens(self, progress: TimerProgress, read_from: int, end: int) -> bool:
        """Whether it shortens the reading of a queue with this end, from an offset on. It must not
        be newer than the progress: of what was delivered since, the log shows which twin it was."""
        is_older = self.taken <= progress.taken and self.border <= progress.border
        return is_older and read_from < self.taken <= end


def encode(taken: int, border: int, pending: Iterable[int]) -> bytes:
    """Return the content of the snapshot file."""
    numbers = (taken, border >> OFFSET_BITS, border & OFFSET_MASK)
    return encode_offset_list(_MARK, numbers, pending)


def decode(data: bytes | None) -> TimerSnapshot | None:
    """Return the content of the file; None if there is no file, or it is invalid."""
    found = decode_offset_list(_MARK, 3, data)
    if found is None:
        return None
    (taken, time_ms, queue_offset), offsets = found
    return TimerSnapshot(taken, time_ms << OFFSET_BITS | queue_offset, array("q", sorted(offsets)))


class ListedOffsets:
    """Queue offsets that a snapshot lists, as far as they are not read yet."""

    def __init__(self) -> None:
        self._offsets: array[int] = array("q")
        self._next = 0

    def __bool__(self) -> bool:
        return self._next < len(self._offsets)

    def start(self, snapshot: TimerSnapshot, read_from: int) -> None:
        """Begin with the offsets of a snapshot; those before `read_from` are not needed."""
        self._offsets = array("q", [each for each in snapshot.pending if each >= read_from])
        self._next = 0

    @property
    def first(self) -> int:
        """The first of them. There must be one."""
        return self._offsets[self._next]

    def next_run(self, count_max: int) -> range:
        """Return the first ones that are consecutive. They stay until `drop_before`."""
        offsets, begin = self._offsets, self._next
        end = begin + 1
        while (
            end < len(offsets) and end - begin < count_max and offsets[end] == offsets[end - 1] + 1
        ):
            end += 1
        return range(offsets[begin], offsets[end - 1] + 1)

    def drop_before(self, queue_offset: int) -> None:
        """Drop those before an offset: they are read."""
        while self and self.first < queue_offset:
            self._next += 1


class SnapshotSaver:
    """Decides when a snapshot is taken, and holds it back until the log is durable."""

    def __init__(self) -> None:
        self._marks: ProgressMarks[bytes] = ProgressMarks()
        self._is_waiting = False
        self._due_ms = 0

    def is_due(self, now_ms: int, *, pending_count: int, behind: int) -> bool:
        """Whether to take a snapshot now. `behind`: the number of records after the oldest pending
        one."""
        return (
            behind >= SNAPSHOT_MIN
            and pending_count <= min(SNAPSHOT_MAX, behind // 2)
            and now_ms >= self._due_ms
            and not self._is_waiting
        )

    def add(self, data: bytes, now_ms: int, *, pending_count: int, log_end: int) -> None:
        """Add a snapshot that was taken when the log ended there."""
        self._due_ms = now_ms + SNAPSHOT_MS + int(pending_count * _MS_PER_RECORD)
        self._is_waiting = True
        self._marks.add(ProgressMark(log_end, log_end, data))

    def take(self, irrevocable_end: int) -> bytes | None:
        """Return the snapshot to write now; None if there is none."""
        mark = self._marks.take_durable(irrevocable_end)
        if mark is None:
            return None
        self._is_waiting = False
        return mark.state

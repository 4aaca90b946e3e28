"""Log files on a disk, RocketMQ's or ours, divided into parts that are read independently.

A part may begin anywhere in a file. It has the records that start in it: the first one may begin
later than the part, and the last one may end in the next part. So nothing is read twice or missed.

Records are found by `codec/log_walker`. If the store's queues are beside its log, they say which
positions are records. For a log alone, the reader must guess.
"""

from __future__ import annotations

import itertools
import logging
import mmap
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import msgspec

from escrowmq.codec.log_records import outline_records, record_fault
from escrowmq.codec.log_walker import LogRange, LogWalker
from escrowmq.codec.record_layout import RECORD_SIZE_MIN
from escrowmq.errors import CorruptRecord, SegmentMissing, UsageError
from escrowmq.pipeline.source.consume_queue_units import QueueUnitFiles

_log = logging.getLogger(__name__)

_NAME_SIZE: Final = 20
_LOG_FOLDER: Final = "commitlog"
_HEAD_SIZE: Final = 4 << 10


class FilePart(msgspec.Struct, frozen=True, kw_only=True):
    """The records of a segment that begin in a range."""

    path: str
    first_log_offset: int
    low: int
    high: int
    is_last: bool
    """Whether this is the last segment, which may end anywhere."""


def plan_parts(store_path: str, split_size: int) -> list[FilePart]:
    """Return the parts of a store's log. Raises UsageError if there is none."""
    folder = Path(store_path)
    if (folder / _LOG_FOLDER).is_dir():
        folder = folder / _LOG_FOLDER
    try:
        files = sorted(each for each in folder.iterdir() if _is_segment(each.name))
    except OSError as error:
        raise UsageError(f"storePath={store_path!r} cannot be read: {error.strerror}") from error
    if not files:
        raise UsageError(
            f"storePath={store_path!r} has no log: a folder `commitlog` with files of 20 digits "
            "is expected in it"
        )
    _require_no_gaps(files)
    while len(files) > 1 and _is_blank(files[-1]):
        files.pop()
    return [
        FilePart(
            path=str(file),
            first_log_offset=int(file.name),
            low=low,
            high=min(low + split_size, size),
            is_last=file is files[-1],
        )
        for file in files
        for size in (file.stat().st_size,)
        for low in range(0, size, split_size)
    ]


def _is_segment(name: str) -> bool:
    return len(name) == _NAME_SIZE and name.isdecimal()


def _is_blank(file: Path) -> bool:
    """Whether a segment is empty, because the broker created it in advance."""
    with file.open("rb") as opened:
        return not opened.read(_HEAD_SIZE).strip(b"\0")


def _require_no_gaps(files: list[Path]) -> None:
    for before, file in itertools.pairwise(files):
        expected = int(before.name) + before.stat().st_size
        if int(file.name) != expected:
            raise SegmentMissing(
                f"{file} follows {before.name}, where a segment that begins at {expected} "
                "was expected; the log has a gap, or the size of a file has changed"
            )


class MappedSegment:
    """A segment that is read like a log of its own (see `codec.log_walker.SegmentedLog`), up to an
    end."""

    def __init__(self, data: mmap.mmap, first: int, *, end: int | None = None) -> None:
        self._data = data
        self._first = first
        self.starts = [first]
        self.end = first + len(data) if end is None else end

    def start_of(self, position: int) -> int:
        """Return the start of the only segment."""
        return self._first

    def end_of(self, position: int) -> int:
        """Return the end of the only segment."""
        return self.end

    def has(self, position: int) -> bool:
        """Whether a position is in the segment."""
        return self._first <= position < self.end

    def read(self, position: int, size: int) -> bytes:
        """Return bytes from a position; fewer at the end."""
        end = min(position + size, self.end)
        return self._data[position - self._first : max(position, end) - self._first]

    def next_data_position(self, position: int) -> int:
        """Return the position unchanged: holes in the file are not known."""
        return position


class RecordWalk:
    """Walks through the records of a part."""

    def __init__(self, part: FilePart, *, fails_on_loss: bool) -> None:
        self._part = part
        self._fails_on_loss = fails_on_loss
        log_folder = Path(part.path).parent
        units = QueueUnitFiles(log_folder.parent) if log_folder.name == _LOG_FOLDER else None
        self._leads_to = units.leads_to if units is not None and units.exist else None

    def chunks(self) -> Iterator[tuple[bytes, list[int], int]]:
        """Yield parts of the file: the bytes, the starts of the records in them, and the file
        position of the first byte."""
        try:
            with Path(self._part.path).open("rb") as file:
                data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        except (OSError, ValueError) as error:
            raise SegmentMissing(
                f"{self._part.path} cannot be read here: {error}; every executor must see the "
                "store's files, on a shared mount or with a local master"
            ) from error
        with data:
            for stretch in self._record_stretches(data):
                yield stretch.data, stretch.found.records, self._file_position(stretch.log_offset)

    def _file_position(self, log_offset: int) -> int:
        return log_offset - self._part.first_log_offset

    def _record_stretches(self, data: mmap.mmap) -> Iterator[LogRange[int]]:
        part, first = self._part, self._part.first_log_offset
        whole = MappedSegment(data, first)
        looker = LogWalker(whole, leads_to=self._leads_to)
        begin, high = first + part.low, first + part.high
        if part.low:
            found = looker.next_record(begin, before=high)
            if found is None:
                return  # the record before goes on, or the log has ended: the part before sees it
            begin = found
        end = looker.next_record(high) if high < whole.end else None
        walker = LogWalker(MappedSegment(data, first, end=end), leads_to=self._leads_to)
        reported_count, held = 0, None
        for stretch in walker.ranges(begin, outline_records):
            for damage in walker.damaged[reported_count:]:
                self._warn_unreadable(damage.log_offset, damage.log_offset + damage.size)
            reported_count = len(walker.damaged)
            if held is not None:
                yield held
            held = stretch if stretch.found.records else None
        is_at_end = part.is_last and end is None
        if held is not None:
            held = self._without_torn_record(held) if is_at_end else held
            yield held
        if walker.end_offset >= (whole.end if end is None else end):
            return
        if not is_at_end:
            self._warn_unreadable(walker.end_offset, end)
        elif whole.read(walker.end_offset, RECORD_SIZE_MIN).strip(b"\0"):
            self._warn_torn(walker.end_offset)

    def _warn_unreadable(self, log_offset: int, following: int | None) -> None:
        """Raise CorruptRecord at bytes that are not a record, or log it if they may be skipped.
        `following` is the start of the next record."""
        place = self._file_position(log_offset)
        behind = "none follows"
        if following is not None:
            behind = f"the next one is at byte {self._file_position(following)}"
        text = (
            f"{self._part.path} has no record at byte {place} (log offset {log_offset}), "
            f"and {behind}"
        )
        if self._fails_on_loss:
            raise CorruptRecord(f"{text}. Repair the store, or set failOnDataLoss=false to skip it")
        _log.warning("%s; failOnDataLoss=false, so it is skipped", text)

    def _without_torn_record(self, stretch: LogRange[int]) -> LogRange[int]:
        """Return a stretch without the log's last record, if that was not written completely."""
        base, data, found = stretch
        *before, last = found.records
        if record_fault(data[last : found.size], base + last) is None:
            return stretch
        self._warn_torn(base + last)
        return LogRange(base, data, found._replace(records=before, size=last))

    def _warn_torn(self, log_offset: int) -> None:
        _log.warning(
            "%s ends at byte %d with an incomplete record; it was never acknowledged, or is "
            "being written now",
            self._part.path,
            self._file_position(log_offset),
        )

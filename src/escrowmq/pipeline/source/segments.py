"""Log files on a disk, cut into parts that are read independently. RocketMQ's or ours.

A cut may fall anywhere: a part begins with the first record that starts there or later, known by
its magic and by its own log offset, which must be its place. Each part also looks at the record
behind its last one, so that nothing lies unseen between two parts.
"""

from __future__ import annotations

import itertools
import logging
import mmap
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import msgspec

from escrowmq.codec.record import (
    LOG_OFFSET_AT,
    MAGIC_FILLER,
    MAGIC_V1,
    MAGIC_V2,
    RECORD_SIZE_MIN,
    decode_record,
)
from escrowmq.errors import CorruptRecord, SegmentMissing, UsageError

_log = logging.getLogger(__name__)

_NAME_SIZE: Final = 20
_FRONT: Final = struct.Struct(">II").unpack_from
_LOG_OFFSET: Final = struct.Struct(">q").unpack_from
_MAGICS: Final = (MAGIC_V1, MAGIC_V2)
_MAGIC_END: Final = 7
"""Behind a place, so many bytes are looked at for the magic of a record that begins before it."""

CHUNK_SIZE: Final = 4 << 20
_HEAD_SIZE: Final = 4 << 10


class FilePart(msgspec.Struct, frozen=True, kw_only=True):
    """The records of a segment that begin from one place to before another."""

    path: str
    first_log_offset: int
    low: int
    high: int
    is_last: bool
    """Whether no segment follows: this one may end anywhere."""


def plan_parts(store_path: str, split_size: int) -> list[FilePart]:
    """The parts of the log of a store. UsageError when there is none."""
    folder = Path(store_path)
    if (folder / "commitlog").is_dir():
        folder = folder / "commitlog"
    try:
        files = sorted(each for each in folder.iterdir() if _is_segment(each.name))
    except OSError as error:
        raise UsageError(f"storePath={store_path!r} cannot be read: {error.strerror}") from error
    if not files:
        raise UsageError(
            f"storePath={store_path!r} has no log: a folder `commitlog` with files of 20 digits "
            "is expected in it"
        )
    _require_whole(files)
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
    """Whether a segment was made ahead of need, as both brokers do, and nothing stands in it."""
    with file.open("rb") as opened:
        return not opened.read(_HEAD_SIZE).strip(b"\0")


def _require_whole(files: list[Path]) -> None:
    for before, file in itertools.pairwise(files):
        expected = int(before.name) + before.stat().st_size
        if int(file.name) != expected:
            raise SegmentMissing(
                f"{file} follows {before.name}, and a segment that begins at {expected} was "
                "expected; the log has a gap, or a file has another size than it had"
            )


class Walk:
    """Goes through the records of a part."""

    def __init__(self, part: FilePart, *, fails_on_loss: bool) -> None:
        self._part = part
        self._fails_on_loss = fails_on_loss

    def chunks(self) -> Iterator[tuple[bytes, list[int], int]]:
        """Bytes, where in them the records begin, and the place of the first byte in the file."""
        try:
            with Path(self._part.path).open("rb") as file:
                data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        except (OSError, ValueError) as error:
            raise SegmentMissing(
                f"{self._part.path} cannot be read here: {error}; every executor must see the "
                "store's files, on a shared mount or with a local master"
            ) from error
        with data:
            yield from self._chunks(data)

    def _chunks(self, data: mmap.mmap) -> Iterator[tuple[bytes, list[int], int]]:
        begin = self._begin(data)
        if begin is None:
            return  # the record before goes on, or the log has ended; the part before looks at that
        first = at = begin
        starts: list[int] = []
        while at < self._part.high:
            size = self._size(data, at)
            if size <= 0:
                if starts:
                    yield data[first:at], starts, first
                if size == 0:
                    return
                first = at = -size
                starts = []
                continue
            starts.append(at - first)
            at += size
            if at - first >= CHUNK_SIZE:
                yield data[first:at], starts, first
                first, starts = at, []
        if starts:
            yield data[first:at], starts, first
        self._size(data, at)

    def _begin(self, data: mmap.mmap) -> int | None:
        if self._part.low == 0:
            return 0
        return self._next(data, self._part.low, self._part.high)

    def _next(self, data: mmap.mmap, at: int, until: int | None = None) -> int | None:
        """The first place from here on, and before another, where a record begins."""
        end = len(data) if until is None else min(until + _MAGIC_END, len(data))
        found = None
        for magic in _MAGICS:
            mark = magic.to_bytes(4, "big")
            place = data.find(mark, at + 4, end)
            while place >= 0 and (found is None or place - 4 < found):
                if self._is_record(data, place - 4):
                    found = place - 4
                    break
                place = data.find(mark, place + 1, end)
        return found

    def _is_record(self, data: mmap.mmap, at: int) -> bool:
        if len(data) - at < RECORD_SIZE_MIN:
            return False
        size, magic = _FRONT(data, at)
        (log_offset,) = _LOG_OFFSET(data, at + LOG_OFFSET_AT)
        return (
            magic in _MAGICS
            and RECORD_SIZE_MIN <= size <= len(data) - at
            and log_offset == self._part.first_log_offset + at
        )

    def _size(self, data: mmap.mmap, at: int) -> int:
        """The size of the record at a place; 0 where the log ends, and the next place, negative,
        where something unreadable is to be passed over."""
        if at >= len(data):
            return 0
        if self._is_record(data, at):
            size: int = _FRONT(data, at)[0]
            return 0 if self._is_torn(data, at, size) else size
        if len(data) - at >= 8 and _FRONT(data, at)[1] == MAGIC_FILLER:
            return 0
        following = self._next(data, at)
        if following is None and self._part.is_last:
            if data[at : at + RECORD_SIZE_MIN].strip(b"\0"):
                self._tell_torn(at)
            return 0
        text = (
            f"{self._part.path} has no record at byte {at} (log offset "
            f"{self._part.first_log_offset + at}), and "
            + ("none follows" if following is None else f"the next one is at byte {following}")
        )
        if self._fails_on_loss:
            raise CorruptRecord(
                f"{text}. Repair the store, or set failOnDataLoss=false to pass over it"
            )
        _log.warning("%s; failOnDataLoss=false, so it is passed over", text)
        return 0 if following is None else -following

    def _is_torn(self, data: mmap.mmap, at: int, size: int) -> bool:
        """Whether the last record of the log is one that was not written to its end."""
        behind = at + size
        if not self._part.is_last or (behind < len(data) and self._is_record(data, behind)):
            return False
        try:
            decode_record(data[at:behind], check_crc=True)
        except CorruptRecord:
            if self._next(data, behind) is None:
                self._tell_torn(at)
                return True
        return False

    def _tell_torn(self, at: int) -> None:
        _log.warning(
            "%s ends at byte %d with a record that is not whole; it was never acknowledged, or "
            "is being written now",
            self._part.path,
            at,
        )

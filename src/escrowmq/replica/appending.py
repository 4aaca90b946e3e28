"""Appends a master's bytes to a log, record by record: only whole records, each at its own
position. A record that is split between transfers waits in memory for its rest."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, Protocol

from escrowmq.codec.log_records import ParseResult, ScannedRecord, parse_records
from escrowmq.codec.record_layout import FILLER_SIZE, FRONT, MAGIC_FILLER
from escrowmq.errors import RemoteProtocolError

RECORD_SIZE_MAX: Final = 64 * 1024 * 1024
"""Limit of the size of a record, and so of the memory for one that is split between transfers."""


class SlaveLog(Protocol):
    """A log to which a slave copies its master's, such as `store.copied_log.CopiedLog`."""

    segment_size: int
    has_crc: bool

    @property
    def read(self) -> Callable[[int, int], bytes]:
        """Return bytes from a position; fewer where a segment ends."""

    @property
    def min_offset(self) -> int:
        """Return the offset at which the oldest segment starts."""

    @property
    def end_offset(self) -> int:
        """Return the offset at which the next byte is appended."""

    @property
    def safe_end(self) -> int:
        """Return the offset up to which the log is stored as safely as the slave promises."""

    @property
    def is_empty(self) -> bool:
        """Whether the log is empty, so that it may begin at any segment."""

    def begin_at(self, log_offset: int) -> None:
        """Begin an empty log at the start of a segment."""

    def append(self, data: bytes, records: Sequence[ScannedRecord]) -> None:
        """Append consecutive records that start at the end of the log."""

    def write_padding(self, position: int, data: bytes) -> None:
        """Write the bytes after a filler, which belong to no record."""

    def roll(self) -> None:
        """Write the same filler as the master, and continue with the next segment."""


class LogAppender:
    """Appends a master's bytes to the end of a copy. Raises RemoteProtocolError if they cannot
    follow there. Then nothing of the invalid bytes was appended."""

    def __init__(self, log: SlaveLog) -> None:
        self._log = log
        self._incomplete = bytearray()
        """The beginning of a record or a filler whose rest has not arrived yet."""
        self._wanted = 0
        """The size of the incomplete record; it is parsed again when it has that many bytes."""
        self._filled_to = 0
        """The offset up to which the bytes after a filler have arrived; 0 if there is no filler."""

    def append(self, data: bytes) -> None:
        """Append the records that these next bytes complete. An incomplete one is kept in
        memory."""
        self._incomplete += data
        if len(self._incomplete) < self._wanted:
            return
        data = bytes(self._incomplete)
        self._incomplete.clear()
        self._wanted = 0
        while data:
            if self._filled_to:
                data = self._write_padding(data)
                continue
            base = self._log.end_offset
            segment_end = base - base % self._log.segment_size + self._log.segment_size
            part = data[: segment_end - base]
            found = parse_records(part, base, has_crc=self._log.has_crc)
            if found.size:
                if base + found.size > segment_end - FILLER_SIZE:
                    raise RemoteProtocolError(
                        f"the records from log offset {base} on leave no room for a filler in "
                        f"their file, which ends at {segment_end}"
                    )
                self._log.append(part[: found.size], found.records)
                data = data[found.size :]
                base += found.size
            if found.is_filler:
                self._begin_filler(data, base, segment_end)
            elif data:
                self._check_incomplete(found, data, base, segment_end)
                self._incomplete += data
                self._wanted = found.wanted_size
                return

    def _check_incomplete(
        self, found: ParseResult[ScannedRecord], data: bytes, base: int, segment_end: int
    ) -> None:
        """Raise RemoteProtocolError unless the remaining bytes can be the beginning of a record."""
        if found.reason:
            raise RemoteProtocolError(f"at log offset {base} there is no record: {found.reason}")
        most = min(segment_end - FILLER_SIZE - base, RECORD_SIZE_MAX)
        if found.wanted_size > most:  # 0 where even the first 8 bytes are not all there
            raise RemoteProtocolError(
                f"a record of {found.wanted_size} bytes at log offset {base}; at most {most} "
                "fit into its file: mappedFileSizeCommitLog must be the same as the master's"
            )

    def _begin_filler(self, data: bytes, base: int, segment_end: int) -> None:
        left, magic = FRONT.unpack_from(data)
        assert magic == MAGIC_FILLER, magic
        if left != segment_end - base or left == self._log.segment_size:
            raise RemoteProtocolError(
                f"a filler of {left} bytes at log offset {base}; its file of "
                f"{self._log.segment_size} bytes has {segment_end - base} left: "
                "mappedFileSizeCommitLog must be the same as the master's"
            )
        self._filled_to = base

    def _write_padding(self, data: bytes) -> bytes:
        """Store the bytes after a filler, up to the end of its file; return the bytes that
        follow."""
        begin = self._filled_to
        base = self._log.end_offset
        segment_end = base - base % self._log.segment_size + self._log.segment_size
        part = data[: segment_end - begin]
        if begin == base:
            self._log.write_padding(begin + FILLER_SIZE, part[FILLER_SIZE:])
        else:
            self._log.write_padding(begin, part)
        self._filled_to = begin + len(part)
        if self._filled_to == segment_end:
            self._filled_to = 0
            self._log.roll()
        return data[len(part) :]

"""The slave's end of the connection to its master: verifies that the master's log continues its
own, and appends what follows.

A slave whose log is not empty first requests the end of what it already has, and compares. Only if
all of that is equal does it append what follows (`appending`).
"""

from __future__ import annotations

from typing import Final

import msgspec

from escrowmq.errors import RemoteProtocolError
from escrowmq.replica.appending import LogAppender, SlaveLog
from escrowmq.replica.frames import Transfer, TransferReader, encode_report

OVERLAP_SIZE: Final = 65_536
"""Bytes of its own log that a slave requests again, for comparison."""

_WIDER: Final = 16
"""If the overlap differs from its first byte on, the next one is larger by this factor."""


class ForeignLogError(RemoteProtocolError):
    """Raised if the master's log differs from this slave's."""

    def __init__(self, log_offset: int) -> None:
        super().__init__(f"the logs differ from offset {log_offset} on")
        self.log_offset = log_offset


class SlaveTimeouts(msgspec.Struct, frozen=True):
    """Intervals and timeouts of a slave."""

    heartbeat_ms: int
    housekeeping_ms: int
    """A master that sends nothing for this time, in ms, is considered gone."""


class ComparedOverlap:
    """How much of its log a slave compares. The range grows after each comparison in which the logs
    differ from the first byte on."""

    def __init__(self) -> None:
        self._size = OVERLAP_SIZE

    def start_offset(self, log: SlaveLog, master_begin: int = 0) -> int:
        """Return the offset at which the comparison starts. It is never 0, which RocketMQ takes for
        the last file. If the master's log begins within the compared range, it is that
        beginning."""
        start = max(log.end_offset - self._size, log.min_offset, 1)
        return max(start, master_begin) if master_begin < log.end_offset else start

    def note_difference(self, log: SlaveLog, log_offset: int) -> bool:
        """Record that the logs differ at an offset. Return whether they are known to part there. If
        not, the next comparison starts earlier."""
        start = self.start_offset(log)
        if log_offset > start or start <= max(log.min_offset, 1):
            self._size = max(log.end_offset - log_offset, 0) + OVERLAP_SIZE
            return True
        self._size *= _WIDER
        return False

    def note_equal(self) -> None:
        """Record that the whole overlap was equal."""
        self._size = OVERLAP_SIZE


class Follower:
    """One connection to a master. After RemoteProtocolError (ForeignLogError is one) the caller
    closes it; none of the invalid bytes was appended."""

    def __init__(
        self,
        log: SlaveLog,
        terms: SlaveTimeouts,
        *,
        start: int,
        now_ms: int,
        begins_at: int | None = None,
        ticket: int | None = None,
    ) -> None:
        """`start_offset`: the offset from which the master sends. `ticket`: a number that is
        reported first, in place of `start_offset`. `begins_at`: where an empty log must begin, if
        that is known."""
        self._log = log
        self._terms = terms
        self._ticket = ticket
        self._start = start
        self._reported = -1
        self._reported_ms = self._heard_ms = now_ms
        self._reader = TransferReader()
        self._at = start
        self._begins_at = begins_at
        self._is_beginning = log.is_empty
        self._appender = LogAppender(log)
        self.is_proved = log.is_empty
        """Whether the comparison has shown that the master's log continues ours."""
        self.is_ahead = False
        """Whether the master has said that its log ends before ours."""

    def next_report(self, now_ms: int) -> bytes:
        """Return the report to send to the master now; empty if none is due. The first report has
        the start offset. Later ones have each new end of the stored log, and the same end again as
        a keep-alive. Raises RemoteProtocolError if the master has been silent for too long."""
        if now_ms >= self._heard_ms + self._terms.housekeeping_ms:
            seconds = self._terms.housekeeping_ms / 1000
            raise RemoteProtocolError(f"the master has sent nothing for {seconds:g} s")
        if self._reported < 0:
            end = self._start if self._ticket is None else self._ticket
        else:
            end = self._log.safe_end if self.is_proved else self._start
            if self._is_beginning:  # an empty log has nothing to report
                end = 0
            if end <= self._reported and now_ms < self._reported_ms + self._terms.heartbeat_ms:
                return b""
        # A ticket's number is no offset: report the end of the stored log after it.
        self._reported = 0 if end == self._ticket else end
        self._reported_ms = now_ms
        return encode_report(end)

    def wake_at_ms(self) -> int:
        """Return the latest time at which `next_report` must be called again."""
        heartbeat_ms = self._reported_ms + self._terms.heartbeat_ms
        return min(heartbeat_ms, self._heard_ms + self._terms.housekeeping_ms)

    def receive(self, data: bytes, now_ms: int) -> None:
        """Process bytes from the master."""
        self._heard_ms = now_ms
        for transfer in self._reader.read_transfers(data):
            self._process_transfer(transfer)

    def _process_transfer(self, transfer: Transfer) -> None:
        log_offset, body = transfer
        if self._is_beginning:
            if not body:
                return
            self._begin_log(log_offset)
        if log_offset != self._at:
            what = "a gap" if log_offset > self._at else "an overlap"
            raise RemoteProtocolError(
                f"{what}: the master sends log offset {log_offset}, but {self._at} is next"
            )
        end = self._log.end_offset
        if not body:
            self.is_ahead = not self.is_proved and log_offset < end
            return
        self._at += len(body)
        if not self.is_proved:
            body = self._compare_overlap(log_offset, body, end)
        if body:
            self._appender.append(body)

    def _begin_log(self, log_offset: int) -> None:
        """Begin an empty log at the start of the master's last file, or where it must begin."""
        if self._begins_at not in (None, log_offset):
            raise RemoteProtocolError(
                f"the master's log is sent from offset {log_offset} on, not from {self._begins_at}"
            )
        if log_offset % self._log.segment_size:
            raise RemoteProtocolError(
                f"the master's log is sent from offset {log_offset} on, and no file of "
                f"{self._log.segment_size} bytes begins there: mappedFileSizeCommitLog must "
                "be the same as the master's"
            )
        self._log.begin_at(log_offset)
        self._is_beginning, self._at = False, log_offset

    def _compare_overlap(self, log_offset: int, body: bytes, end: int) -> bytes:
        """Compare these bytes with our log, up to its end. Return the bytes after the end. Raises
        ForeignLogError if they differ."""
        at, theirs = log_offset, body[: end - log_offset]
        while theirs:
            ours = self._log.read(at, len(theirs))
            if ours != theirs[: len(ours)] or not ours:
                same = next(
                    (
                        n
                        for n, pair in enumerate(zip(ours, theirs, strict=False))
                        if len({*pair}) > 1
                    ),
                    len(ours),
                )
                raise ForeignLogError(at + same)
            at, theirs = at + len(ours), theirs[len(ours) :]
        if self._at >= end:
            self.is_proved = True
        return body[end - log_offset :]

"""The slave's end of the connection to its master: the master's log, proved and appended.

A slave whose log is not empty asks for some of what it has already, and compares. Only when all of
that is the same does it take the log for its master's, and append what follows (`appending`).
"""

from __future__ import annotations

from typing import Final

import msgspec

from escrowmq.errors import RemoteProtocolError
from escrowmq.replica.appending import Appender, SlaveLog
from escrowmq.replica.frames import Transfer, TransferReader, encode_report

OVERLAP_SIZE: Final = 65_536
"""So much of its own log a slave wants to see again."""

_WIDER: Final = 16
"""Where the overlap differs from its first byte on, so many times as much is looked at next."""


class ForeignLog(RemoteProtocolError):
    """The master's log is not the one that this slave has a part of."""

    def __init__(self, log_offset: int) -> None:
        super().__init__(f"the logs differ from offset {log_offset} on")
        self.log_offset = log_offset


class FollowingTerms(msgspec.Struct, frozen=True):
    """How a slave treats its master."""

    heartbeat_ms: int
    housekeeping_ms: int
    """A master that sends nothing for so long is gone."""


class Overlap:
    """How much of its log a slave compares: more, as long as what differs begins before it."""

    def __init__(self) -> None:
        self._size = OVERLAP_SIZE

    def start(self, log: SlaveLog, master_begin: int = 0) -> int:
        """From which offset on; never 0, which would mean the last file. A master's log may begin
        within what would be compared."""
        start = max(log.end_offset - self._size, log.min_offset, 1)
        return max(start, master_begin) if master_begin < log.end_offset else start

    def differs(self, log: SlaveLog, log_offset: int) -> bool:
        """The logs differ there; whether that is the first place, or a wider look is needed."""
        start = self.start(log)
        if log_offset > start or start <= max(log.min_offset, 1):
            self._size = max(log.end_offset - log_offset, 0) + OVERLAP_SIZE
            return True
        self._size *= _WIDER
        return False

    def is_same(self) -> None:
        """All was the same."""
        self._size = OVERLAP_SIZE


class Follower:
    """One connection to a master. RemoteProtocolError: it is to be closed, and nothing of the bytes
    that were wrong was appended. ForeignLog is one of these."""

    def __init__(
        self,
        log: SlaveLog,
        terms: FollowingTerms,
        *,
        start: int,
        now_ms: int,
        begins_at: int | None = None,
        ticket: int | None = None,
    ) -> None:
        """`start`: from where on the master is asked to send, by the ticket if there is one;
        `begins_at`, for an empty log, where it has to begin, if that is known."""
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
        self._appender = Appender(log)
        self.is_proved = log.is_empty
        """Whether this is the log that ours is a part of."""
        self.is_ahead = False
        """Whether the master has said that its log ends before ours."""

    def reports(self, now_ms: int) -> bytes:
        """What is to be said to the master now, if anything: first of all from where on it is to
        send; then what is kept here, when it is more, and from time to time. RemoteProtocolError
        when it has been silent for too long."""
        if now_ms >= self._heard_ms + self._terms.housekeeping_ms:
            seconds = self._terms.housekeeping_ms / 1000
            raise RemoteProtocolError(f"the master has sent nothing for {seconds:g} s")
        if self._reported < 0:
            end = self._start if self._ticket is None else self._ticket
        else:
            end = self._log.kept_end if self.is_proved else self._start
            if self._is_beginning:  # where it ends is no more than where it once began
                end = 0
            if end <= self._reported and now_ms < self._reported_ms + self._terms.heartbeat_ms:
                return b""
        # A ticket is no offset: what is kept is said behind it.
        self._reported = 0 if end == self._ticket else end
        self._reported_ms = now_ms
        return encode_report(end)

    def wake_at_ms(self) -> int:
        """When `reports` has something to say at the latest."""
        heartbeat_ms = self._reported_ms + self._terms.heartbeat_ms
        return min(heartbeat_ms, self._heard_ms + self._terms.housekeeping_ms)

    def receive(self, data: bytes, now_ms: int) -> None:
        """Bytes of the master."""
        self._heard_ms = now_ms
        for transfer in self._reader.take(data):
            self._take(transfer)

    def _take(self, transfer: Transfer) -> None:
        log_offset, body = transfer
        if self._is_beginning:
            if not body:
                return
            self._begin(log_offset)
        if log_offset != self._at:
            what = "a gap" if log_offset > self._at else "an overlap"
            raise RemoteProtocolError(
                f"{what}: the master sends log offset {log_offset}, {self._at} is next"
            )
        end = self._log.end_offset
        if not body:
            self.is_ahead = not self.is_proved and log_offset < end
            return
        self._at += len(body)
        if not self.is_proved:
            body = self._compared(log_offset, body, end)
        if body:
            self._appender.append(body)

    def _begin(self, log_offset: int) -> None:
        """An empty log begins where the master's last file does, or where it was asked to."""
        if self._begins_at not in (None, log_offset):
            raise RemoteProtocolError(
                f"the master's log is sent from offset {log_offset} on, not from {self._begins_at}"
            )
        if log_offset % self._log.segment_size:
            raise RemoteProtocolError(
                f"the master's log is sent from offset {log_offset} on, and no file of "
                f"{self._log.segment_size} bytes begins there: mappedFileSizeCommitLog has to be "
                "the master's"
            )
        self._log.begin_at(log_offset)
        self._is_beginning, self._at = False, log_offset

    def _compared(self, log_offset: int, body: bytes, end: int) -> bytes:
        """What of these bytes lies behind our end, when what lies before it is the same."""
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
                raise ForeignLog(at + same)
            at, theirs = at + len(ours), theirs[len(ours) :]
        if self._at >= end:
            self.is_proved = True
        return body[end - log_offset :]

"""The master's end of one slave's connection: which part of the log to send next, and how much of
it the slave has.

Any program can find the port, so a slave's reports are not trusted beyond what it was sent: only
bytes that were sent and then reported as stored count as copied.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Protocol

import msgspec

from escrowmq.codec.record_layout import MAGIC_FILLER, MAGICS, PLACED
from escrowmq.errors import RemoteProtocolError
from escrowmq.replica.appending import RECORD_SIZE_MAX
from escrowmq.replica.frames import ReportReader, encode_header

AHEAD_MAX: Final = 4 * 1024 * 1024
"""Limit of the bytes sent and not yet reported as stored, and so of a connection's memory."""


class MasterLog(Protocol):
    """A log from which a master sends to its slaves, such as `store.commit_log.CommitLog`."""

    segment_size: int
    end_offset: int

    @property
    def min_offset(self) -> int:
        """Return the offset at which the oldest segment starts."""

    @property
    def read(self) -> Callable[[int, int], bytes]:
        """Return bytes from a position; fewer where a segment ends."""


class Ticket(msgspec.Struct, frozen=True):
    """The permission to copy that a slave of ours got by an authenticated request. The slave sends
    the ticket's number as its first report; no log ever reaches an offset that large."""

    start: int
    """The offset at which its copy begins."""

    identity: str
    """The slave's name, whatever address it connects from."""


Redeem = Callable[[int], Ticket | None]
"""Function that returns the ticket with a number, if there is one; it cannot be used again."""


class SendingLimits(msgspec.Struct, frozen=True):
    """The sizes, intervals and requirements of a master."""

    batch_size: int
    """The maximum size of one transfer, in bytes."""

    heartbeat_ms: int
    housekeeping_ms: int
    """A slave that reports nothing for this time, in ms, is considered gone."""

    needs_ticket: bool = False
    """Whether a slave must have a ticket."""


def send_window_end(log: MasterLog, acknowledged: int, ahead_max: int) -> int:
    """Return the offset up to which the log may be sent to a copy that has acknowledged an offset.
    At most `ahead_max` bytes are sent ahead, but always one whole record: copies of ours do not
    report parts of a record."""
    until = acknowledged + ahead_max
    if until >= log.end_offset:
        return log.end_offset
    head = log.read(acknowledged, PLACED.size)
    if len(head) == PLACED.size:
        size, magic, log_offset, _ = PLACED.unpack(head)
        # A slave of RocketMQ's may have reported a position in the middle of a record, with any
        # bytes.
        if log_offset == acknowledged if magic in MAGICS else magic == MAGIC_FILLER:
            until = max(until, acknowledged + min(size, RECORD_SIZE_MAX))
    return min(until, log.end_offset)


class LogSender:
    """The master's state of one slave's connection. After RemoteProtocolError the caller closes
    it."""

    def __init__(
        self, log: MasterLog, terms: SendingLimits, redeem: Redeem, *, host: str, now_ms: int
    ) -> None:
        self._log = log
        self._terms = terms
        self._redeem = redeem
        self._reports = ReportReader()
        self.identity = host
        self.has_begun = False
        self.start = self.sent_end = 0
        self.acknowledged = -1
        """The offset up to which the slave has the log, as sent on this connection; -1 before its
        first report."""
        self._written_ms = self._read_ms = now_ms

    def receive(self, data: bytes, now_ms: int) -> None:
        """Process bytes from the slave."""
        self._read_ms = now_ms
        found = self._reports.read_reports(data)
        if found is None:
            return
        first, reported = found
        if not self.has_begun:
            self._begin_sending(first, now_ms)
            if first == reported:
                return
        if not 0 <= reported <= self.sent_end:
            raise RemoteProtocolError(
                f"it reports log offset {reported}, but was sent the log only up to {self.sent_end}"
            )
        if reported >= self.start:
            self.acknowledged = max(self.acknowledged, reported)

    def _begin_sending(self, reported: int, now_ms: int) -> None:
        log = self._log
        ticket = self._redeem(reported)
        if ticket is not None:
            start, self.identity = ticket.start, ticket.identity
        elif self._terms.needs_ticket:
            raise RemoteProtocolError(
                "it has no ticket, and escrowHaTickets=true admits only slaves of EscrowMQ"
            )
        elif reported == 0:
            # RocketMQ (DefaultHAConnection): an empty slave begins with the last file.
            start = log.end_offset - log.end_offset % log.segment_size
        else:
            start = reported
        low, end = log.min_offset, log.end_offset
        if not low <= start <= end:
            raise RemoteProtocolError(
                f"it asks for the log from offset {start} on; the log has {low} to {end}"
            )
        self.has_begun = True
        self.start = self.sent_end = start
        if start == reported:
            self.acknowledged = start
        self._written_ms = now_ms

    def transfers(self, now_ms: int) -> list[bytes]:
        """Return the transfers to write now: as much of the log as may be sent to the slave."""
        if not self.has_begun:
            return []
        log = self._log
        found: list[bytes] = []
        until = send_window_end(log, max(self.acknowledged, self.start), AHEAD_MAX)
        while self.sent_end < until:
            body = log.read(self.sent_end, min(until - self.sent_end, self._terms.batch_size))
            if not body:
                raise RemoteProtocolError(
                    f"the log has nothing to read at offset {self.sent_end}, where its copy is; it "
                    f"begins at {log.min_offset} now"
                )
            found += (encode_header(self.sent_end, len(body)), body)
            self.sent_end += len(body)
        if found:
            self._written_ms = now_ms
        return found

    def keep_alive(self, now_ms: int) -> bytes:
        """Return the keep-alive to write now; empty if none is due."""
        if now_ms >= self._read_ms + self._terms.housekeeping_ms:
            seconds = self._terms.housekeeping_ms / 1000
            raise RemoteProtocolError(f"it has reported nothing for {seconds:g} s")
        if not self.has_begun or now_ms < self._written_ms + self._terms.heartbeat_ms:
            return b""
        self._written_ms = now_ms
        return encode_header(self.sent_end, 0)

    def wake_at_ms(self) -> int:
        """Return when `keep_alive` must be called next."""
        silent_ms = self._read_ms + self._terms.housekeeping_ms
        if not self.has_begun:
            return silent_ms
        return min(silent_ms, self._written_ms + self._terms.heartbeat_ms)

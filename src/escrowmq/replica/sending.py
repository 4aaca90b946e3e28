"""The master's end of one slave's connection: what it gets of the log next, and how far it is.

A slave is believed as little as anybody who finds the port: it counts for what it was sent and
reported as taken, and for nothing else.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Protocol

import msgspec

from escrowmq.errors import RemoteProtocolError
from escrowmq.replica.frames import ReportReader, encode_header

AHEAD_MAX: Final = 4 * 1024 * 1024
"""Bytes sent that a slave has not reported as taken: what its connection costs in memory."""


class MasterLog(Protocol):
    """What is copied from. `store.commit_log.CommitLog` is one."""

    segment_size: int
    end_offset: int

    @property
    def min_offset(self) -> int:
        """Where the oldest segment starts."""

    @property
    def read(self) -> Callable[[int, int], bytes]:
        """Bytes from a position; fewer where a segment ends."""


class Ticket(msgspec.Struct, frozen=True):
    """What a slave of ours was given by a request that it proved itself with. Its number stands for
    an offset that no log reaches, in place of the first report."""

    start: int
    """Where its copy is to begin."""

    identity: str
    """Who it is, from whichever address it comes."""


Redeem = Callable[[int], Ticket | None]
"""What a number stands for, if for anything."""


class SendingTerms(msgspec.Struct, frozen=True):
    """How a master treats its slaves."""

    batch_size: int
    """Bytes of one transfer."""

    heartbeat_ms: int
    housekeeping_ms: int
    """A slave that reports nothing for so long is gone."""

    needs_ticket: bool = False
    """Whether anybody who has none is refused."""


class Sender:
    """One connection. RemoteProtocolError: it is to be closed."""

    def __init__(
        self, log: MasterLog, terms: SendingTerms, redeem: Redeem, *, host: str, now_ms: int
    ) -> None:
        self._log = log
        self._terms = terms
        self._redeem = redeem
        self._reports = ReportReader()
        self.identity = host
        self.has_begun = False
        self.start = self.sent_end = 0
        self.acknowledged = -1
        """Up to here the slave has the log, as far as it was sent on this connection; -1 before its
        first report."""
        self._written_ms = self._read_ms = now_ms

    def receive(self, data: bytes, now_ms: int) -> None:
        """Bytes of the slave."""
        self._read_ms = now_ms
        found = self._reports.take(data)
        if found is None:
            return
        first, reported = found
        if not self.has_begun:
            self._begin(first, now_ms)
            if first == reported:
                return
        if not 0 <= reported <= self.sent_end:
            raise RemoteProtocolError(
                f"it reports log offset {reported}, and was sent the log up to {self.sent_end}"
            )
        if reported >= self.start:
            self.acknowledged = max(self.acknowledged, reported)

    def _begin(self, reported: int, now_ms: int) -> None:
        log = self._log
        ticket = self._redeem(reported)
        if ticket is not None:
            start, self.identity = ticket.start, ticket.identity
        elif self._terms.needs_ticket:
            raise RemoteProtocolError(
                "it has no ticket, and escrowHaTickets=true lets in only slaves of EscrowMQ"
            )
        elif reported == 0:
            # RocketMQ (DefaultHAConnection): an empty slave begins with the last file.
            start = log.end_offset - log.end_offset % log.segment_size
        else:
            start = reported
        low, end = log.min_offset, log.end_offset
        if not low <= start <= end:
            raise RemoteProtocolError(
                f"it asks for the log from offset {start} on; there is {low} to {end}"
            )
        self.has_begun = True
        self.start = self.sent_end = start
        if start == reported:
            self.acknowledged = start
        self._written_ms = now_ms

    def transfers(self, now_ms: int) -> list[bytes]:
        """What is to be written to it now: of the log, as much as it may have at once."""
        if not self.has_begun:
            return []
        log = self._log
        found: list[bytes] = []
        until = min(log.end_offset, max(self.acknowledged, self.start) + AHEAD_MAX)
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

    def wake(self, now_ms: int) -> bytes:
        """A sign of life, if one is due; nothing otherwise."""
        if now_ms >= self._read_ms + self._terms.housekeeping_ms:
            seconds = self._terms.housekeeping_ms / 1000
            raise RemoteProtocolError(f"it has reported nothing for {seconds:g} s")
        if not self.has_begun or now_ms < self._written_ms + self._terms.heartbeat_ms:
            return b""
        self._written_ms = now_ms
        return encode_header(self.sent_end, 0)

    def wake_at_ms(self) -> int:
        """When `wake` has something to do next."""
        silent_ms = self._read_ms + self._terms.housekeeping_ms
        if not self.has_begun:
            return silent_ms
        return min(silent_ms, self._written_ms + self._terms.heartbeat_ms)

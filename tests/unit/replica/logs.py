"""What tests of copying share: a master's log in memory, and how masters treat slaves there."""

from __future__ import annotations

from escrowmq.replica.sending import SendingLimits, Ticket

TERMS = SendingLimits(batch_size=100, heartbeat_ms=5_000, housekeeping_ms=20_000)


class Bytes:
    """Bytes from an offset on, in segments (replica.sending.MasterLog)."""

    def __init__(self, data: bytes, *, first: int = 0, segment_size: int = 1000) -> None:
        self.segment_size = segment_size
        self.first = first
        self.data = data

    @property
    def min_offset(self) -> int:
        return self.first

    @property
    def end_offset(self) -> int:
        return self.first + len(self.data)

    @end_offset.setter
    def end_offset(self, end: int) -> None:
        raise AssertionError(end)

    def read(self, position: int, size: int) -> bytes:
        at = position - self.first
        left = self.segment_size - position % self.segment_size
        return self.data[at : at + min(size, left)] if at >= 0 else b""


def no_ticket(number: int) -> Ticket | None:
    return None

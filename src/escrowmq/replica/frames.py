"""What a master and a slave say to each other on RocketMQ's replication port; big-endian.

slave to master: report
  offset size field
       0    8 end           where the slave's log ends

master to slave: transfer
  offset size field
       0    8 log offset    of the first byte behind the header
       8    4 body size     0: a sign of life
      12      body          the log's bytes as they stand, cut anywhere
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Final, NamedTuple

from escrowmq.errors import RemoteProtocolError

REPORT: Final = struct.Struct(">q")
HEADER: Final = struct.Struct(">qi")

BODY_SIZE_MAX: Final = 4 * 1024 * 1024 - HEADER.size
"""A transfer has to fit into the buffer that RocketMQ's slaves read with (DefaultHAClient)."""


class Transfer(NamedTuple):
    """A part of the master's log; an empty one says that the master is there."""

    log_offset: int
    body: bytes


class ReportReader:
    """Cuts a slave's bytes into reports."""

    def __init__(self) -> None:
        self._rest = b""

    def take(self, data: bytes) -> tuple[int, int] | None:
        """The first and the newest report that are whole now: any between them are out of date.
        None without one."""
        data = self._rest + data
        whole = len(data) - len(data) % REPORT.size
        self._rest = data[whole:]
        if not whole:
            return None
        first: int = REPORT.unpack_from(data)[0]
        newest: int = REPORT.unpack_from(data, whole - REPORT.size)[0]
        return first, newest


class TransferReader:
    """Cuts a master's bytes into transfers. It keeps one that is not whole, and no more."""

    def __init__(self) -> None:
        self._data = bytearray()

    def take(self, data: bytes) -> Iterator[Transfer]:
        """The transfers that are whole now, in order. RemoteProtocolError when one cannot be."""
        held = self._data
        held += data
        at = 0
        try:
            while len(held) - at >= HEADER.size:
                log_offset, size = HEADER.unpack_from(held, at)
                if log_offset < 0 or not 0 <= size <= BODY_SIZE_MAX:
                    raise RemoteProtocolError(
                        f"a transfer of {size} bytes at log offset {log_offset}; 0 to "
                        f"{BODY_SIZE_MAX} bytes at an offset from 0 on are allowed"
                    )
                body_at = at + HEADER.size
                if len(held) - body_at < size:
                    return
                at = body_at + size
                yield Transfer(log_offset, bytes(held[body_at:at]))
        finally:
            del held[:at]


def encode_report(end: int) -> bytes:
    """A slave says where its log ends."""
    return REPORT.pack(end)


def encode_header(log_offset: int, size: int) -> bytes:
    """What stands before a part of the log."""
    return HEADER.pack(log_offset, size)

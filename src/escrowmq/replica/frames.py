"""The messages between master and slave on RocketMQ's replication port; big-endian.

slave to master: report
  offset size field
       0    8 end           where the slave's log ends

master to slave: transfer
  offset size field
       0    8 log offset    of the first byte after the header
       8    4 body size     0: a keep-alive
      12      body          the log's bytes unchanged, split anywhere
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Final, NamedTuple

from escrowmq.errors import RemoteProtocolError

REPORT: Final = struct.Struct(">q")
HEADER: Final = struct.Struct(">qi")

BODY_SIZE_MAX: Final = 4 * 1024 * 1024 - HEADER.size
"""Limit of a transfer's body, which must fit into the read buffer of RocketMQ's slaves
(DefaultHAClient)."""


class Transfer(NamedTuple):
    """A part of the master's log; an empty one is a keep-alive."""

    log_offset: int
    body: bytes


class ReportReader:
    """Splits a slave's bytes into reports."""

    def __init__(self) -> None:
        self._rest = b""

    def read_reports(self, data: bytes) -> tuple[int, int] | None:
        """Return the first and the newest of the complete reports; those in between are outdated.
        None if no report is complete."""
        data = self._rest + data
        whole = len(data) - len(data) % REPORT.size
        self._rest = data[whole:]
        if not whole:
            return None
        first: int = REPORT.unpack_from(data)[0]
        newest: int = REPORT.unpack_from(data, whole - REPORT.size)[0]
        return first, newest


class TransferReader:
    """Splits a master's bytes into transfers; buffers at most one incomplete transfer."""

    def __init__(self) -> None:
        self._data = bytearray()

    def read_transfers(self, data: bytes) -> Iterator[Transfer]:
        """Return the transfers that are complete now, in order. Raises RemoteProtocolError for an
        invalid one."""
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
    """Encode the report of a slave whose log ends at an offset."""
    return REPORT.pack(end)


def encode_header(log_offset: int, size: int) -> bytes:
    """Encode the header of a transfer."""
    return HEADER.pack(log_offset, size)

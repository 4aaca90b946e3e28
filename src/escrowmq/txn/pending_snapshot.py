"""The snapshot of pending halves: with it, a start need not read all halves that have ended.

One half that is never ended holds back the progress of both queues for days, so that a start would
have to read everything after it. The file is not required: without it, or with an old one, a start
takes longer.

`escrow/pending`, big-endian:
  offset size field
       0    4 mark           ESCP
       4    4 CRC-32         of all bytes after it
       8    8 half end       halves before this one are pending if they are listed, else ended
      16    8 op end         op records before this one are included
      24  8 n half queue offsets, rising
"""

from __future__ import annotations

import struct
import sys
import zlib
from array import array
from collections.abc import Iterable
from typing import Final, NamedTuple

PATH: Final = "escrow/pending"
_MARK: Final = b"ESCP"
_FRONT: Final = struct.Struct(">4sI")
_ENDS: Final = struct.Struct(">qq")


class PendingSnapshot(NamedTuple):
    """The pending halves at a moment when the half queue ended at `half_end` and the op queue at
    `op_end`."""

    half_end: int
    op_end: int
    pending: array[int]


def encode(half_end: int, op_end: int, pending: Iterable[int]) -> bytes:
    """Return the content of the snapshot file."""
    offsets = array("q", pending)
    if sys.byteorder == "little":
        offsets.byteswap()
    data = _ENDS.pack(half_end, op_end) + offsets.tobytes()
    return _FRONT.pack(_MARK, zlib.crc32(data)) + data


def decode(data: bytes | None) -> PendingSnapshot | None:
    """Return the content of the file; None if there is no file, or it is invalid."""
    if data is None or len(data) < _FRONT.size + _ENDS.size or len(data) % 8:
        return None
    mark, crc = _FRONT.unpack_from(data)
    body = data[_FRONT.size :]
    if mark != _MARK or zlib.crc32(body) != crc:
        return None
    half_end, op_end = _ENDS.unpack_from(body)
    offsets = array("q")
    offsets.frombytes(body[_ENDS.size :])
    if sys.byteorder == "little":
        offsets.byteswap()
    return PendingSnapshot(half_end, op_end, offsets)

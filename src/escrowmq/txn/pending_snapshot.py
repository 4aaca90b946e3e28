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

from array import array
from collections.abc import Iterable
from typing import Final, NamedTuple

from escrowmq.codec.offset_list import decode_offset_list, encode_offset_list

PATH: Final = "escrow/pending"
_MARK: Final = b"ESCP"


class PendingSnapshot(NamedTuple):
    """The pending halves at a moment when the half queue ended at `half_end` and the op queue at
    `op_end`."""

    half_end: int
    op_end: int
    pending: array[int]


def encode(half_end: int, op_end: int, pending: Iterable[int]) -> bytes:
    """Return the content of the snapshot file."""
    return encode_offset_list(_MARK, (half_end, op_end), pending)


def decode(data: bytes | None) -> PendingSnapshot | None:
    """Return the content of the file; None if there is no file, or it is invalid."""
    found = decode_offset_list(_MARK, 2, data)
    if found is None:
        return None
    (half_end, op_end), offsets = found
    return PendingSnapshot(half_end, op_end, offsets)

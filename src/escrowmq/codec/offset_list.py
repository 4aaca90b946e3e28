"""Files that list queue offsets: snapshots of what is pending.

big-endian:
  offset size field
       0    4 mark           tells the kind of the file
       4    4 CRC-32         of all bytes after it
       8  8 n numbers        as many as the kind has
        8 each queue offsets
"""

from __future__ import annotations

import struct
import sys
import zlib
from array import array
from collections.abc import Iterable
from typing import Final

_FRONT: Final = struct.Struct(">4sI")
_NUMBER_SIZE: Final = 8


def encode_offset_list(mark: bytes, numbers: Iterable[int], offsets: Iterable[int]) -> bytes:
    """Return the content of a file."""
    found = array("q", numbers)
    found.extend(offsets)
    if sys.byteorder == "little":
        found.byteswap()
    data = found.tobytes()
    return _FRONT.pack(mark, zlib.crc32(data)) + data


def decode_offset_list(
    mark: bytes, numbers_count: int, data: bytes | None
) -> tuple[array[int], array[int]] | None:
    """Return the numbers and the queue offsets of a file; None if there is no file, or it is
    invalid."""
    least_size = _FRONT.size + _NUMBER_SIZE * numbers_count
    if data is None or len(data) < least_size or len(data) % _NUMBER_SIZE:
        return None
    found_mark, crc = _FRONT.unpack_from(data)
    body = data[_FRONT.size :]
    if found_mark != mark or zlib.crc32(body) != crc:
        return None
    found = array("q")
    found.frombytes(body)
    if sys.byteorder == "little":
        found.byteswap()
    return found[:numbers_count], found[numbers_count:]

"""RocketMQ's CRC property: the last property of a record, computed over all bytes before it."""

from __future__ import annotations

from typing import Final
from zlib import crc32

CRC_MARK: Final = b"__CRC32#\x01"
CRC_PROPERTY_SIZE: Final = 20
CRC_DIGITS_AT: Final = len(CRC_MARK) - CRC_PROPERTY_SIZE
"""The position of the digits, relative to the record's end."""


def encode_crc_property(record: bytes) -> bytes:
    """Return the CRC property that completes a record. `record` has all bytes before it; its size
    fields must already count these 20 bytes."""
    crc = crc32(record) & 0x7FFFFFFF
    return CRC_MARK + f"{crc:010d}"[::-1].encode() + b"\x02"


def is_crc_right(data: bytes, at: int, record_end: int) -> bool:
    """Whether the ten digits in a record's CRC property are right; the least significant comes
    first (RocketMQ's MessageDecoder.createCrc32)."""
    digits = data[record_end + CRC_DIGITS_AT : record_end - 1][::-1]
    crc = crc32(data[at : record_end - CRC_PROPERTY_SIZE]) & 0x7FFFFFFF
    return digits.isdigit() and int(digits) == crc

"""The body of a batch send: entries one after another, big-endian.

offset size field
     0    4 entry size
     4    4 magic (0)
     8    4 body CRC (0)
    12    4 flag
    16    4 body size, then the body
          2 properties size, then the properties
"""

from __future__ import annotations

import struct
from typing import Final

from escrowmq.base.fixed_limits import BATCH_MESSAGES_MAX
from escrowmq.errors import RemoteProtocolError

_HEAD: Final = struct.Struct(">iiiii")
_SIZE: Final = struct.Struct(">H")


def encode_batch(entries: list[tuple[int, bytes, bytes]]) -> bytes:
    """Encode the body of a batch from (flag, body, encoded properties) of each message."""
    parts: list[bytes] = []
    for flag, body, properties in entries:
        size = _HEAD.size + len(body) + _SIZE.size + len(properties)
        parts += (
            _HEAD.pack(size, 0, 0, flag, len(body)),
            body,
            _SIZE.pack(len(properties)),
            properties,
        )
    return b"".join(parts)


def batch_entry_size(entry: tuple[int, bytes, bytes]) -> int:
    """Return the number of bytes that a message takes in a batch."""
    return _HEAD.size + len(entry[1]) + _SIZE.size + len(entry[2])


def decode_batch(data: bytes) -> list[tuple[int, bytes, bytes]]:
    """Decode a batch to (flag, body, encoded properties) of each message. Raises
    RemoteProtocolError if one is truncated, or there are too many."""
    found, end = decode_batch_part(data, 0, count_max=BATCH_MESSAGES_MAX)
    if end < len(data):
        raise RemoteProtocolError(
            f"more than {BATCH_MESSAGES_MAX} messages in a batch; send it in parts"
        )
    return found


def decode_batch_part(
    data: bytes, at: int, *, count_max: int
) -> tuple[list[tuple[int, bytes, bytes]], int]:
    """Decode a limited number of messages from a position on. Return them and the next position."""
    found: list[tuple[int, bytes, bytes]] = []
    while at < len(data) and len(found) < count_max:
        try:
            size, _, _, flag, body_size = _HEAD.unpack_from(data, at)
            body_at = at + _HEAD.size
            (properties_size,) = _SIZE.unpack_from(data, body_at + max(0, body_size))
        except struct.error as error:
            raise RemoteProtocolError(f"batch entry at byte {at} is cut short") from error
        properties_at = body_at + body_size + _SIZE.size
        end = properties_at + properties_size
        if body_size < 0 or end > len(data) or size != end - at:
            raise RemoteProtocolError(
                f"batch entry at byte {at}: size {size}, its fields take {end - at}"
            )
        found.append((flag, data[body_at : body_at + body_size], data[properties_at:end]))
        at = end
    return found, at

"""The signed transaction id, URL-safe base64 without padding of (big-endian):

offset size field
     0    1 form              1
     1    1 key number        1..255
     2    8 half queue offset
    10    8 log offset        of the half record
    18    4 message           CRC-32 of its unique key: after a loss of power another half may
                              have the offsets of a lost one
    22    4 expiry            seconds since the epoch
    26    n broker name       UTF-8
   -16   16 MAC               the first half of HMAC-SHA256 over all before it
"""

from __future__ import annotations

import base64
import binascii
import re
import struct
import zlib
from typing import Final

import msgspec

from escrowmq.errors import UsageError

FORM: Final = 1
MAC_SIZE: Final = 16
ID_SIZE_MAX: Final = 512
_FRONT: Final = struct.Struct(">BBQQII")
_BASE64: Final = re.compile(r"[A-Za-z0-9_-]+")
"""The base64 alphabet. Ids with other characters are refused, which the library's decoder would
ignore."""


class SignedId(msgspec.Struct, frozen=True, kw_only=True):
    """The content of a signed transaction id."""

    key_number: int
    queue_offset: int
    log_offset: int
    message_crc: int
    expires_s: int
    broker_name: str
    form: int = FORM

    def is_id_of(self, unique_key: str) -> bool:
        """Whether this is the id of the message with this unique key."""
        return self.message_crc == key_crc(unique_key)


def key_crc(unique_key: str) -> int:
    """Return the checksum of a message's unique key that its signed id contains."""
    return zlib.crc32(unique_key.encode())


def pack_signed_id(found: SignedId) -> bytes:
    """Return the bytes to sign: all except the MAC."""
    front = _FRONT.pack(
        found.form,
        found.key_number,
        found.queue_offset,
        found.log_offset,
        found.message_crc,
        found.expires_s,
    )
    return front + found.broker_name.encode()


def encode_signed_id(packed: bytes, mac: bytes) -> str:
    """Encode an id to text."""
    return base64.urlsafe_b64encode(packed + mac).rstrip(b"=").decode()


def decode_signed_id(text: str) -> tuple[SignedId, bytes, bytes]:
    """Decode an id. Return its content, the signed bytes, and the MAC, which is not verified here.
    Raises UsageError if the text is not an id."""
    if len(text) <= ID_SIZE_MAX and _BASE64.fullmatch(text):
        try:
            data = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
            if len(data) > _FRONT.size + MAC_SIZE:
                return _unpack(data), data[:-MAC_SIZE], data[-MAC_SIZE:]
        except (binascii.Error, UnicodeDecodeError):
            pass
    raise UsageError(f"{text[:32]!r} is not a transaction id")


def _unpack(data: bytes) -> SignedId:
    form, key_number, queue_offset, log_offset, message_crc, expires_s = _FRONT.unpack_from(data)
    return SignedId(
        form=form,
        key_number=key_number,
        queue_offset=queue_offset,
        log_offset=log_offset,
        message_crc=message_crc,
        expires_s=expires_s,
        broker_name=data[_FRONT.size : -MAC_SIZE].decode(),
    )

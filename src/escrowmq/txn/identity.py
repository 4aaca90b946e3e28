"""Signed transaction ids: whoever has one can settle the transaction, and nobody can make one up.

A broker keeps nothing about the ids that it gave out; what an id says is proved by its MAC. Keys
belong to the store. A new one takes over from time to time, an old one stays for as long as ids
that it signed are good.

The id is URL-safe base64, without padding, of (big-endian):
  offset size field
       0    1 form              1
       1    1 key number        1..255
       2    8 half queue offset
      10    8 log offset        of the half record
      18    4 message           CRC-32 of its unique key: after a loss of power another half may
                                stand where the one that is meant was lost
      22    4 expiry            seconds since the epoch
      26    n broker name       UTF-8
     -16   16 MAC               the first half of HMAC-SHA256 over all before it
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import struct
import zlib
from itertools import pairwise
from typing import Final

import msgspec

from escrowmq.base.ports import Chance
from escrowmq.errors import UsageError

PATH: Final = "config/escrowKeys.json"
_FORM: Final = 1
_FRONT: Final = struct.Struct(">BBQQII")
_MAC_SIZE: Final = 16
_KEY_BITS: Final = 256
_KEYS_MAX: Final = 255
ID_SIZE_MAX: Final = 512


class Identity(msgspec.Struct, frozen=True):
    """What a transaction id says."""

    queue_offset: int
    log_offset: int
    key_crc: int
    expires_s: int
    broker_name: str

    def is_of(self, unique_key: str) -> bool:
        """Whether this is the id of the message with that unique key."""
        return self.key_crc == zlib.crc32(unique_key.encode())


class _Key(msgspec.Struct):
    number: int
    secret: bytes
    """Base64 in the file."""
    since_ms: int


class _KeyFile(msgspec.Struct):
    keys: list[_Key] = []


class Keyring:
    """The keys of one store. `lasting_ms` is how long an id is good."""

    def __init__(self, chance: Chance, *, lasting_ms: int, rotation_ms: int) -> None:
        self._chance = chance
        self._lasting_ms = lasting_ms
        self._rotation_ms = rotation_ms
        self._keys: dict[int, _Key] = {}
        self._current: _Key | None = None

    def load(self, data: bytes | None) -> None:
        """Take over the keys of an earlier process. UsageError when the file cannot be read."""
        if data is None:
            return
        try:
            found = msgspec.json.decode(data, type=_KeyFile)
        except msgspec.DecodeError as error:
            raise UsageError(
                f"{PATH}: {error}; restore it, or remove it: ids given out so far are void then"
            ) from error
        self._keys = {key.number: key for key in found.keys}
        self._current = found.keys[-1] if found.keys else None

    def save(self) -> bytes:
        """The file's content; it is secret."""
        return msgspec.json.encode(_KeyFile(list(self._keys.values())))

    def rotate(self, now_ms: int) -> int:
        """Sign with a new key from now on; its number. Keys whose ids have all run out go."""
        keys = list(self._keys.values())
        for key, following in pairwise(keys):
            if following.since_ms + self._lasting_ms < now_ms:
                del self._keys[key.number]
        number = (self._current.number if self._current else 0) % _KEYS_MAX + 1
        secret = self._chance.getrandbits(_KEY_BITS).to_bytes(_KEY_BITS // 8, "big")
        self._keys.pop(number, None)  # 255 rotations ago
        self._current = self._keys[number] = _Key(number, secret, now_ms)
        return number

    def is_due(self, now_ms: int) -> bool:
        """Whether it is time for a new key."""
        return self._current is None or now_ms - self._current.since_ms >= self._rotation_ms

    def sign(
        self,
        *,
        queue_offset: int,
        log_offset: int,
        unique_key: str,
        broker_name: str,
        now_ms: int,
    ) -> str:
        """The id of a transaction whose half was stored now."""
        current = self._current
        assert current is not None, "no id is signed before the first key is kept"
        expires_s = (now_ms + self._lasting_ms) // 1000
        key_crc = zlib.crc32(unique_key.encode())
        text = _FRONT.pack(_FORM, current.number, queue_offset, log_offset, key_crc, expires_s)
        text += broker_name.encode()
        return base64.urlsafe_b64encode(text + _mac(current, text)).rstrip(b"=").decode()

    def read(self, text: str, *, broker_name: str, now_ms: int) -> Identity:
        """What an id says, when it is one of this store's; UsageError says what is wrong."""
        data = _unpacked(text)
        form, number, queue_offset, log_offset, key_crc, expires_s = _FRONT.unpack_from(data)
        key = self._keys.get(number)
        signed, mac = data[:-_MAC_SIZE], data[-_MAC_SIZE:]
        if form != _FORM or key is None or not hmac.compare_digest(_mac(key, signed), mac):
            raise UsageError(
                "this transaction id was not signed by this broker, or with a key that is gone"
            )
        found = Identity(
            queue_offset, log_offset, key_crc, expires_s, signed[_FRONT.size :].decode()
        )
        if found.broker_name != broker_name:
            raise UsageError(f"this transaction id is of broker {found.broker_name}; send it there")
        if expires_s * 1000 < now_ms:
            late_s = now_ms // 1000 - expires_s
            raise UsageError(f"this transaction id ran out {late_s} s ago")
        return found


def broker_of(text: str) -> str:
    """The broker that an id is to be sent to; UsageError when it is no id. Nothing is proved."""
    try:
        return _unpacked(text)[_FRONT.size : -_MAC_SIZE].decode()
    except UnicodeDecodeError as error:
        raise UsageError(f"{text[:32]!r} is no transaction id") from error


def _unpacked(text: str) -> bytes:
    if len(text) <= ID_SIZE_MAX and text.isascii():
        try:
            data = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
        except binascii.Error:
            data = b""
        if len(data) > _FRONT.size + _MAC_SIZE:
            return data
    raise UsageError(f"{text[:32]!r} is no transaction id")


def _mac(key: _Key, text: bytes) -> bytes:
    return hmac.digest(key.secret, text, hashlib.sha256)[:_MAC_SIZE]

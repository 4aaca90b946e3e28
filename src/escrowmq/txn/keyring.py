"""Signs transaction ids: anyone who has one can end the transaction, and no one can forge one.

A broker stores nothing about issued ids: an id's content is proved by its MAC. Keys belong to the
store. A new key takes over periodically; an old one is kept while ids that it signed are valid. For
the form of an id see codec/signed_id.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Callable
from itertools import pairwise
from typing import Final

import msgspec

from escrowmq.base.ports import RandomSource
from escrowmq.codec.signed_id import (
    FORM,
    MAC_SIZE,
    SignedId,
    decode_signed_id,
    encode_signed_id,
    key_crc,
    pack_signed_id,
)
from escrowmq.errors import UsageError

PATH: Final = "config/escrowKeys.json"
_KEY_BITS: Final = 256
_KEYS_MAX: Final = 255
_KEPT_COUNT: Final = 8
"""The number of newest keys that are kept in any case, including the one that signs."""


class _Key(msgspec.Struct):
    number: int
    secret: bytes
    """The key's bytes; Base64 in the file."""
    since_ms: int


class _KeyFile(msgspec.Struct):
    keys: list[_Key] = []


class Keyring:
    """The signing keys of one store. `lasting_ms` returns how long an id is valid, `rotation_ms`
    how long a key signs; both may change while the broker runs."""

    def __init__(
        self, chance: RandomSource, *, lasting_ms: Callable[[], int], rotation_ms: Callable[[], int]
    ) -> None:
        self._chance = chance
        self._lasting_ms = lasting_ms
        self._rotation_ms = rotation_ms
        self._keys: dict[int, _Key] = {}
        self._current: _Key | None = None

    def load(self, data: bytes | None) -> None:
        """Load the keys of an earlier process. Raises UsageError if the file is invalid."""
        if data is None:
            return
        try:
            found = msgspec.json.decode(data, type=_KeyFile)
        except msgspec.DecodeError as error:
            raise UsageError(
                f"{PATH}: {error}; restore it, or remove it, which invalidates all ids issued so "
                f"far"
            ) from error
        self._keys = {key.number: key for key in found.keys}
        self._current = found.keys[-1] if found.keys else None

    def content_to_save(self) -> bytes:
        """Return the file's content, which is secret."""
        return msgspec.json.encode(_KeyFile(list(self._keys.values())))

    def rotate(self, now_ms: int) -> int:
        """Create a new key that signs from now on, and return its number. Drop keys whose ids have
        all expired, except the newest ones: a clock that is days ahead for a while must not drop
        keys of valid ids."""
        keys = list(self._keys.values())
        for key, following in pairwise(keys[: 2 - _KEPT_COUNT]):
            # Its last id was signed when the next key took over.
            if following.since_ms + self._lasting_ms() < now_ms:
                del self._keys[key.number]
        number = (self._current.number if self._current else 0) % _KEYS_MAX + 1
        secret = self._chance.getrandbits(_KEY_BITS).to_bytes(_KEY_BITS // 8, "big")
        # Removed first, so that the new key is last: after a start, the last key of the file signs.
        self._keys.pop(number, None)  # 255 rotations ago
        self._current = self._keys[number] = _Key(number, secret, now_ms)
        return number

    @property
    def has_key(self) -> bool:
        """Whether there is a key that signs."""
        return self._current is not None

    def is_rotation_due(self, now_ms: int) -> bool:
        """Whether it is time for a new key."""
        return self._current is None or now_ms - self._current.since_ms >= self._rotation_ms()

    def sign(
        self,
        *,
        queue_offset: int,
        log_offset: int,
        unique_key: str,
        broker_name: str,
        now_ms: int,
    ) -> str:
        """Return the signed id for the transaction of a half."""
        current = self._current
        assert current is not None, "no id is signed before the first key is kept"
        packed = pack_signed_id(
            SignedId(
                key_number=current.number,
                queue_offset=queue_offset,
                log_offset=log_offset,
                message_crc=key_crc(unique_key),
                expires_s=(now_ms + self._lasting_ms()) // 1000,
                broker_name=broker_name,
            )
        )
        return encode_signed_id(packed, _mac(current, packed))

    def verify_id(self, text: str, *, broker_name: str, now_ms: int) -> SignedId:
        """Return the content of an id. Raises UsageError if this store has not signed it, or it has
        expired."""
        found, packed, mac = decode_signed_id(text)
        key = self._keys.get(found.key_number)
        if found.form != FORM or key is None or not hmac.compare_digest(_mac(key, packed), mac):
            raise UsageError(
                "this transaction id was not signed by this broker, or with a key that was removed"
            )
        if found.broker_name != broker_name:
            raise UsageError(f"this transaction id is of broker {found.broker_name}; send it there")
        late_s = now_ms // 1000 - found.expires_s
        if late_s > 0:
            raise UsageError(f"this transaction id expired {late_s} s ago")
        return found


def _mac(key: _Key, text: bytes) -> bytes:
    return hmac.digest(key.secret, text, hashlib.sha256)[:MAC_SIZE]

"""Hash functions of RocketMQ's files and protocol."""

from __future__ import annotations

import functools
import hashlib
import operator
import struct
import zlib
from typing import Final

_POWERS: Final = [pow(31, n, 1 << 32) for n in range(1024)]
_MARKS_MAX: Final = 1_024
"""The number of account marks that are cached. Each half needs one, and computing it takes 1 µs."""

_HEAD_SIZE: Final = 20
"""The number of first characters of a unique key (address, process, class loader) that repeat.
Their hash is cached."""


def _uncached_hash(text: str) -> int:
    units = text.encode("ascii") if text.isascii() else _utf16_units(text)
    count = len(units)
    if count <= len(_POWERS):
        return sum(map(operator.mul, units, _POWERS[count - 1 :: -1])) if count else 0
    code = 0
    for unit in units:
        code = (code * 31 + unit) & 0xFFFFFFFF
    return code


def _utf16_units(text: str) -> tuple[int, ...]:
    data = text.encode("utf-16-be", "surrogatepass")
    return struct.unpack(f">{len(data) // 2}H", data)


@functools.lru_cache(maxsize=4096)
def _prefix_hash(text: str) -> int:
    return _uncached_hash(text) & 0xFFFFFFFF


def java_hash(text: str) -> int:
    """Return Java's `String.hashCode`: signed 32 bits over UTF-16 units."""
    if len(text) > _HEAD_SIZE and text.isascii():
        tail = text[_HEAD_SIZE:]
        if len(tail) < len(_POWERS):
            code = _prefix_hash(text[:_HEAD_SIZE]) * _POWERS[len(tail)] + _uncached_hash(tail)
        else:
            code = _uncached_hash(text)
    else:
        code = _uncached_hash(text)
    code &= 0xFFFFFFFF
    return code - 0x1_0000_0000 if code & 0x8000_0000 else code


@functools.lru_cache(maxsize=16_384)
def tags_code(tags: str) -> int:
    """Return the hash of a TAGS property in a consume-queue entry; 0 without tags."""
    return java_hash(tags) if tags else 0


def index_hash(topic: str, key: str) -> int:
    """Return the hash of `topic#key` in an index file, which is never negative."""
    code = abs(java_hash(f"{topic}#{key}"))
    return 0 if code == 0x8000_0000 else code


def body_crc(body: bytes) -> int:
    """Return CRC-32 without its top bit, as in records and register requests."""
    return zlib.crc32(body) & 0x7FFFFFFF


@functools.lru_cache(maxsize=4096)
@functools.lru_cache(maxsize=_MARKS_MAX)
def account_mark(name: str) -> str:
    """Return the mark by which a message names the account that sent it. It has constant length,
    and does not help to sign as that account."""
    return hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:24]

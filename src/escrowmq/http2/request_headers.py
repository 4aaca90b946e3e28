"""Converts header blocks to validated requests, and fields to blocks.

Outgoing blocks do not use the other end's table: there is nothing to keep in step, and most of them
are constants."""

from __future__ import annotations

import functools
import re
from itertools import chain
from typing import Final, TypeVar

import msgspec

from escrowmq.http2.header_blocks import Field, HeaderBlockDecoder

KEPT_BLOCKS_MAX: Final = 64
"""The most blocks that are cached for a connection. A client of one service needs one for each
method."""

CHECKED_FIELDS_MAX: Final = 64
"""The most valid fields that are cached."""

REMEMBERED_SIZE_MAX: Final = 2_048
"""Requests with more bytes of fields than this are not cached; a call of RocketMQ's has half as
many."""

NAMES_KEPT_MAX: Final = 256
"""The most valid names that are cached."""

_NAME: Final = re.compile(rb"[!#$%&'*+.^_`|~0-9a-z-]+")
_VALUE: Final = re.compile(rb"[^\0\r\n]*")
_PSEUDO: Final = (b":method", b":scheme", b":path", b":authority")
_OPENING: Final = frozenset(_PSEUDO)
_OPENING_COUNT: Final = len(_PSEUDO)
_OF_CONNECTIONS: Final = frozenset(
    (b"connection", b"keep-alive", b"proxy-connection", b"transfer-encoding", b"upgrade")
)


_K = TypeVar("_K")
_V = TypeVar("_V")

_ENTRY_SIZE: Final = 512
"""The most memory of a cache entry in bytes, without its characters."""


class _BoundedCache(dict[_K, _V]):
    """A cache that is emptied when it is full."""

    __slots__ = ("_count_max", "size")

    def __init__(self, count_max: int) -> None:
        super().__init__()
        self._count_max = count_max
        self.size = 0

    def add(self, key: _K, value: _V, size: int) -> None:
        """Cache a value, unless it is large. Large values of strangers should not stay in
        memory."""
        if size > REMEMBERED_SIZE_MAX:
            return
        if len(self) == self._count_max:
            self.clear_all()
        self[key] = value
        self.size += size + _ENTRY_SIZE

    def clear_all(self) -> None:
        """Empty the cache."""
        self.clear()
        self.size = 0


class MalformedRequest(ValueError):
    """Raised if the fields are not a valid request."""


class HttpRequest(msgspec.Struct, frozen=True):
    """The header fields of a request. Calls with equal fields share this object, so do not change
    it."""

    method: bytes
    path: str
    metadata: dict[str, str]
    """Fields by name, without pseudo-header fields; repeated values are joined by commas, as in
    HTTP."""

    content_size: int
    """The content-length; -1 without one."""

    size: int = 0
    """Size of the fields, as counted by SETTINGS_MAX_HEADER_LIST_SIZE."""


class RequestDecoder:
    """Converts the blocks of one connection to requests, in order."""

    def __init__(self, *, list_size_max: int) -> None:
        self._blocks = HeaderBlockDecoder(list_size_max=list_size_max)
        self.read_count = 0
        """Number of decoded fields, without those of cached blocks."""
        self._kept: _BoundedCache[bytes, HttpRequest] = _BoundedCache(KEPT_BLOCKS_MAX)
        self._texts: _BoundedCache[Field, tuple[str, str]] = _BoundedCache(CHECKED_FIELDS_MAX)
        self._openings: _BoundedCache[tuple[Field, ...], tuple[bytes, str]] = _BoundedCache(
            KEPT_BLOCKS_MAX
        )

    @property
    def cached_size(self) -> int:
        """Approximate bytes cached for earlier calls."""
        memories = self._kept.size + self._texts.size + self._openings.size
        return memories + self._blocks.table_size

    def decode_request(self, block: bytes) -> HttpRequest:
        """Decode the block that opens a stream. Raises Malformed if its fields are no valid
        request, and ConnectionFault if the block cannot be decoded. A block of indexes only is
        cached until the table changes: until then it means the same."""
        kept = self._kept.get(block)
        if kept is not None:
            return kept
        changes_count = self._blocks.changes_count
        request = self._make_request(self.decode_fields(block))
        # Every literal, and every number of more than one byte, has a byte below 0x80.
        if changes_count == self._blocks.changes_count and min(block) >= 0x80:
            self._kept.add(block, request, request.size)
        return request

    def decode_fields(self, block: bytes) -> list[Field]:
        """Decode a block without validating its fields. Even a block that is not needed must be
        decoded, because it may change the table."""
        changes_count = self._blocks.changes_count
        fields = self._blocks.decode_block(block)
        self.read_count += len(fields)
        if changes_count != self._blocks.changes_count:
            self._kept.clear_all()
        return fields

    def _make_request(self, fields: list[Field]) -> HttpRequest:
        """Make a request like `make_request`, but faster: nearly all calls begin with the same four
        fields as earlier ones, and have no repeated field. It takes 5 us for 12 fields instead of
        11 (CPython 3.11)."""
        size = self._blocks.list_size
        start = tuple(fields[:_OPENING_COUNT])
        opening = self._openings.get(start)
        if opening is None:
            request = make_request(fields, size)
            if {name for name, _ in start} == _OPENING:
                start_size = sum(map(len, chain.from_iterable(start)))
                self._openings.add(start, (request.method, request.path), start_size)
            return request
        texts, text = self._texts.get, self._cached_text
        try:
            metadata = dict([texts(field) or text(field) for field in fields[_OPENING_COUNT:]])
        except MalformedRequest:
            return make_request(fields, size)  # which reports every error in the same way
        is_plain = len(metadata) == len(fields) - _OPENING_COUNT
        if not is_plain or "content-length" in metadata:
            return make_request(fields, size)
        return HttpRequest(opening[0], opening[1], metadata, -1, size)

    def _cached_text(self, field: Field) -> tuple[str, str]:
        """Return a field as text, from a cache if it equals a field of an earlier call, as most
        do."""
        found = field_text(field)
        self._texts.add(field, found, len(field[0]) + len(field[1]))
        return found


def field_text(field: Field) -> tuple[str, str]:
    """Return a field as text. Raises Malformed."""
    check_field(field)
    return field[0].decode("latin-1"), field[1].decode("latin-1")


def make_request(fields: list[Field], size: int = 0) -> HttpRequest:
    """Make a request from fields, and validate that they open one (RFC 9113, 8.2 and 8.3)."""
    pseudo: dict[bytes, bytes] = {}
    count = 0
    for name, value in fields:
        if name[:1] != b":":
            break  # one behind the others is refused by `check_field`, as no name begins so
        if name not in _PSEUDO or name in pseudo:
            raise MalformedRequest(f"{name!r} is unknown, or there twice")
        pseudo[name] = value
        count += 1
    missing = [name for name in _PSEUDO[:3] if not pseudo.get(name)]
    if missing:
        raise MalformedRequest(f"no {missing[0].decode()}")
    metadata: dict[str, str] = {}
    content_size = -1
    for field in fields[count:]:
        key, said = field_text(field)
        metadata[key] = f"{metadata[key]},{said}" if key in metadata else said
        if key == "content-length":
            if not field[1].isdigit() or len(said) > 18:
                raise MalformedRequest(f"content-length {field[1]!r}")
            content_size = int(said)
    path = pseudo[b":path"].decode("latin-1")
    return HttpRequest(pseudo[b":method"], path, metadata, content_size, size)


def check_field(field: Field) -> None:
    """Raise Malformed for an invalid field (RFC 9113, 8.2)."""
    name, value = field
    _check_name(name)
    if not _VALUE.fullmatch(value) or value != value.strip(b" \t"):
        raise MalformedRequest(f"{name!r} has a value that cannot be")
    if name == b"te" and value != b"trailers":
        raise MalformedRequest(f"{name!r} is not for HTTP/2")


@functools.lru_cache(NAMES_KEPT_MAX)
def _check_name(name: bytes) -> None:
    """Raise Malformed for an invalid name; valid ones are cached."""
    if not _NAME.fullmatch(name):
        raise MalformedRequest(f"{name!r} is no name of a field")
    if name in _OF_CONNECTIONS:
        raise MalformedRequest(f"{name!r} is not for HTTP/2")


def encode_literal(name: bytes, value: bytes) -> bytes:
    """Encode a field as a literal that does not enter the client's table."""
    return b"\0" + _encode_string(name) + _encode_string(value)


def _encode_string(data: bytes) -> bytes:
    size = len(data)
    if size < 0x7F:
        return bytes((size,)) + data
    out = bytearray(b"\x7f")
    size -= 0x7F
    while size >= 0x80:
        out.append(size & 0x7F | 0x80)
        size >>= 7
    out.append(size)
    return bytes(out) + data

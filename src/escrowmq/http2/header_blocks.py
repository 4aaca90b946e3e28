"""Decodes header blocks (RFC 7541) to fields.

The static table and the state machine of the Huffman code come from the hpack package; the loops do
not. RocketMQ's clients give each call an id, so no two blocks are equal, and hpack's own decoder
takes four times as long for them as everything else that a call costs here.

first byte 1.......   a field of the table 01......   a literal field, which enters the table
001.....   a new size of the table 0000....   a literal field 0001....   a literal field that is
secret"""

from __future__ import annotations

from collections import deque
from itertools import chain
from typing import Final

from hpack.huffman_table import (
    HUFFMAN_COMPLETE,
    HUFFMAN_EMIT_SYMBOL,
    HUFFMAN_FAIL,
    HUFFMAN_TABLE,
)
from hpack.table import HeaderTable

from escrowmq.http2.frames import ConnectionFault, ErrorCode

Field = tuple[bytes, bytes]

TABLE_SIZE_MAX: Final = 4096
"""Maximum size of the dynamic table (SETTINGS_HEADER_TABLE_SIZE, which is not changed)."""

FIELD_SIZE: Final = 32
"""The overhead of a field in the table."""

_STATIC_COUNT: Final = HeaderTable.STATIC_TABLE_LENGTH
_STATIC: Final = ((b"", b""), *HeaderTable.STATIC_TABLE)
_DYNAMIC_FROM: Final = 0x80 + len(_STATIC)
_SIZES_MAX: Final = 2
"""The most size changes at the start of a block: one to the smallest size since the last block, and
one to the final size (RFC 7541, 4.2)."""

_INTEGER_BITS_MAX: Final = 28


class _HuffmanSteps(dict[int, tuple[int, bytes, bool]]):
    """By state and byte of Huffman code (state * 256 + byte): the next state * 256, the decoded
    bytes, and whether the text may end there. It is derived from hpack's state machine, which works
    on half bytes. Each of up to 65,536 entries is computed when it is first needed."""

    def __missing__(self, key: int) -> tuple[int, bytes, bool]:
        state, out, flags = key >> 8, b"", 0
        for nibble in (key >> 4 & 0xF, key & 0xF):
            state, flags, symbol = HUFFMAN_TABLE[state * 16 + nibble]
            if flags & HUFFMAN_FAIL:
                raise _coding_error("what is no Huffman code")
            if flags & HUFFMAN_EMIT_SYMBOL:
                out += bytes((symbol,))
        step = self[key] = state << 8, out, bool(flags & HUFFMAN_COMPLETE)
        return step


_STEPS: Final = _HuffmanSteps()


def _coding_error(what: str) -> ConnectionFault:
    return ConnectionFault(ErrorCode.COMPRESSION_ERROR, f"{what} in a header block")


def decode_huffman(data: bytes) -> bytes:
    """Decode a Huffman-coded string."""
    state, is_complete, out, steps = 0, True, bytearray(), _STEPS
    for byte in data:
        state, piece, is_complete = steps[state | byte]
        out += piece
    if not is_complete:
        raise _coding_error("half a Huffman code")
    return bytes(out)


class DynamicTable:
    """The dynamic table: the fields that the other end has entered, newest first (RFC 7541, 2.3.2
    and 4)."""

    __slots__ = ("entries", "size", "size_max")

    def __init__(self) -> None:
        self.entries: deque[Field] = deque()
        self.size = 0
        self.size_max = TABLE_SIZE_MAX

    def add_field(self, field: Field) -> None:
        """Enter a field. A field that is larger than the table empties it."""
        self.entries.appendleft(field)
        self.size += len(field[0]) + len(field[1]) + FIELD_SIZE
        if self.size > self.size_max:
            self._evict_fields()

    def resize(self, size_max: int) -> None:
        """Set the table's size limit, and remove the oldest fields beyond it."""
        self.size_max = size_max
        self._evict_fields()

    def _evict_fields(self) -> None:
        while self.size > self.size_max:
            name, value = self.entries.pop()
            self.size -= len(name) + len(value) + FIELD_SIZE


class HeaderBlockDecoder:
    """Decodes the blocks of one connection, in order."""

    def __init__(self, *, list_size_max: int) -> None:
        self._table = DynamicTable()
        self._list_size_max = list_size_max
        self.list_size = 0
        """Size of the fields that were decoded last."""
        self.changes_count = 0
        """How often the dynamic table has changed. As long as it has not, an index means the same
        field."""

    def decode_block(self, block: bytes) -> list[Field]:
        """Decode a block and return its fields. Raises ConnectionFault if it is invalid: the table
        then differs from the client's, so no further block can be decoded."""
        fields: list[Field] = []
        at, end, sizes_count = 0, len(block), 0
        entries = self._table.entries
        try:
            while at < end:
                first = block[at]
                if 0x80 < first < 0xFF:  # most fields of most calls
                    nth = first - _DYNAMIC_FROM
                    if nth < 0:
                        field = _STATIC[first & 0x7F]
                    else:
                        field = (
                            entries[nth] if nth < len(entries) else self._table_entry(first & 0x7F)
                        )
                    at += 1
                elif first & 0x80:
                    index, at = _decode_integer(block, at, 0x7F)
                    field = self._table_entry(index)
                elif first & 0x40:
                    field, at = self._decode_literal(block, at, 0x3F)
                    self._table.add_field(field)
                    self.changes_count += 1
                elif first & 0x20:
                    size, at = _decode_integer(block, at, 0x1F)
                    sizes_count += 1
                    self._resize_table(size, is_first=not fields, count=sizes_count)
                    continue
                else:
                    field, at = self._decode_literal(block, at, 0x0F)
                fields.append(field)
        except IndexError as error:
            raise _coding_error("half a field") from error
        size = sum(map(len, chain.from_iterable(fields))) + FIELD_SIZE * len(fields)
        self.list_size = size
        if size > self._list_size_max:
            raise ConnectionFault(
                ErrorCode.ENHANCE_YOUR_CALM, f"more than {self._list_size_max} bytes of headers"
            )
        return fields

    @property
    def table_size(self) -> int:
        """Bytes of the dynamic table."""
        return self._table.size

    def _table_entry(self, index: int) -> Field:
        if 0 < index <= _STATIC_COUNT:
            return _STATIC[index]
        entries = self._table.entries
        if not 0 < index <= _STATIC_COUNT + len(entries):
            raise _coding_error(f"field {index}, which no table has,")
        return entries[index - _STATIC_COUNT - 1]

    def _decode_literal(self, block: bytes, at: int, mask: int) -> tuple[Field, int]:
        index, at = _decode_integer(block, at, mask)
        if index:
            name = self._table_entry(index)[0]
        else:
            name, at = _decode_string(block, at)
        value, at = _decode_string(block, at)
        return (name, value), at

    def _resize_table(self, size: int, *, is_first: bool, count: int) -> None:
        if not is_first:
            raise _coding_error("a new size of the table behind a field")
        if count > _SIZES_MAX:
            raise _coding_error(f"{count} new sizes of the table ({_SIZES_MAX} allowed)")
        if size > TABLE_SIZE_MAX:
            raise _coding_error(f"a table of {size} bytes ({TABLE_SIZE_MAX} allowed)")
        self._table.resize(size)
        self.changes_count += 1


def _decode_integer(block: bytes, at: int, mask: int) -> tuple[int, int]:
    """Decode an integer that starts in the low bits of a byte; return it, and its end."""
    number = block[at] & mask
    at += 1
    if number < mask:
        return number, at
    shift = 0
    while True:
        byte = block[at]
        at += 1
        number += (byte & 0x7F) << shift
        if byte < 0x80:
            return number, at
        shift += 7
        if shift > _INTEGER_BITS_MAX:
            raise _coding_error("a number that is too long")


def _decode_string(block: bytes, at: int) -> tuple[bytes, int]:
    is_encoded = block[at] & 0x80
    size, at = _decode_integer(block, at, 0x7F)
    stop = at + size
    if stop > len(block):
        raise _coding_error("half a string")
    data = block[at:stop]
    return (decode_huffman(data) if is_encoded else data), stop

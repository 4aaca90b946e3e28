from __future__ import annotations

import zlib
from array import array

from hypothesis import given
from hypothesis import strategies as st

from escrowmq.codec.offset_list import decode_offset_list, encode_offset_list

NUMBERS = st.lists(st.integers(-(1 << 63), (1 << 63) - 1), max_size=5)


@given(NUMBERS, NUMBERS)
def test_a_list_is_read_as_written(numbers: list[int], offsets: list[int]) -> None:
    data = encode_offset_list(b"MARK", numbers, offsets)
    assert decode_offset_list(b"MARK", len(numbers), data) == (
        array("q", numbers),
        array("q", offsets),
    )
    assert decode_offset_list(b"KRAM", len(numbers), data) is None
    assert decode_offset_list(b"MARK", len(numbers) + len(offsets) + 1, data) is None


def test_the_bytes_are_big_endian_behind_mark_and_checksum() -> None:
    body = bytes.fromhex("0000000000000001" + "0000000000000102")
    found = encode_offset_list(b"MARK", [1], [258])
    assert found == b"MARK" + zlib.crc32(body).to_bytes(4, "big") + body

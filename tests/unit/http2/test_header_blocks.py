"""Header blocks, judged by the hpack package's own encoder and decoder."""

from __future__ import annotations

import random

import pytest
from hpack import Decoder, Encoder, HPACKError
from hypothesis import given
from hypothesis import strategies as st

from escrowmq.http2.frames import ConnectionFault, ErrorCode
from escrowmq.http2.header_blocks import HeaderBlockDecoder, decode_huffman
from tests.harness.examples import seeds

FIELDS = st.lists(
    st.tuples(st.binary(min_size=1, max_size=40), st.binary(max_size=200)), max_size=9
)


@given(st.lists(st.tuples(FIELDS, st.booleans(), st.sampled_from((None, 0, 100, 4096)))))
def test_blocks_of_an_encoder_are_read_in_their_order(
    blocks: list[tuple[list[tuple[bytes, bytes]], bool, int | None]],
) -> None:
    encoder, reader = Encoder(), HeaderBlockDecoder(list_size_max=1 << 20)
    for fields, is_huffman, table_size in blocks:
        if table_size is not None:
            encoder.header_table_size = table_size
        assert reader.decode_block(encoder.encode(fields, huffman=is_huffman)) == fields


@pytest.mark.parametrize("seed", seeds(300))
def test_odd_blocks_are_judged_as_by_the_package(seed: int) -> None:
    chance = random.Random(seed)
    reader, decoder = HeaderBlockDecoder(list_size_max=4096), Decoder(4096)
    encoder = Encoder()
    for _ in range(20):
        block = bytearray(encoder.encode([(b"name", chance.randbytes(9)), (b"te", b"trailers")]))
        block += encoder.encode([(b":status", b"404"), (b"x" * 200, b"y")])
        if chance.random() < 0.5:
            block[chance.randrange(len(block))] = chance.randrange(256)
        try:
            expected = [tuple(field) for field in decoder.decode(bytes(block), raw=True)]
        except HPACKError:
            with pytest.raises(ConnectionFault):
                reader.decode_block(bytes(block))
            return
        assert reader.decode_block(bytes(block)) == expected


@pytest.mark.parametrize(
    ("block", "text"),
    [
        (b"\x80", "field 0, which no table has"),
        (b"\xbe", "field 62, which no table has"),
        (b"\x82\x20", "a new size of the table behind a field"),
        (b"\x3f\xe2\x1f", "a table of 4097 bytes"),
        (b"\x20\x21\x22\x82", r"3 new sizes of the table \(2 allowed\)"),
        (b"\xff\xff\xff\xff\xff\xff\x01", "a number that is too long"),
        (b"\x40", "half a field"),
        (b"\x00\x05abc", "half a string"),
        (b"\x00\x81\xfe\x00", "half a Huffman code"),
        (b"\x00\x84\xff\xff\xff\xff\x00", "what is no Huffman code"),
    ],
)
def test_broken_block_says_what_is_wrong(block: bytes, text: str) -> None:
    with pytest.raises(ConnectionFault, match=text) as caught:
        HeaderBlockDecoder(list_size_max=4096).decode_block(block)
    assert caught.value.code is ErrorCode.COMPRESSION_ERROR


def test_small_block_cannot_become_a_large_list() -> None:
    reader = HeaderBlockDecoder(list_size_max=16_384)
    reader.decode_block(b"\x40\x01x\x7f\x81\x17" + b"y" * 3072)
    with pytest.raises(ConnectionFault, match="more than 16384 bytes") as caught:
        reader.decode_block(b"\xbe" * 100)
    assert caught.value.code is ErrorCode.ENHANCE_YOUR_CALM


def test_nothing_is_an_encoded_string_of_nothing() -> None:
    assert decode_huffman(b"") == b""

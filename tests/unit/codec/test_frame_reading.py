"""Frames that are read one at a time, so that whoever reads may stop between them."""

from __future__ import annotations

from escrowmq.codec.command import encode_request
from escrowmq.codec.frame import FrameReader

ONE, TWO = encode_request(10, 1, body=b"one"), encode_request(10, 2)


def test_what_is_put_back_comes_first_when_more_is_taken() -> None:
    reader = FrameReader()
    data = reader.bytes_to_read(ONE + TWO[:5])
    found = reader.next_command(data, 0)
    assert found is not None
    command, at = found
    assert (command.opaque, command.body, at) == (1, b"one", len(ONE))
    reader.put_back(data, at)
    assert reader.has_put_back
    assert not reader.is_partial
    data = reader.bytes_to_read(TWO[5:])
    assert not reader.has_put_back
    found = reader.next_command(data, 0)
    assert found is not None
    assert found[0].opaque == 2


def test_frame_that_is_not_whole_is_held_until_it_is() -> None:
    reader = FrameReader()
    assert reader.next_command(reader.bytes_to_read(ONE[:9]), 0) is None
    assert reader.is_partial
    assert reader.bytes_to_read(ONE[9:12]) == b""
    found = reader.next_command(reader.bytes_to_read(ONE[12:]), 0)
    assert found is not None
    assert found[0].body == b"one"
    assert not reader.is_partial


def test_nothing_is_read_behind_what_is_broken() -> None:
    reader = FrameReader()
    data = reader.bytes_to_read(ONE + bytes(12) + TWO)
    found = reader.next_command(data, 0)
    assert found is not None
    assert reader.next_command(data, found[1]) is None
    assert reader.broken is not None
    assert reader.bytes_to_read(TWO) == b""

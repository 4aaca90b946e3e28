from __future__ import annotations

import pytest

from escrowmq.http2 import frames
from escrowmq.http2.frames import ConnectionFault, ErrorCode, FrameKind, Http2Setting


def test_front_of_a_frame_is_nine_bytes() -> None:
    assert (
        frames.encode_frame(FrameKind.PING, b"12345678", flags=1)
        == b"\0\0\x08\x06\x01\0\0\0\0" + b"12345678"
    )
    assert frames.encode_reset(5, ErrorCode.CANCEL) == b"\0\0\x04\x03\0\0\0\0\x05\0\0\0\x08"
    assert frames.encode_window_update(0, 9) == b"\0\0\x04\x08\0\0\0\0\0\0\0\0\x09"


def test_goaway_cuts_its_text() -> None:
    data = frames.encode_goaway(7, ErrorCode.PROTOCOL_ERROR, "é" * 900)
    assert data[9:17] == bytes((0, 0, 0, 7, 0, 0, 0, 1))
    assert data[17:] == b"?" * 200


def test_settings_are_read_as_they_were_written() -> None:
    values = {Http2Setting.ENABLE_PUSH: 1, Http2Setting.MAX_FRAME_SIZE: 16_777_215}
    assert dict(frames.decode_settings(frames.encode_settings(values)[9:])) == values
    assert list(frames.decode_settings(b"\0\x63\xff\xff\xff\xff")) == [(99, 0xFFFFFFFF)]


def test_frame_size_has_a_top() -> None:
    with pytest.raises(ConnectionFault, match="MAX_FRAME_SIZE is 16777216"):
        list(
            frames.decode_settings(
                frames.encode_settings({Http2Setting.MAX_FRAME_SIZE: 1 << 24})[9:]
            )
        )


def test_padding_may_be_all_that_there_is() -> None:
    assert frames.remove_padding(b"\x02\0\0") == b""
    assert frames.remove_padding(b"\0abc") == b"abc"

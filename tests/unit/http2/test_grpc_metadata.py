from __future__ import annotations

from urllib.parse import unquote

import pytest
from hpack import Decoder
from hypothesis import given
from hypothesis import strategies as st

from escrowmq.http2 import grpc_metadata as meta
from escrowmq.http2.grpc_metadata import GrpcStatus


def fields(block: bytes) -> dict[bytes, bytes]:
    return dict(Decoder().decode(block, raw=True))


@pytest.mark.parametrize(
    ("text", "expected_ms"),
    [
        (b"3S", 3_000),
        (b"1H", 3_600_000),
        (b"2M", 120_000),
        (b"2999m", 2_999),
        (b"2500u", 2),
        (b"99999999n", 99),
        (b"0n", 1),
    ],
)
def test_timeout_is_told_in_ms(text: bytes, expected_ms: int) -> None:
    assert meta.parse_timeout(text) == expected_ms


@pytest.mark.parametrize("text", [b"", b"3", b"S", b"3s", b"-3S", b"123456789m", b"3S\n"])
def test_timeout_that_cannot_be_read_says_what_could(text: bytes) -> None:
    with pytest.raises(ValueError, match="up to 8 digits and one of HMSmun"):
        meta.parse_timeout(text)


@given(st.text())
def test_message_is_printable_and_comes_back(text: str) -> None:
    encoded = meta.percent_encode(text)
    assert all(0x20 <= byte <= 0x7E for byte in encoded)
    assert unquote(encoded.decode()) == text.encode("utf-8", "replace").decode()


def test_trailers_say_status_and_text() -> None:
    assert fields(meta.encode_trailers(GrpcStatus.OK)) == {b"grpc-status": b"0"}
    assert fields(meta.encode_trailers(GrpcStatus.INTERNAL)) == {b"grpc-status": b"13"}
    assert fields(meta.encode_trailers(GrpcStatus.UNAVAILABLE, "100% gone")) == {
        b"grpc-status": b"14",
        b"grpc-message": b"100%25 gone",
    }
    assert fields(meta.encode_trailers(GrpcStatus.OK, "x"))[b"grpc-message"] == b"x"


def test_answers_to_those_who_do_not_speak_grpc() -> None:
    assert fields(meta.WRONG_TYPE) == {b":status": b"415"}
    assert fields(meta.NOT_GRPC_ANSWER) == {b":status": b"405", b"allow": b"POST"}

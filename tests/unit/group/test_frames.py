from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from escrowmq.errors import RemoteProtocolError
from escrowmq.group.frames import (
    HANDSHAKE_SIZE_MAX,
    FrameReader,
    GroupFrameKind,
    Hello,
    LogPart,
    ReportFrame,
    TableFrame,
    compute_proof,
    decode_log,
    decode_report,
    decode_struct,
    decode_table,
    encode_frame,
    encode_log_head,
    encode_report,
    encode_table,
    is_valid_proof,
)


@given(st.lists(st.binary(max_size=50), max_size=10), st.randoms(use_true_random=False))
def test_frames_are_the_same_however_they_are_cut(contents: list[bytes], chance: object) -> None:
    data = b"".join(encode_frame(GroupFrameKind.LOG, content) for content in contents)
    reader, at = FrameReader(), 0
    found: list[tuple[GroupFrameKind, bytes]] = []
    while at < len(data):
        step = chance.randint(1, 20)  # type: ignore[attr-defined]
        found += reader.read_frames(data[at : at + step])
        at += step
    assert found == [(GroupFrameKind.LOG, content) for content in contents]


def test_each_content_is_read_as_it_was_written() -> None:
    head = encode_log_head(7, 5, 1, 3)
    [(kind, content)] = FrameReader().read_frames(head + b"abc")
    assert (kind, decode_log(content)) == (GroupFrameKind.LOG, LogPart(7, 5, 1, b"abc"))
    [(kind, content)] = FrameReader().read_frames(encode_table("config/ü.json", b"{}"))
    assert (kind, decode_table(content)) == (
        GroupFrameKind.TABLE,
        TableFrame("config/ü.json", b"{}"),
    )
    [(kind, content)] = FrameReader().read_frames(encode_report(9, 2))
    assert (kind, decode_report(content)) == (GroupFrameKind.REPORT, ReportFrame(9, 2))


@pytest.mark.parametrize(
    "data",
    [
        b"\0\0\0\0",
        b"\0\0\0\1\x63",
        (HANDSHAKE_SIZE_MAX + 1).to_bytes(4, "big"),
        b"GET / HTTP/1.1\r\n",
    ],
)
def test_strangers_bytes_are_refused_at_once(data: bytes) -> None:
    with pytest.raises(RemoteProtocolError):
        list(FrameReader().read_frames(data))


@pytest.mark.parametrize("content", [b"", b"\0", b"\0\5ab", b"\0\2\xff\xffx"])
def test_what_is_no_table_is_refused(content: bytes) -> None:
    if content == b"\0\5ab":
        assert decode_table(content).path == "ab"  # cut: its path is no table that is copied
        return
    with pytest.raises(RemoteProtocolError):
        decode_table(content)


@pytest.mark.parametrize("content", [b"", b"{}", b"\xff", b"[1]"])
def test_what_is_no_hello_is_refused(content: bytes) -> None:
    with pytest.raises(RemoteProtocolError, match="invalid hello"):
        decode_struct(Hello, content)


def test_a_proof_is_for_one_secret_role_nonce_and_content() -> None:
    proof = compute_proof(b"s", "copy", "n", b"c")
    assert is_valid_proof(b"s", "copy", "n", b"c", proof)
    assert not is_valid_proof(b"t", "copy", "n", b"c", proof)
    assert not is_valid_proof(b"s", "master", "n", b"c", proof)
    assert not is_valid_proof(b"s", "copy", "m", b"c", proof)
    assert not is_valid_proof(b"s", "copy", "n", b"d", proof)
    assert not is_valid_proof(b"s", "copy", "n", b"c", "\xe9")

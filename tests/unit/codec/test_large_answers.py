from __future__ import annotations

import pytest

from escrowmq.base.command import Command
from escrowmq.codec import large_answers
from escrowmq.codec.large_answers import COMPRESSED, compress_body, decompressed_body
from escrowmq.errors import RemoteProtocolError

BODY = b"group " * 1000


def test_a_compressed_answer_is_read_whole() -> None:
    packed = compress_body(BODY)
    assert len(packed) < len(BODY) / 10
    assert decompressed_body(Command(code=0, ext={**COMPRESSED, "more": "1"}, body=packed)) == BODY
    assert decompressed_body(Command(code=0, ext=None, body=packed)) == packed


def test_a_broken_answer_and_one_beyond_the_limit_are_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    packed = compress_body(BODY)
    with pytest.raises(RemoteProtocolError):
        decompressed_body(Command(code=0, ext=dict(COMPRESSED), body=packed[:-9]))
    monkeypatch.setattr(large_answers, "SIZE_MAX", len(BODY) - 1)
    with pytest.raises(RemoteProtocolError):
        decompressed_body(Command(code=0, ext=dict(COMPRESSED), body=packed))

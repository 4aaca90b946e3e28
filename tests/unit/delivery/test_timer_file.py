from __future__ import annotations

import struct

import pytest

from escrowmq.delivery import timer_file
from escrowmq.delivery.timer_file import RocketMQHead, TimerProgress, delivery_key

PROGRESS = TimerProgress(taken=70, border=delivery_key(5_000, 64), oldest=64, read_ms=4_000)
HEAD = timer_file.encode_head(PROGRESS, 6_000, 3)
PARTS = timer_file.encode_both_parts(HEAD, PROGRESS, 9_999)
FILE = timer_file.complete_file(PARTS)


def test_a_file_is_read_as_it_was_written() -> None:
    assert len(FILE) == 4096
    assert timer_file.decode_file(FILE) == (9_999, PROGRESS)
    assert timer_file.decode_head(FILE) == RocketMQHead(4_000, 64, 3)


def test_bytes_of_the_file() -> None:
    assert FILE[:56] == HEAD == struct.pack(">7q", 4_000, 0, 64, 64, 0, 6_000, 3)
    assert FILE[2048:2088] == b"ESCROWMQ" + struct.pack(">4q", 70, 5_000, 64, 9_999)


@pytest.mark.parametrize(
    "data", [None, b"", HEAD, HEAD.ljust(4096, b"\0"), FILE[:2048], b"\1" + FILE[1:], bytes(4096)]
)
def test_a_file_that_another_has_written_or_torn_has_no_progress_of_ours(
    data: bytes | None,
) -> None:
    assert timer_file.decode_file(data) is None


def test_a_head_is_whole_or_none() -> None:
    assert timer_file.decode_head(HEAD[:-1]) is None
    assert timer_file.decode_head(None) is None


def test_an_answer_of_any_length_becomes_a_file() -> None:
    assert len(PARTS) == 100
    assert timer_file.complete_file(HEAD) == HEAD.ljust(4096, b"\0")
    assert len(timer_file.complete_file(bytes(9_999))) == 4096


def test_answers_that_differ_in_their_time_alone_say_the_same() -> None:
    later = timer_file.encode_both_parts(
        timer_file.encode_head(PROGRESS, 7_000, 4), PROGRESS, 9_999
    )
    assert later != PARTS
    assert timer_file.progress_part(later) == timer_file.progress_part(PARTS)
    other = timer_file.encode_both_parts(HEAD, PROGRESS, 10_000)
    assert timer_file.progress_part(other) != timer_file.progress_part(PARTS)

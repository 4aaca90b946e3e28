from __future__ import annotations

from escrowmq.base.limits import FRAME_TIME_MAX_MS
from escrowmq.codec.command import encode_request
from escrowmq.codec.frame import FrameReader, FrameWatch

FRAME = encode_request(10, 1, body=b"body")
STEP_MS = 10_000


def test_frame_that_does_not_end_is_found_however_slowly_it_grows() -> None:
    watch, slow, idle = FrameWatch(), FrameReader(), FrameReader()
    for at in range(FRAME_TIME_MAX_MS // STEP_MS):
        slow.feed(FRAME[at : at + 1])
        assert watch.overdue([(1, slow), (2, idle)], at * STEP_MS) == []
    assert watch.overdue([(1, slow), (2, idle)], FRAME_TIME_MAX_MS) == [1]


def test_frames_that_end_are_no_fault_though_one_is_always_incomplete() -> None:
    watch, reader = FrameWatch(), FrameReader()
    reader.feed(FRAME[:9])
    for at in range(20):
        assert watch.overdue([(1, reader)], at * STEP_MS) == []
        assert len(reader.feed(FRAME[9:] + FRAME[:9])) == 1
    assert reader.is_partial
    assert reader.count == 20


def test_next_connection_is_not_taken_for_the_last() -> None:
    watch, first, second = FrameWatch(), FrameReader(), FrameReader()
    first.feed(b"\0")
    second.feed(b"\0")
    assert watch.overdue([(1, first)], 0) == []
    assert watch.overdue([(1, second)], FRAME_TIME_MAX_MS) == []
    assert watch.overdue([], FRAME_TIME_MAX_MS) == []
    assert watch.overdue([(1, second)], 3 * FRAME_TIME_MAX_MS) == []

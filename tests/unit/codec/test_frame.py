from __future__ import annotations

import struct

from escrowmq.base.command import Command
from escrowmq.base.fixed_limits import (
    BATCH_MESSAGES_MAX,
    FRAME_TIME_MAX_MS,
    HEADER_SIZE_MAX,
    PROPERTIES_SIZE_MAX,
    REPLY_HEADER_SIZE_MAX,
    TOPIC_SIZE_MAX_LONG,
)
from escrowmq.codec.command import encode_reply, encode_request
from escrowmq.codec.frame import FrameReader, FrameTimeouts, PartialFrames

FRAME = encode_request(10, 1, body=b"body")
STEP_MS = 10_000


def test_frame_that_does_not_end_is_found_however_slowly_it_grows() -> None:
    watch, slow, idle = FrameTimeouts(), FrameReader(), FrameReader()
    for at in range(FRAME_TIME_MAX_MS // STEP_MS):
        slow.read_commands(FRAME[at : at + 1])
        assert watch.overdue_peers([(1, slow), (2, idle)], at * STEP_MS) == []
    assert watch.overdue_peers([(1, slow), (2, idle)], FRAME_TIME_MAX_MS) == [1]


def test_frames_that_end_are_no_fault_though_one_is_always_incomplete() -> None:
    watch, reader = FrameTimeouts(), FrameReader()
    reader.read_commands(FRAME[:9])
    for at in range(20):
        assert watch.overdue_peers([(1, reader)], at * STEP_MS) == []
        assert len(reader.read_commands(FRAME[9:] + FRAME[:9])) == 1
    assert reader.is_partial
    assert reader.count == 20


def test_next_connection_is_not_taken_for_the_last() -> None:
    watch, first, second = FrameTimeouts(), FrameReader(), FrameReader()
    first.read_commands(b"\0")
    second.read_commands(b"\0")
    assert watch.overdue_peers([(1, first)], 0) == []
    assert watch.overdue_peers([(1, second)], FRAME_TIME_MAX_MS) == []
    assert watch.overdue_peers([], FRAME_TIME_MAX_MS) == []
    assert watch.overdue_peers([(1, second)], 3 * FRAME_TIME_MAX_MS) == []


def front(size: int, header_size: int) -> bytes:
    return struct.pack(">II", size, header_size)


def test_largest_header_of_a_real_client_passes_and_one_far_below_a_frame_does_not() -> None:
    worst = {"i": "\x01" * PROPERTIES_SIZE_MAX, "b": "t" * TOPIC_SIZE_MAX_LONG}
    (command,) = FrameReader().read_commands(encode_request(310, 1, ext=worst))
    assert command.ext == worst
    reader = FrameReader()
    reader.read_commands(front(HEADER_SIZE_MAX + 5, HEADER_SIZE_MAX + 1))
    assert "262144 of them for the header" in str(reader.broken)


def test_reply_that_names_the_messages_of_the_largest_batch_passes_at_a_client() -> None:
    ids = ",".join(["F" * 56] * BATCH_MESSAGES_MAX)
    frame = encode_reply(Command(code=320, opaque=1), 0, ext={"msgId": ids})
    (reply,) = FrameReader(header_size_max=REPLY_HEADER_SIZE_MAX).read_commands(frame)
    assert reply.ext == {"msgId": ids}
    assert FrameReader().read_commands(frame) == []


def test_half_frames_are_bounded_in_sum_and_the_one_that_began_first_is_given_up() -> None:
    room = PartialFrames(1000)
    first, second, honest = (FrameReader(room) for _ in range(3))
    first.read_commands(front(10_000, 20) + bytes(400))
    second.read_commands(front(10_000, 20) + bytes(400))
    assert honest.read_commands(FRAME[:20]) == []
    second.read_commands(bytes(300))
    assert room.size < 1000
    assert "began first" in str(first.broken)
    assert first.read_commands(bytes(9_000)) == []
    assert len(honest.read_commands(FRAME[20:])) == 1
    assert (second.broken, honest.broken) == (None, None)
    assert FrameTimeouts().overdue_peers([(1, first), (2, second)], 0) == [1]


def test_half_frames_leave_no_trace_when_they_end_or_their_peer_goes() -> None:
    room = PartialFrames(1000)
    whole, gone = FrameReader(room), FrameReader(room)
    for at in range(0, len(FRAME), 7):
        whole.read_commands(FRAME[at : at + 7])
    gone.read_commands(FRAME[:30])
    assert room.size == 30
    gone.release_space()
    assert room.size == 0


def test_stranger_s_frames_are_smaller_until_he_is_let_in() -> None:
    strangers, known = PartialFrames(1000), PartialFrames(1000)
    reader = FrameReader(strangers, frame_size_max=500)
    assert len(reader.read_commands(FRAME + FRAME[:9])) == 1
    reader.lift_stranger_limits(known)
    assert (strangers.size, known.size) == (0, 9)
    assert len(reader.read_commands(FRAME[9:] + encode_request(10, 2, body=bytes(900)))) == 2
    other = FrameReader(strangers, frame_size_max=500)
    other.read_commands(encode_request(10, 2, body=bytes(900)))
    assert "at most 496" in str(other.broken)

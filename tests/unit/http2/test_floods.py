"""Floods of cheap frames end their connection; busy and idle clients keep theirs."""

from __future__ import annotations

import pytest

from escrowmq.http2 import frames
from escrowmq.http2.events import StreamOpened
from escrowmq.http2.frames import ErrorCode, FrameKind
from escrowmq.http2.limits import STREAMS_MAX, WINDOW_UPDATES, Http2Limits

from .wire import Client, goaway

PING = frames.encode_frame(FrameKind.PING, b"12345678")

FLOODS: dict[str, bytes] = {
    "ping": PING,
    "settings": frames.encode_settings({}),
    "priority": frames.encode_frame(FrameKind.PRIORITY, bytes(5), stream_id=1),
    "window": frames.encode_window_update(0, 1),
    "empty data": frames.encode_frame(FrameKind.DATA, stream_id=1),
    "goaway": frames.encode_frame(FrameKind.GOAWAY, bytes(8)),
    "unknown": frames.FRAME_HEADER.pack(77, 0, 0),
    "reset of closed": frames.encode_reset(3, ErrorCode.CANCEL),
}


@pytest.mark.parametrize("name", FLOODS)
def test_flood_ends_the_connection(name: str) -> None:
    client = Client(Http2Limits(overhead_max=50))
    client.write(client.headers(1) + client.headers(3) + frames.encode_reset(3, ErrorCode.CANCEL))
    client.write(FLOODS[name] * (60 * WINDOW_UPDATES if name == "window" else 60))
    assert goaway(client) is ErrorCode.ENHANCE_YOUR_CALM


def test_rapid_reset_ends_the_connection() -> None:
    client = Client(Http2Limits(resets_max=50))
    opened = 0
    for number in range(100):
        stream_id = 2 * number + 1
        events = client.write(
            client.headers(stream_id) + frames.encode_reset(stream_id, ErrorCode.CANCEL)
        )
        opened += sum(isinstance(event, StreamOpened) for event in events)
    assert goaway(client) is ErrorCode.ENHANCE_YOUR_CALM
    assert opened == 51


def test_calls_given_up_when_their_time_is_over_are_no_flood() -> None:
    client = Client(Http2Limits(resets_max=5))
    for first in range(0, 400, 40):
        numbers = [2 * number + 1 for number in range(first, first + 40)]
        client.write(b"".join(client.headers(number) for number in numbers))
        client.now_ms += 1_000
        client.write(b"".join(frames.encode_reset(number, ErrorCode.CANCEL) for number in numbers))
    assert not client.connection.is_over


def test_calls_that_end_by_mistakes_count_as_resets() -> None:
    client = Client(Http2Limits(resets_max=50))
    for number in range(100):
        stream_id = 2 * number + 1
        client.write(client.headers(stream_id) + frames.encode_window_update(stream_id, 0))
    assert goaway(client) is ErrorCode.ENHANCE_YOUR_CALM


def test_continuation_flood_ends_the_connection() -> None:
    client = Client()
    client.write(frames.encode_frame(FrameKind.HEADERS, stream_id=1))
    client.write(frames.encode_frame(FrameKind.CONTINUATION, stream_id=1) * 17)
    assert goaway(client) is ErrorCode.ENHANCE_YOUR_CALM
    client = Client()
    client.write(frames.encode_frame(FrameKind.HEADERS, bytes(16_000), stream_id=1))
    client.write(frames.encode_frame(FrameKind.CONTINUATION, bytes(1_000), stream_id=1))
    assert goaway(client) is ErrorCode.ENHANCE_YOUR_CALM


def test_idle_client_may_ping_for_ever() -> None:
    client = Client(Http2Limits(overhead_max=5))
    for _ in range(10_000):
        client.now_ms += 60_000
        client.write(PING)
        assert [each.kind for each in client.read()] == [FrameKind.PING]


def test_many_waiting_calls_may_have_windows_of_their_own() -> None:
    """grpcio opens the window of each stream further at once, and the connection's with each call
    that it writes."""
    client = Client()
    for number in range(STREAMS_MAX):
        stream_id = 2 * number + 1
        client.write(client.headers(stream_id, is_end=True))
        client.write(frames.encode_window_update(stream_id, 4_000_000))
        client.write(frames.encode_window_update(0, 100) * 2)
    assert not client.connection.is_over


def test_client_that_gets_answers_may_ping_with_each() -> None:
    client = Client(Http2Limits(overhead_max=50))
    for number in range(500):
        stream_id = 2 * number + 1
        client.write(client.headers(stream_id, is_end=True))
        client.connection.send_data(stream_id, data=b"x", trailers=b"\x88")
        client.write(PING + frames.encode_window_update(0, 1) * 2)
    assert not client.connection.is_over

"""What a connection writes, and what waits for room."""

from __future__ import annotations

from escrowmq.http2 import frames
from escrowmq.http2.events import StreamDrained, StreamReset
from escrowmq.http2.frames import ErrorCode, FrameKind, Http2Setting
from escrowmq.http2.limits import Http2Limits

from .wire import Client, Frame

END = b"\0\x01x\x01y"


def payload(found: list[Frame], stream_id: int = 1) -> bytes:
    return b"".join(
        f.payload for f in found if (f.kind, f.stream_id) == (FrameKind.DATA, stream_id)
    )


def asking(limits: Http2Limits | None = None, *, window: int = 100, count: int = 1) -> Client:
    """A client with so many open streams, each with so much room."""
    client = Client(limits, settings={Http2Setting.INITIAL_WINDOW_SIZE: window})
    for number in range(count):
        client.write(client.headers(2 * number + 1, is_end=True))
    return client


def test_small_answer_leaves_at_once() -> None:
    client = asking()
    assert client.connection.send_data(1, headers=b"\x88", data=b"data", trailers=END)
    head, data, end = client.read()
    assert (head.kind, head.flags, head.payload) == (FrameKind.HEADERS, frames.END_HEADERS, b"\x88")
    assert (data.kind, data.flags, data.payload) == (FrameKind.DATA, 0, b"data")
    assert end.flags == frames.END_HEADERS | frames.END_STREAM
    assert client.connection.open_count == 0
    assert not client.connection.is_open(1)


def test_answer_that_does_not_fit_waits_for_room() -> None:
    client = asking()
    body = bytes(range(250))
    assert not client.connection.send_data(1, data=body, trailers=END)
    assert client.connection.unsent_size == 150
    assert not client.connection.is_open(1)
    assert client.connection.send_data(1, data=b"behind the end")
    found = client.read()
    assert client.write(frames.encode_window_update(1, 60)) == []
    found += client.read()
    assert client.write(frames.encode_window_update(1, 1000)) == [StreamDrained(1)]
    found += client.read()
    assert payload(found) == body
    assert found[-1].flags == frames.END_HEADERS | frames.END_STREAM
    assert client.connection.unsent_size == 0
    assert client.write(frames.encode_window_update(1, 5)) == []


def test_order_of_messages_stays_when_some_wait() -> None:
    client = asking()
    assert not client.connection.send_data(1, data=bytes(120))
    assert not client.connection.send_data(1, data=b"b" * 30)
    assert client.connection.is_open(1)
    assert client.write(frames.encode_window_update(1, 1000)) == [StreamDrained(1)]
    assert client.connection.send_data(1, data=b"c", trailers=END)
    assert payload(client.read()) == bytes(120) + b"b" * 30 + b"c"


def test_end_may_wait_behind_data_that_waits() -> None:
    client = asking()
    client.connection.send_data(1, data=bytes(120))
    assert not client.connection.send_data(1, trailers=END)
    client.read()
    client.write(frames.encode_window_update(1, 20))
    assert [each.kind for each in client.read()] == [FrameKind.DATA, FrameKind.HEADERS]


def test_large_data_that_fits_leaves_in_frames() -> None:
    client = asking(window=60_000)
    assert client.connection.send_data(1, data=bytes(40_000), trailers=END)
    assert [len(each.payload) for each in client.read()[:3]] == [16_384, 16_384, 7_232]
    assert client.write(frames.encode_settings({})) == []


def test_window_of_the_connection_is_shared_by_turns() -> None:
    client = asking(window=1 << 20, count=3)
    client.connection.send_data(1, data=bytes(frames.WINDOW_DEFAULT), trailers=END)
    for stream_id in (3, 5):
        client.connection.send_data(stream_id, data=bytes(60_000))
    client.read()
    client.write(frames.encode_window_update(0, 3 * 16_384))
    assert [each.stream_id for each in client.read()] == [3, 5, 3]
    client.write(frames.encode_window_update(0, 1 << 20))
    assert client.connection.unsent_size == 0


def test_smaller_window_makes_room_negative() -> None:
    client = asking(window=100)
    client.connection.send_data(1, data=bytes(80))
    client.write(frames.encode_settings({Http2Setting.INITIAL_WINDOW_SIZE: 10}))
    client.read()
    assert not client.connection.send_data(1, data=b"x" * 5)
    client.write(frames.encode_window_update(1, 70))
    assert client.read() == []
    assert client.write(frames.encode_settings({Http2Setting.INITIAL_WINDOW_SIZE: 15})) == [
        StreamDrained(1)
    ]
    assert payload(client.read()) == b"x" * 5


def test_client_that_never_reads_loses_its_stream() -> None:
    client = asking(Http2Limits(unsent_size_max=1000), count=2)
    assert not client.connection.send_data(1, data=bytes(900))
    assert not client.connection.send_data(3, data=bytes(900))
    (reset,) = [each for each in client.read() if each.kind == FrameKind.RST_STREAM]
    assert reset.stream_id == 3
    assert client.connection.has_more_events
    (event,) = client.write(b"")
    assert not client.connection.has_more_events
    assert isinstance(event, StreamReset)
    assert event.code is ErrorCode.ENHANCE_YOUR_CALM
    assert client.connection.unsent_size == 800


def test_reset_forgets_what_waits() -> None:
    client = asking()
    client.connection.send_data(1, data=bytes(900))
    client.connection.reset_stream(1, ErrorCode.CANCEL)
    client.connection.reset_stream(1, ErrorCode.CANCEL)
    assert client.connection.unsent_size == 0
    assert client.connection.send_data(1, data=b"x")
    assert [each.kind for each in client.read()] == [FrameKind.DATA, FrameKind.RST_STREAM]


def test_answer_before_the_question_is_whole_tells_the_client_to_stop() -> None:
    client = Client()
    client.write(client.headers(1))
    client.connection.send_data(1, headers=b"\x88", trailers=END)
    reset = client.read()[-1]
    assert (reset.kind, reset.payload) == (FrameKind.RST_STREAM, bytes(4))
    assert client.write(client.data(1, b"late", is_end=True)) == []


def test_tiny_windows_earn_nothing() -> None:
    client = asking(Http2Limits(overhead_max=50), window=1)
    client.connection.send_data(1, data=bytes(500))
    client.write(frames.encode_window_update(1, 1) * 60)
    assert client.connection.is_over
    assert client.connection.unsent_size == 0


def test_tiny_windows_of_the_connection_earn_nothing() -> None:
    client = asking(Http2Limits(overhead_max=50), window=100_000)
    client.connection.send_data(1, data=bytes(70_000))
    client.write(frames.encode_window_update(0, 1) * 60)
    assert client.connection.is_over


def test_updates_that_send_small_messages_whole_are_no_flood() -> None:
    client = asking(Http2Limits(overhead_max=50), window=0)
    for _ in range(100):
        client.connection.send_data(1, data=bytes(500))
    client.write(frames.encode_window_update(1, 50_000))
    assert not client.connection.is_over
    assert client.connection.unsent_size == 0


def test_large_pieces_earn_room_for_updates() -> None:
    client = asking(Http2Limits(overhead_max=50), window=1)
    client.connection.send_data(1, data=bytes(200_000))
    for _ in range(190):
        client.write(frames.encode_window_update(1, 1_024) + frames.encode_window_update(0, 1_024))
    assert not client.connection.is_over


def test_long_header_block_goes_out_in_continuations() -> None:
    client = asking()
    client.connection.send_data(1, headers=b"\x88" * 40_000, trailers=b"\x88" * 16_385)
    assert [(each.kind, each.flags) for each in client.read()] == [
        (FrameKind.HEADERS, 0),
        (FrameKind.CONTINUATION, 0),
        (FrameKind.CONTINUATION, frames.END_HEADERS),
        (FrameKind.HEADERS, frames.END_STREAM),
        (FrameKind.CONTINUATION, frames.END_HEADERS),
    ]

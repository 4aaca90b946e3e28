"""The server's end of a connection, fed by hand."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from escrowmq.http2 import frames
from escrowmq.http2.connection import Http2Connection
from escrowmq.http2.events import StreamData, StreamOpened, StreamReset
from escrowmq.http2.frames import ErrorCode, FrameKind, Http2Setting
from escrowmq.http2.limits import Http2Limits

from .wire import REQUEST, Client, Fields, goaway, read_frames

PING = frames.encode_frame(FrameKind.PING, b"12345678")


def rst(client: Client, stream_id: int = 1) -> ErrorCode:
    """Why the stream was reset; the connection goes on."""
    (found,) = [each for each in client.read() if each.kind == FrameKind.RST_STREAM]
    assert found.stream_id == stream_id
    assert not client.connection.is_over
    return ErrorCode(int.from_bytes(found.payload, "big"))


def test_greeting_tells_the_limits_and_opens_the_window() -> None:
    first, second = read_frames(b"".join(Http2Connection().take_bytes()))
    limits = Http2Limits()
    assert first.kind == FrameKind.SETTINGS
    assert dict(frames.decode_settings(first.payload)) == {
        Http2Setting.MAX_CONCURRENT_STREAMS: limits.streams_max,
        Http2Setting.INITIAL_WINDOW_SIZE: limits.stream_window,
        Http2Setting.MAX_HEADER_LIST_SIZE: limits.header_list_size_max,
    }
    assert second.kind == FrameKind.WINDOW_UPDATE
    small = Http2Connection(Http2Limits(connection_window=frames.WINDOW_DEFAULT))
    assert len(read_frames(b"".join(small.take_bytes()))) == 1


def test_settings_are_acknowledged() -> None:
    client = Client()
    client.write(frames.encode_settings({Http2Setting.ENABLE_PUSH: 0}))
    (ack,) = client.read()
    assert (ack.kind, ack.flags, ack.payload) == (FrameKind.SETTINGS, frames.ACK, b"")
    assert client.write(frames.encode_frame(FrameKind.SETTINGS, flags=frames.ACK)) == []
    assert client.read() == []


def test_request_with_padding_priority_and_continuation_is_one_event() -> None:
    client = Client()
    block = client.encoder.encode(REQUEST)
    payload = b"\x02" + b"\0\0\0\0\x0f" + block[:7] + b"\0\0"
    flags = frames.PADDED | frames.PRIORITY | frames.END_STREAM
    last = frames.END_HEADERS
    (event,) = client.write(
        frames.encode_frame(FrameKind.HEADERS, payload, flags=flags, stream_id=1)
        + frames.encode_frame(FrameKind.CONTINUATION, block[7:9], stream_id=1)
        + frames.encode_frame(FrameKind.CONTINUATION, block[9:], flags=last, stream_id=1)
    )
    assert isinstance(event, StreamOpened)
    assert event.is_end
    assert event.request.path == "/a.Service/Method"
    assert event.request.metadata == {name.decode(): value.decode() for name, value in REQUEST[4:]}


def test_padding_of_data_is_cut_off_and_counts_for_the_windows() -> None:
    client = Client(Http2Limits(stream_window=600, connection_window=100_000))
    client.write(client.headers(1))
    padded = frames.encode_frame(
        FrameKind.DATA, b"\xff" + b"data" + bytes(255), flags=frames.PADDED, stream_id=1
    )
    assert client.write(padded) == [StreamData(1, b"data", is_end=False)]
    assert client.read() == []
    client.write(padded)
    (update,) = client.read()
    assert update == (FrameKind.WINDOW_UPDATE, 0, 1, (2 * 260).to_bytes(4, "big"))


def test_window_of_the_connection_is_given_back_by_halves() -> None:
    client = Client(Http2Limits(connection_window=80_000))
    for stream_id in (1, 3):
        client.write(client.headers(stream_id))
    for stream_id in (1, 3, 1):
        client.write(client.data(stream_id, bytes(15_000)))
    (update,) = client.read()
    assert update == (FrameKind.WINDOW_UPDATE, 0, 0, (45_000).to_bytes(4, "big"))


def test_trailers_of_a_client_end_its_half() -> None:
    client = Client()
    client.write(client.headers(1))
    assert client.write(client.headers(1, [(b"x", b"y")], is_end=True)) == [
        StreamData(1, b"", True)
    ]


def test_ping_is_answered() -> None:
    client = Client()
    client.write(PING)
    assert client.read() == [(FrameKind.PING, frames.ACK, 0, b"12345678")]
    client.write(frames.encode_frame(FrameKind.PING, b"not ours", flags=frames.ACK))
    assert client.read() == []


@pytest.mark.parametrize("kind", [10, 200])
def test_unknown_kinds_are_skipped(kind: int) -> None:
    client = Client()
    assert client.write(frames.FRAME_HEADER.pack(3 << 8 | kind, 9, 7) + b"abc") == []
    assert client.read() == []


def test_priority_and_goaway_of_a_client_change_nothing() -> None:
    client = Client()
    client.write(frames.encode_frame(FrameKind.PRIORITY, bytes(5), stream_id=9))
    client.write(frames.encode_frame(FrameKind.GOAWAY, bytes(8)))
    assert client.read() == []
    assert not client.connection.is_over


def test_reset_of_a_client_is_told_and_frees_the_stream() -> None:
    client = Client()
    client.write(client.headers(1))
    (event,) = client.write(frames.encode_reset(1, ErrorCode.CANCEL))
    assert isinstance(event, StreamReset)
    assert event.code is ErrorCode.CANCEL
    assert client.connection.open_count == 0
    assert (
        client.write(frames.encode_reset(1, ErrorCode.CANCEL)) == []
    )  # again: it crossed with the end
    client.write(client.headers(3))
    (event,) = client.write(
        frames.encode_frame(FrameKind.RST_STREAM, (999).to_bytes(4, "big"), stream_id=3)
    )
    assert isinstance(event, StreamReset)
    assert event.code is ErrorCode.INTERNAL_ERROR


HELLO = frames.PREFACE + frames.encode_settings({})

PROTOCOL = ErrorCode.PROTOCOL_ERROR
BREACHES: dict[str, tuple[bytes, ErrorCode]] = {
    "large frame": (frames.FRAME_HEADER.pack(16_385 << 8, 0, 1), ErrorCode.FRAME_SIZE_ERROR),
    "settings in parts": (
        frames.encode_frame(FrameKind.SETTINGS, bytes(5)),
        ErrorCode.FRAME_SIZE_ERROR,
    ),
    "settings of a stream": (frames.encode_frame(FrameKind.SETTINGS, stream_id=1), PROTOCOL),
    "ack with payload": (
        frames.encode_frame(FrameKind.SETTINGS, bytes(6), flags=frames.ACK),
        ErrorCode.FRAME_SIZE_ERROR,
    ),
    "push of 2": (frames.encode_settings({Http2Setting.ENABLE_PUSH: 2}), PROTOCOL),
    "large window": (
        frames.encode_settings({Http2Setting.INITIAL_WINDOW_SIZE: 1 << 31}),
        ErrorCode.FLOW_CONTROL_ERROR,
    ),
    "small frames": (frames.encode_settings({Http2Setting.MAX_FRAME_SIZE: 16_383}), PROTOCOL),
    "data of an idle stream": (frames.encode_frame(FrameKind.DATA, b"x", stream_id=1), PROTOCOL),
    "data of the connection": (frames.encode_frame(FrameKind.DATA, b"x"), PROTOCOL),
    "reset of an idle stream": (frames.encode_reset(1, ErrorCode.CANCEL), PROTOCOL),
    "short reset": (
        frames.encode_frame(FrameKind.RST_STREAM, bytes(3), stream_id=1),
        ErrorCode.FRAME_SIZE_ERROR,
    ),
    "window of an idle stream": (frames.encode_window_update(1, 1), PROTOCOL),
    "window by nothing": (frames.encode_window_update(0, 0), PROTOCOL),
    "window too far": (frames.encode_window_update(0, (1 << 31) - 1), ErrorCode.FLOW_CONTROL_ERROR),
    "ping of a stream": (frames.encode_frame(FrameKind.PING, bytes(8), stream_id=1), PROTOCOL),
    "short ping": (frames.encode_frame(FrameKind.PING, bytes(7)), ErrorCode.FRAME_SIZE_ERROR),
    "goaway of a stream": (frames.encode_frame(FrameKind.GOAWAY, bytes(8), stream_id=1), PROTOCOL),
    "short goaway": (frames.encode_frame(FrameKind.GOAWAY, bytes(7)), ErrorCode.FRAME_SIZE_ERROR),
    "priority of the connection": (frames.encode_frame(FrameKind.PRIORITY, bytes(5)), PROTOCOL),
    "push": (frames.encode_frame(FrameKind.PUSH_PROMISE, bytes(4), stream_id=1), PROTOCOL),
    "continuation of nothing": (frames.encode_frame(FrameKind.CONTINUATION, stream_id=1), PROTOCOL),
    "even stream": (frames.encode_headers(2, b"", is_end=True), PROTOCOL),
    "priority cut short": (
        frames.encode_frame(FrameKind.HEADERS, bytes(4), flags=frames.PRIORITY, stream_id=1),
        ErrorCode.FRAME_SIZE_ERROR,
    ),
    "padding without its size": (
        frames.encode_frame(FrameKind.HEADERS, flags=frames.PADDED, stream_id=1),
        ErrorCode.FRAME_SIZE_ERROR,
    ),
    "more padding than frame": (
        frames.encode_frame(FrameKind.HEADERS, b"\x05abc", flags=frames.PADDED, stream_id=1),
        PROTOCOL,
    ),
    "frame in a block": (frames.encode_frame(FrameKind.HEADERS, stream_id=1) + PING, PROTOCOL),
    "block of another stream": (
        frames.encode_frame(FrameKind.HEADERS, stream_id=1)
        + frames.encode_frame(FrameKind.CONTINUATION, stream_id=3),
        PROTOCOL,
    ),
    "headers that cannot be": (
        frames.encode_headers(1, b"\xff\xff\xff", is_end=True),
        ErrorCode.COMPRESSION_ERROR,
    ),
}


@pytest.mark.parametrize("name", BREACHES)
def test_breach_ends_the_connection_with_its_reason(name: str) -> None:
    client = Client()
    data, code = BREACHES[name]
    assert client.write(data) == []
    assert goaway(client) is code
    assert client.write(PING) == []
    assert client.read() == []


@pytest.mark.parametrize(
    "hello",
    [b"GET / HTTP/1.1\r\n\r\n", frames.PREFACE + PING, frames.PREFACE
     + frames.encode_frame(FrameKind.SETTINGS, flags=frames.ACK)],
)  # fmt: skip
def test_who_does_not_greet_is_no_client(hello: bytes) -> None:
    connection = Http2Connection()
    assert connection.receive(hello, 0) == []
    last = read_frames(b"".join(connection.take_bytes()))[-1]
    assert last.kind == FrameKind.GOAWAY
    assert connection.is_over


def test_frame_of_a_closed_stream_ends_the_connection() -> None:
    for late in ("data", "headers"):
        client = Client()
        client.write(client.headers(1, is_end=True))
        client.connection.send_data(1, trailers=b"\x88")
        client.read()
        client.write(client.data(1, b"x") if late == "data" else client.headers(1))
        assert goaway(client) is ErrorCode.STREAM_CLOSED


def test_frames_that_cross_with_a_reset_are_skipped() -> None:
    client = Client()
    client.write(client.headers(1))
    client.connection.reset_stream(1, ErrorCode.CANCEL)
    assert rst(client) is ErrorCode.CANCEL
    client.write(client.data(1, b"x") + frames.encode_window_update(1, 9))
    client.write(client.headers(1, [(b"x", b"y")], is_end=True))
    assert client.read() == []
    assert len(client.write(client.headers(3))) == 1


def test_all_calls_that_a_proved_account_may_have_open_can_be_reset_at_once() -> None:
    client = Client(Http2Limits(streams_max=2))
    client.connection.set_limits(Http2Limits(streams_max=5))
    streams = range(1, 11, 2)
    for stream_id in streams:
        client.write(client.headers(stream_id))
    for stream_id in streams:
        client.connection.reset_stream(stream_id, ErrorCode.CANCEL)
    client.write(b"".join(client.data(stream_id, b"x") for stream_id in streams))
    assert not client.connection.is_over
    assert len(client.write(client.headers(11))) == 1


def and_fields(*more: tuple[bytes, bytes]) -> Fields:
    return [*REQUEST, *more]


MISTAKES: dict[str, Callable[[Client], bytes]] = {
    "upper case": lambda c: c.headers(1, and_fields((b"X", b"y"))),
    "connection": lambda c: c.headers(1, and_fields((b"connection", b"close"))),
    "content-length": lambda c: c.headers(1, and_fields((b"content-length", b"x"))),
    "less than content-length": lambda c: c.headers(
        1, and_fields((b"content-length", b"2")), is_end=True
    ),
    "no path": lambda c: c.headers(1, [each for each in REQUEST if each[0] != b":path"]),
    "headers in the middle": lambda c: c.headers(1) + c.headers(1, [(b"x", b"y")]),
    "odd trailers": lambda c: c.headers(1) + c.headers(1, [(b"X", b"y")], is_end=True),
    "more than content-length": lambda c: (
        c.headers(1, and_fields((b"content-length", b"2"))) + c.data(1, b"abc")
    ),
    "trailers before content-length": lambda c: (
        c.headers(1, and_fields((b"content-length", b"2"))) + c.headers(1, [], is_end=True)
    ),
    "window by nothing": lambda c: c.headers(1) + frames.encode_window_update(1, 0),
}
"""What is wrong with stream 1 alone."""


@pytest.mark.parametrize("name", MISTAKES)
def test_mistake_of_a_stream_ends_that_stream_alone(name: str) -> None:
    client = Client()
    events = client.write(MISTAKES[name](client))
    assert rst(client) is PROTOCOL
    if events:
        assert isinstance(events[0], StreamOpened)
        assert isinstance(events[-1], StreamReset)
    assert client.connection.open_count == 0


def test_content_length_that_fits_is_taken() -> None:
    client = Client()
    client.write(client.headers(1, [*REQUEST, (b"content-length", b"3")]))
    assert len(client.write(client.data(1, b"ab") + client.data(1, b"c", is_end=True))) == 2
    client.write(client.headers(3, [*REQUEST, (b"content-length", b"0")], is_end=True))
    assert client.read() == []


@pytest.mark.parametrize("late", ["data", "headers"])
def test_what_comes_behind_the_end_is_an_error_of_the_stream(late: str) -> None:
    client = Client()
    client.write(client.headers(1, is_end=True))
    client.write(client.data(1, b"x") if late == "data" else client.headers(1, is_end=True))
    assert rst(client) is ErrorCode.STREAM_CLOSED


def test_more_than_the_windows_is_refused() -> None:
    client = Client(Http2Limits(stream_window=10))
    client.write(client.headers(1))
    client.write(client.data(1, bytes(11)))
    assert rst(client) is ErrorCode.FLOW_CONTROL_ERROR
    client = Client(Http2Limits(connection_window=10, stream_window=100))
    client.write(client.headers(1) + client.data(1, bytes(11)))
    assert goaway(client) is ErrorCode.FLOW_CONTROL_ERROR


def test_window_that_is_opened_too_far_is_refused() -> None:
    client = Client()
    client.write(client.headers(1) + frames.encode_window_update(1, (1 << 31) - 1))
    assert rst(client) is ErrorCode.FLOW_CONTROL_ERROR
    client.write(client.headers(3) + frames.encode_window_update(3, 1 << 20))
    client.write(frames.encode_settings({Http2Setting.INITIAL_WINDOW_SIZE: (1 << 31) - 1}))
    assert goaway(client) is ErrorCode.FLOW_CONTROL_ERROR


def test_priority_of_a_wrong_size_is_an_error_of_the_stream() -> None:
    client = Client()
    client.write(client.headers(1) + frames.encode_frame(FrameKind.PRIORITY, bytes(4), stream_id=1))
    assert rst(client) is ErrorCode.FRAME_SIZE_ERROR


def test_stream_over_the_limit_is_refused_and_may_be_tried_again() -> None:
    client = Client(Http2Limits(streams_max=1))
    client.write(client.headers(1))
    assert client.write(client.headers(3)) == []
    assert rst(client, 3) is ErrorCode.REFUSED_STREAM
    client.write(frames.encode_reset(1, ErrorCode.CANCEL))
    assert len(client.write(client.headers(5))) == 1


def test_shutdown_serves_what_is_open_and_what_crossed_with_it() -> None:
    client = Client()
    client.write(client.headers(1, is_end=True))
    client.connection.shut_down()
    client.connection.shut_down()
    first, ping = client.read()
    assert first.payload[:4] == frames.U32.pack((1 << 31) - 1)
    assert len(client.write(client.headers(3, is_end=True))) == 1
    client.write(frames.encode_frame(FrameKind.PING, ping.payload, flags=frames.ACK))
    (second,) = client.read()
    assert second.payload[:4] == frames.U32.pack(3)
    assert client.write(client.headers(5)) == []
    assert rst(client, 5) is ErrorCode.REFUSED_STREAM
    client.connection.send_data(1, trailers=b"\x88")
    assert not client.connection.is_over
    client.connection.send_data(3, trailers=b"\x88")
    assert client.connection.is_over
    assert client.connection.end_reason == "shut down"


def test_shutdown_of_an_idle_connection_is_over_at_once() -> None:
    client = Client()
    client.connection.shut_down()
    client.write(frames.encode_frame(FrameKind.PING, client.read()[1].payload, flags=frames.ACK))
    assert client.connection.is_over
    client.connection.shut_down()
    assert [each.kind for each in client.read()] == [FrameKind.GOAWAY]


def script() -> bytes:
    """Some of everything that a client may write."""
    client = Client()
    out = [HELLO, client.headers(1), client.data(1, b"abc"), PING]
    out += [client.headers(3, [*REQUEST, (b"x", b"y" * 50)], is_end=True)]
    out += [client.data(1, bytes(3000), is_end=True), frames.encode_reset(3, ErrorCode.CANCEL)]
    block = client.encoder.encode(REQUEST)
    out += [frames.encode_frame(FrameKind.HEADERS, block[:2], flags=frames.END_STREAM, stream_id=5)]
    last = frames.END_HEADERS
    out += [frames.encode_frame(FrameKind.CONTINUATION, block[2:], flags=last, stream_id=5)]
    out += [client.headers(7), frames.encode_window_update(7, 0)]
    out += [frames.encode_frame(FrameKind.PING, b"short")]
    return b"".join(out)


@given(st.lists(st.integers(0, len(script())), max_size=40))
def test_any_split_of_the_bytes_tells_the_same(cuts: list[int]) -> None:
    data = script()
    whole, split = Http2Connection(), Http2Connection()
    events = whole.receive(data, 0)
    assert len(events) == 8
    edges = [0, *sorted(cuts), len(data)]
    found = [
        event
        for start, stop in itertools.pairwise(edges)
        for event in split.receive(data[start:stop], 0)
    ]
    assert found == events
    assert b"".join(split.take_bytes()) == b"".join(whole.take_bytes())
    assert whole.is_over

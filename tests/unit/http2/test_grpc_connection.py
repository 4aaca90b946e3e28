"""gRPC calls over a connection."""

from __future__ import annotations

import struct

import pytest

from escrowmq.base.fixed_limits import LONG_MAX
from escrowmq.http2 import frames
from escrowmq.http2.frames import ErrorCode, FrameKind
from escrowmq.http2.grpc_connection import (
    CallCancelled,
    CallDrained,
    CallEvent,
    CallMessage,
    CallStarted,
    ClientDone,
    GrpcConnection,
    WholeCall,
)
from escrowmq.http2.grpc_metadata import NO_DEADLINE, GrpcStatus
from escrowmq.http2.limits import Http2Limits

from .wire import REQUEST, Client, Fields


def framed(data: bytes, compressed: int = 0) -> bytes:
    return struct.pack(">BI", compressed, len(data)) + data


class Caller(Client):
    """A client of gRPC."""

    def __init__(self, limits: Http2Limits | None = None) -> None:
        super().__init__(limits, is_grpc=True)
        self.calls.receive(frames.PREFACE + frames.encode_settings({}), 0)
        self.read()

    def hear(self, data: bytes) -> list[CallEvent]:
        return self.calls.receive(data, self.now_ms)

    def call(self, number: int = 1, *more: tuple[bytes, bytes]) -> list[CallEvent]:
        return self.hear(self.headers(number, [*REQUEST, *more]))

    def ended(self, number: int = 1) -> dict[str, str]:
        """The fields that ended a call, and those that began it."""
        fields: dict[str, str] = {}
        is_ended = False
        for frame in self.read():
            if frame.stream_id == number and frame.kind == FrameKind.HEADERS:
                fields |= self.fields(frame)
                is_ended |= bool(frame.flags & frames.END_STREAM)
        assert is_ended
        return fields


def test_unary_call() -> None:
    caller = Caller()
    events = caller.call(1, (b"x-mq-client-id", b"me"), (b"grpc-timeout", b"3S"))
    events += caller.hear(caller.data(1, framed(b"hello"), is_end=True))
    called, *rest = events
    assert isinstance(called, CallStarted)
    assert called.path == "/a.Service/Method"
    assert called.metadata["x-mq-client-id"] == "me"
    assert called.due_ms == 3_000
    assert rest == [CallMessage(1, b"hello"), ClientDone(1)]
    assert caller.calls.open_count == 1
    assert caller.calls.is_open(1)
    caller.calls.send_answer(1, b"world")
    assert not caller.calls.is_open(1)
    head, data, end = caller.read()
    assert caller.fields(head) == {":status": "200", "content-type": "application/grpc"}
    assert data.payload == framed(b"world")
    assert caller.fields(end) == {"grpc-status": "0"}
    assert end.flags & frames.END_STREAM
    assert caller.calls.open_count == 0


def test_call_that_comes_at_once_is_one_event() -> None:
    caller = Caller()
    whole = [
        caller.headers(number, [*REQUEST, (b"x", b"%d" % number)])
        + caller.data(number, framed(b"hello"), is_end=True)
        for number in (1, 3)
    ]
    first, second = caller.hear(b"".join(whole))
    assert isinstance(first, WholeCall)
    assert isinstance(second, WholeCall)
    assert (first.call, first.path, first.data) == (1, "/a.Service/Method", b"hello")
    assert (second.call, second.metadata["x"]) == (3, "3")


def test_call_that_does_not_come_at_once_is_told_piece_by_piece() -> None:
    caller = Caller()
    headers = caller.headers(1) + caller.headers(3)
    ends = [caller.data(number, framed(b"hello"), is_end=True) for number in (1, 3)]
    kinds = [type(event) for event in caller.hear(headers + ends[0] + ends[1])]
    assert kinds == [CallStarted, CallStarted, CallMessage, ClientDone, CallMessage, ClientDone]
    several = caller.headers(5) + caller.data(5, framed(b"a") + framed(b"b"), is_end=True)
    kinds = [type(event) for event in caller.hear(several)]
    assert kinds == [CallStarted, CallMessage, CallMessage, ClientDone]
    later = caller.headers(7) + caller.data(7, framed(b"a")) + caller.data(7, b"", is_end=True)
    assert [type(event) for event in caller.hear(later)] == [CallStarted, CallMessage, ClientDone]


def test_streams_both_ways() -> None:
    caller = Caller()
    (called,) = caller.call()
    assert isinstance(called, CallStarted)
    assert called.due_ms == NO_DEADLINE
    assert caller.hear(caller.data(1, framed(b"a") + framed(b"bc") + b"\0\0")) == [
        CallMessage(1, b"a"),
        CallMessage(1, b"bc"),
    ]
    assert caller.calls.buffered_size == 2
    assert caller.calls.send_message(1, b"first")
    assert caller.hear(caller.data(1, b"\0\0\x01d")) == [CallMessage(1, b"d")]
    assert caller.hear(caller.data(1, b"", is_end=True)) == [ClientDone(1)]
    assert caller.calls.send_message(1, b"second")
    caller.calls.end_call(1)
    kinds = [each.kind for each in caller.read()]
    assert kinds == [FrameKind.HEADERS, FrameKind.DATA, FrameKind.DATA, FrameKind.HEADERS]
    assert caller.calls.buffered_size == 0


def test_empty_messages_and_no_message_at_all() -> None:
    caller = Caller()
    caller.call()
    assert caller.hear(caller.data(1, framed(b""))) == [CallMessage(1, b"")]
    (_, ended) = caller.hear(caller.headers(3, is_end=True))
    assert ended == ClientDone(3)


def test_answer_behind_a_message_has_one_head() -> None:
    caller = Caller()
    caller.call()
    caller.calls.send_message(1, b"a")
    caller.calls.send_answer(1, b"b")
    assert [each.kind for each in caller.read()][:4] == [
        FrameKind.HEADERS,
        FrameKind.DATA,
        FrameKind.DATA,
        FrameKind.HEADERS,
    ]


def test_status_before_any_message_is_one_frame() -> None:
    caller = Caller()
    caller.hear(caller.headers(1, is_end=True))
    caller.calls.end_call(1, GrpcStatus.UNIMPLEMENTED, "Method a.b/ünknown")
    (end,) = caller.read()
    assert end.flags == frames.END_HEADERS | frames.END_STREAM
    assert caller.fields(end) == {
        ":status": "200",
        "content-type": "application/grpc",
        "grpc-status": "12",
        "grpc-message": "Method a.b/%C3%BCnknown",
    }


def test_text_of_a_status_is_cut() -> None:
    caller = Caller()
    caller.call()
    caller.calls.end_call(1, GrpcStatus.INTERNAL, "x" * 100_000)
    assert len(caller.ended()["grpc-message"]) == 1024


def test_what_is_said_to_a_call_that_is_over_is_dropped() -> None:
    calls = GrpcConnection()
    calls.take_bytes()
    calls.send_answer(1, b"")
    assert calls.send_message(1, b"")
    calls.end_call(1)
    calls.abort_call(1)
    assert calls.take_bytes() == []


@pytest.mark.parametrize(
    ("fields", "status"),
    [
        ([(b":method", b"GET"), *REQUEST[1:]], "405"),
        (REQUEST[:-1], "415"),
        ([*REQUEST[:-1], (b"content-type", b"application/json")], "415"),
        ([*REQUEST[:-1], (b"content-type", b"application/grpc-web")], "415"),
    ],
)
def test_what_is_no_grpc_gets_a_status_of_http(fields: Fields, status: str) -> None:
    caller = Caller()
    assert caller.hear(caller.headers(1, fields)) == []
    assert caller.ended()[":status"] == status
    assert caller.hear(caller.data(1, framed(b"x"), is_end=True)) == []


@pytest.mark.parametrize("kind", [b"application/grpc+proto", b"application/grpc;charset=utf-8"])
def test_kinds_of_grpc_are_taken(kind: bytes) -> None:
    caller = Caller()
    assert caller.hear(caller.headers(1, [*REQUEST[:-1], (b"content-type", kind)]))


def test_compression_is_refused_and_what_is_taken_is_named() -> None:
    caller = Caller()
    assert caller.call(1, (b"grpc-encoding", b"gzip")) == []
    said = caller.ended()
    assert said["grpc-status"] == "12"
    assert said["grpc-accept-encoding"] == "identity"
    assert "gzip" in said["grpc-message"]
    assert caller.call(3, (b"grpc-encoding", b"identity"))


def test_timeout_that_cannot_be_read_ends_the_call() -> None:
    caller = Caller()
    assert caller.call(1, (b"grpc-timeout", b"soon")) == []
    assert caller.ended()["grpc-status"] == "13"


@pytest.mark.parametrize(
    ("data", "status", "text"),
    [
        (framed(b"x", 1), "13", "compressed"),
        (framed(b"x" * 101), "8", "message of 101 bytes; 100 allowed"),
        (struct.pack(">BI", 0, 1 << 31), "8", "message of 2147483648 bytes"),
    ],
)
def test_message_that_cannot_be_ends_the_call(data: bytes, status: str, text: str) -> None:
    caller = Caller(Http2Limits(message_size_max=100))
    caller.call()
    (cancelled,) = caller.hear(caller.data(1, data, is_end=True))
    assert isinstance(cancelled, CallCancelled)
    assert text in cancelled.reason
    said = caller.ended()
    assert said["grpc-status"] == status
    assert text in said["grpc-message"]
    assert caller.calls.buffered_size == 0


def test_call_that_ends_within_a_message_fails() -> None:
    caller = Caller()
    caller.call()
    (cancelled,) = caller.hear(caller.data(1, framed(b"abc")[:-1], is_end=True))
    assert isinstance(cancelled, CallCancelled)
    assert caller.ended()["grpc-status"] == "13"


def test_half_messages_of_a_connection_are_bounded() -> None:
    caller = Caller(Http2Limits(partial_size_max=1_000))
    half = struct.pack(">BI", 0, 5_000) + bytes(600)
    caller.call(1)
    assert caller.hear(caller.data(1, half)) == []
    caller.call(3)
    (cancelled,) = caller.hear(caller.data(3, half))
    assert isinstance(cancelled, CallCancelled)
    assert cancelled.call == 3
    assert caller.ended(3)["grpc-status"] == "8"
    assert caller.calls.buffered_size == len(half)
    caller.hear(frames.encode_reset(1, ErrorCode.CANCEL))
    assert caller.calls.buffered_size == 0


def test_cancelled_call_is_told_and_its_answer_dropped() -> None:
    caller = Caller()
    caller.call()
    (cancelled,) = caller.hear(frames.encode_reset(1, ErrorCode.CANCEL))
    assert isinstance(cancelled, CallCancelled)
    caller.calls.send_answer(1, b"late")
    assert caller.read() == []


def test_call_that_is_answered_is_not_cancelled_later() -> None:
    caller = Caller()
    caller.call()
    caller.calls.send_answer(1, bytes(100_000))
    assert caller.hear(frames.encode_reset(1, ErrorCode.CANCEL)) == []


def test_what_a_client_says_behind_the_answer_is_dropped() -> None:
    caller = Caller()
    caller.call()
    caller.calls.send_answer(1, bytes(100_000))
    assert caller.hear(caller.data(1, framed(b"late"))) == []


def test_deadline_ends_the_call() -> None:
    caller = Caller()
    caller.call(1, (b"grpc-timeout", b"100m"))
    caller.call(3, (b"grpc-timeout", b"300m"))
    caller.call(5)
    assert caller.calls.wake_at_ms == 100
    assert caller.calls.wake(99) == []
    (cancelled,) = caller.calls.wake(100)
    assert isinstance(cancelled, CallCancelled)
    assert caller.ended()["grpc-status"] == "4"
    assert caller.calls.wake_at_ms == 300
    caller.calls.send_answer(3, b"")
    assert caller.calls.wake(300) == []
    assert caller.calls.wake_at_ms == LONG_MAX


def test_room_is_told_when_what_waited_has_left() -> None:
    caller = Caller()
    caller.call()
    assert not caller.calls.send_message(1, bytes(70_000))
    assert caller.calls.buffered_size > 0
    assert caller.hear(
        frames.encode_window_update(0, 100_000) + frames.encode_window_update(1, 100_000)
    ) == [CallDrained(1)]
    caller.calls.send_answer(1, bytes(200_000))
    assert (
        caller.hear(
            frames.encode_window_update(0, 500_000) + frames.encode_window_update(1, 500_000)
        )
        == []
    )


def test_call_may_be_given_up_without_a_word() -> None:
    caller = Caller()
    caller.call()
    caller.calls.abort_call(1)
    (reset,) = caller.read()
    assert reset.kind == FrameKind.RST_STREAM
    assert caller.calls.open_count == 0


def test_lost_connection_cancels_all() -> None:
    caller = Caller()
    caller.call(1)
    caller.call(3)
    assert caller.calls.end_all() == [
        CallCancelled(1, "the connection was lost"),
        CallCancelled(3, "the connection was lost"),
    ]
    assert caller.calls.end_all() == []


def test_breach_of_the_connection_cancels_all() -> None:
    caller = Caller()
    caller.call(1)
    (cancelled,) = caller.hear(frames.encode_frame(FrameKind.PING, b"short"))
    assert caller.calls.is_over
    assert cancelled == CallCancelled(1, caller.calls.end_reason)


def test_shutdown_finishes_what_is_open() -> None:
    caller = Caller()
    caller.call(1)
    caller.calls.shut_down()
    ping = caller.read()[-1]
    caller.hear(frames.encode_frame(FrameKind.PING, ping.payload, flags=frames.ACK))
    assert not caller.calls.is_over
    caller.calls.send_answer(1, b"")
    assert caller.calls.is_over


def test_a_frame_that_begins_is_not_taken_for_a_header_block_of_the_same_number() -> None:
    caller = Caller()
    block, ping = caller.encoder.encode(REQUEST), frames.encode_frame(FrameKind.PING, bytes(8))
    before = len(frames.PREFACE) + len(frames.encode_settings({})) + 2 * frames.FRONT_SIZE
    place = before + len(block) + len(ping)  # of the frame that begins, and the stream's number
    assert place & 1
    caller.hear(frames.encode_frame(FrameKind.HEADERS, stream_id=place))
    begun = caller.calls.incomplete_items()
    flags = frames.END_HEADERS
    caller.hear(
        frames.encode_frame(FrameKind.CONTINUATION, block, flags=flags, stream_id=place) + ping
    )
    assert caller.calls.incomplete_items() == []
    caller.hear(b"\0")
    assert len(begun) == len(caller.calls.incomplete_items()) == 1
    assert caller.calls.incomplete_items() != begun


class UnaryCaller(Caller):
    """A client of a method that takes exactly one message."""

    def __init__(self) -> None:
        super().__init__()
        self.end = self.calls = GrpcConnection(unary_paths={"/a.Service/Method"})
        self.hear(frames.PREFACE + frames.encode_settings({}))
        self.read()


@pytest.mark.parametrize("cuts", [(), (3,), (5,), (8,), (5, 10)])
def test_a_unary_call_is_reported_whole_however_it_is_cut(cuts: tuple[int, ...]) -> None:
    caller = UnaryCaller()
    assert caller.call() == []
    data = framed(b"hello")
    for begin, end in zip((0, *cuts), (*cuts, len(data)), strict=True):
        assert caller.hear(caller.data(1, data[begin:end])) == []
        assert caller.calls.buffered_size == end - (5 if end == len(data) else 0)
        assert caller.calls.incomplete_items(with_unasked=True)
    (whole,) = caller.hear(caller.data(1, b"", is_end=True))
    assert isinstance(whole, WholeCall)
    assert (whole.path, whole.data) == ("/a.Service/Method", b"hello")
    assert caller.calls.buffered_size == 0
    assert caller.calls.incomplete_items(with_unasked=True) == []
    assert caller.calls.is_open(1)


@pytest.mark.parametrize("cuts", [(), (5,), (10,), (14,), (16,)])
def test_a_unary_call_with_another_message_is_never_reported(cuts: tuple[int, ...]) -> None:
    caller = UnaryCaller()
    caller.call()
    data = framed(b"hello") * 2 + framed(b"more")
    events: list[CallEvent] = []
    for begin, end in zip((0, *cuts), (*cuts, len(data)), strict=True):
        events += caller.hear(caller.data(1, data[begin:end], is_end=end == len(data)))
    assert events == [CallCancelled(1, "Too many requests")]
    assert caller.ended()["grpc-status"] == str(int(GrpcStatus.INTERNAL))
    assert caller.calls.buffered_size == 0
    assert not caller.calls.is_open(1)


def test_a_unary_call_that_its_client_takes_back_is_never_reported() -> None:
    caller = UnaryCaller()
    caller.call()
    caller.hear(caller.data(1, framed(b"hello")))
    reset = frames.encode_frame(FrameKind.RST_STREAM, struct.pack(">I", 8), stream_id=1)
    (event,) = caller.hear(reset)
    assert isinstance(event, CallCancelled)
    assert caller.calls.buffered_size == 0

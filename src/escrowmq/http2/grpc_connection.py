"""gRPC over a connection: receives calls and messages, sends answers and statuses.

offset size field of a message
     0    1 compressed    0; no compression is offered
     1    4 size          big-endian
     5      the message
"""

from __future__ import annotations

import struct
from collections.abc import Container
from typing import Final

import msgspec

from escrowmq.base.fixed_limits import LONG_MAX
from escrowmq.http2 import grpc_metadata as meta
from escrowmq.http2.connection import Http2Connection
from escrowmq.http2.events import StreamData, StreamDrained, StreamOpened, StreamReset
from escrowmq.http2.frames import ErrorCode
from escrowmq.http2.grpc_metadata import NO_DEADLINE, GrpcStatus
from escrowmq.http2.limits import Http2Limits
from escrowmq.http2.request_headers import HttpRequest

_FRONT: Final = struct.Struct(">BI")
_FRONT_SIZE: Final = _FRONT.size
_TYPE: Final = "application/grpc"
_KINDS_OF_TYPE: Final = (_TYPE + "+", _TYPE + ";")
_CALL_SIZE: Final = 2048
"""Approximate memory of an open call in bytes, without its header fields."""

_TOO_MANY: Final = "Too many requests"
_NO_MESSAGE: Final = "Half-closed without a request"
"""As grpc-java says it (ServerCalls)."""

_TEXT_SIZE_MAX: Final = 1024
"""The most characters of a status text. Clients accept 8 KiB of trailers."""


class CallStarted(msgspec.Struct):
    """A client has called a method; `CallMessage` and `ClientDone` with the same number follow."""

    call: int
    path: str
    metadata: dict[str, str]
    """The header fields; shared by all calls with equal fields, so do not modify it."""

    due_ms: int
    """The call's deadline, or NO_DEADLINE."""


class CallMessage(msgspec.Struct):
    """One complete message of a call."""

    call: int
    data: bytes


class ClientDone(msgspec.Struct):
    """The client sends nothing more in this call, and waits for the rest of the answer."""

    call: int


class WholeCall(msgspec.Struct):
    """`CallStarted`, `CallMessage` and `ClientDone` in one event, for a call that arrived in one
    piece, as nearly all do, and for each call of a method that takes exactly one message."""

    call: int
    path: str
    metadata: dict[str, str]
    due_ms: int
    data: bytes


class CallCancelled(msgspec.Struct):
    """The client no longer waits for the answer of a call. It may be one that was not reported."""

    call: int
    reason: str


class CallDrained(msgspec.Struct):
    """The data for which `send_message` returned False was sent, so that more can be."""

    call: int


CallEvent = CallStarted | CallMessage | ClientDone | WholeCall | CallCancelled | CallDrained


class _OpenCall:
    __slots__ = (
        "called", "count", "due_ms", "has_begun", "held", "id", "is_unary", "needed", "partial",
        "size",
    )  # fmt: skip

    def __init__(self, stream_id: int, due_ms: int, size: int) -> None:
        self.id = stream_id
        self.due_ms = due_ms
        self.size = size
        """Size of its header fields in bytes."""
        self.called: CallStarted | None = None
        """The `CallStarted` event, until the first message has come."""
        self.has_begun = self.is_unary = False
        self.held: WholeCall | None = None
        """The call, if it has its only message, and the client has not ended it yet."""
        self.partial = bytearray()
        self.count = 0
        """The number of its messages that did not arrive as exactly one frame."""
        self.needed = _FRONT_SIZE

    @property
    def is_asked(self) -> bool:
        """Whether it was reported with a message."""
        return self.called is None and self.held is None


class GrpcConnection:
    """The calls of one client, on its HTTP/2 connection.

    `unary_paths` are the methods that take exactly one message. Their calls are reported when the
    client has ended them, as grpc-java does (ServerCalls), because a further message refuses them:
    what is refused must not have been served."""

    def __init__(
        self, limits: Http2Limits | None = None, *, unary_paths: Container[str] = ()
    ) -> None:
        self._unary_paths = unary_paths
        self._limits = limits or Http2Limits()
        self._size_max = self._limits.message_size_max
        self._connection = Http2Connection(self._limits)
        self._calls: dict[int, _OpenCall] = {}
        self._events: list[CallEvent] = []
        self._partial_size = 0
        self._wake_at_ms = LONG_MAX
        self._now_ms = 0

    def set_limits(self, limits: Http2Limits) -> None:
        """Change the limits of messages and calls."""
        self._limits = limits
        self._size_max = limits.message_size_max
        self._connection.set_limits(limits)

    # ---- what comes in

    def receive(self, data: bytes, now_ms: int) -> list[CallEvent]:
        """Return the events of these bytes. They may contain events of calls that end meanwhile,
        for which `is_open` returns False. If `is_over` is set afterwards, every call was
        cancelled."""
        self._now_ms = now_ms
        for event in self._connection.receive(data, now_ms):
            if type(event) is StreamData:
                self._on_data(event)
            elif type(event) is StreamOpened:
                self._on_opened(event)
            elif type(event) is StreamReset:
                self._cancel_call(event.stream_id, event.reason)
            elif type(event) is StreamDrained and event.stream_id in self._calls:
                self._events.append(CallDrained(event.stream_id))
        if self._connection.is_over:
            self._cancel_all_calls()
        return self._take_events()

    def end_all(self) -> list[CallEvent]:
        """End all calls of a connection that was lost or is over; return their events."""
        self._cancel_all_calls()
        return self._take_events()

    def wake(self, now_ms: int) -> list[CallEvent]:
        """End the calls whose deadline has passed, and return their events."""
        if now_ms < self._wake_at_ms:
            return []
        for call in [each for each in self._calls.values() if each.due_ms != NO_DEADLINE]:
            if call.due_ms <= now_ms:
                self.end_call(
                    call.id, GrpcStatus.DEADLINE_EXCEEDED, "the deadline of the call is over"
                )
                self._events.append(CallCancelled(call.id, "its deadline is over"))
        self._wake_at_ms = min(
            (each.due_ms for each in self._calls.values() if each.due_ms != NO_DEADLINE),
            default=LONG_MAX,
        )
        return self._take_events()

    def clock_leapt(self, by_ms: int) -> None:
        """Shift the deadlines of all calls by a forward jump of the clock."""
        for call in self._calls.values():
            if call.due_ms != NO_DEADLINE:
                call.due_ms += by_ms

    @property
    def wake_at_ms(self) -> int:
        """Return when to call `wake` next. The call with this deadline may have ended by then."""
        return self._wake_at_ms

    def _take_events(self) -> list[CallEvent]:
        events, self._events = self._events, []
        return events

    def _on_opened(self, event: StreamOpened) -> None:
        request, stream_id = event.request, event.stream_id
        metadata = request.metadata
        if block := _http_refusal(request):
            self._connection.send_data(stream_id, trailers=block)
            return
        call = self._calls[stream_id] = _OpenCall(stream_id, NO_DEADLINE, request.size)
        if (encoding := metadata.get("grpc-encoding", "identity")) != "identity":
            self._refuse_encoding(stream_id, encoding)
            return
        timeout = metadata.get("grpc-timeout")
        if timeout is not None:
            try:
                call.due_ms = self._now_ms + meta.parse_timeout(timeout.encode("latin-1"))
            except ValueError as error:
                self.end_call(stream_id, GrpcStatus.INTERNAL, str(error))
                return
            self._wake_at_ms = min(self._wake_at_ms, call.due_ms)
        call.called = CallStarted(stream_id, request.path, metadata, call.due_ms)
        call.is_unary = request.path in self._unary_paths
        if not call.is_unary:
            self._events.append(call.called)
        if event.is_end:
            self._end_client_messages(call)

    def _on_data(self, event: StreamData) -> None:
        call = self._calls.get(event.stream_id)
        if call is None:
            return
        data = event.data
        if data and not call.partial and self._is_single_frame_message(data):
            called, events = call.called, self._events
            is_next = bool(events) and events[-1] is called
            if event.is_end and called is not None and (is_next or call.is_unary):
                if is_next:
                    events.pop()  # nothing came in between: one event instead of three
                call.called = None
                events.append(_whole_call(call, called, data[_FRONT_SIZE:]))
                return
            self._add_message(call, data[_FRONT_SIZE:])
        elif data:
            self._add_data(call, data)
        if event.is_end and call.id in self._calls:
            if call.partial:
                self._end_with_error(call, GrpcStatus.INTERNAL, "the call ended within a message")
            else:
                self._end_client_messages(call)

    def _add_message(self, call: _OpenCall, data: bytes) -> None:
        """Report a message, or hold it until the client has ended its call."""
        called, call.called = call.called, None
        if not call.is_unary:
            self._events.append(CallMessage(call.id, data))
        elif called is None:
            self._end_with_error(call, GrpcStatus.INTERNAL, _TOO_MANY)
        else:
            call.held = _whole_call(call, called, data)
            self._partial_size += len(data)

    def _end_client_messages(self, call: _OpenCall) -> None:
        """Report that the client sends no further message in a call."""
        if not call.is_unary:
            self._events.append(ClientDone(call.id))
        elif call.held is None:
            self._end_with_error(call, GrpcStatus.INTERNAL, _NO_MESSAGE)
        else:
            self._partial_size -= len(call.held.data)
            self._events.append(call.held)
            call.held = None

    def _is_single_frame_message(self, data: bytes) -> bool:
        """Whether data is exactly one message, as nearly always; it need not be copied then."""
        size = len(data) - _FRONT_SIZE
        return (
            not data[0]
            and int.from_bytes(data[1:_FRONT_SIZE], "big") == size
            and size <= self._size_max
        )

    def _add_data(self, call: _OpenCall, data: bytes) -> None:
        self._partial_size -= len(call.partial)
        held = call.partial
        held += data
        at = 0
        while len(held) - at >= call.needed:
            if call.needed == _FRONT_SIZE and not self._accept_prefix(call, held, at):
                return
            if len(held) - at < call.needed:
                break
            with memoryview(held) as view:  # copied once, not twice
                whole = bytes(view[at + _FRONT_SIZE : at + call.needed])
            at += call.needed
            call.count += 1
            call.needed = _FRONT_SIZE
            if call.held is not None:
                held.clear()  # as in `_accept_prefix`
            self._add_message(call, whole)
            if call.id not in self._calls:
                return
        del held[:at]
        self._partial_size += len(held)
        if self._partial_size > self._limits.partial_size_max:
            self._end_with_error(
                call,
                GrpcStatus.RESOURCE_EXHAUSTED,
                f"{self._partial_size} bytes of messages that are not whole yet;"
                f" {self._limits.partial_size_max} allowed",
            )

    def _accept_prefix(self, call: _OpenCall, held: bytearray, at: int) -> bool:
        """Parse the prefix of a message. Return False if the call was refused for it."""
        # `_add_data` has subtracted the held bytes from the sum: it is cleared before
        # `_end_with_error`, which would subtract them again.
        compressed, size = _FRONT.unpack_from(held, at)
        if compressed:
            held.clear()
            self._end_with_error(
                call, GrpcStatus.INTERNAL, "a compressed message, and no encoding was named"
            )
            return False
        if size > self._size_max:
            held.clear()
            self._end_with_error(
                call,
                GrpcStatus.RESOURCE_EXHAUSTED,
                f"message of {size} bytes; {self._size_max} allowed",
            )
            return False
        call.needed = _FRONT_SIZE + size
        return True

    def _refuse_encoding(self, stream_id: int, encoding: str) -> None:
        block = meta.HEADERS + meta.IDENTITY_ONLY
        text = f"grpc-encoding is {encoding[:32]}; identity allowed"
        block += meta.encode_trailers(GrpcStatus.UNIMPLEMENTED, text)
        self._forget_call(self._calls[stream_id])
        self._connection.send_data(stream_id, trailers=block)

    def _end_with_error(self, call: _OpenCall, status: GrpcStatus, text: str) -> None:
        """End a call with an error, and report that to the owner of the calls."""
        self.end_call(call.id, status, text)
        self._events.append(CallCancelled(call.id, text))

    def _cancel_call(self, stream_id: int, reason: str) -> None:
        call = self._calls.get(stream_id)
        if call is not None:
            self._forget_call(call)
            self._events.append(CallCancelled(stream_id, reason))

    def _cancel_all_calls(self) -> None:
        for call in list(self._calls):
            self._cancel_call(call, self._connection.end_reason or "the connection was lost")

    def _forget_call(self, call: _OpenCall) -> None:
        held = call.held
        self._partial_size -= len(call.partial) + (0 if held is None else len(held.data))
        del self._calls[call.id]

    # ---- what goes out

    def take_bytes(self) -> list[bytes]:
        """Return, and forget, the bytes to write."""
        return self._connection.take_bytes()

    @property
    def has_more_events(self) -> bool:
        """Whether `receive` has events without more bytes: a call ends if its client leaves too
        much of an answer unread."""
        return self._connection.has_more_events

    @property
    def is_over(self) -> bool:
        """Whether to close the connection after everything is written."""
        return self._connection.is_over

    @property
    def end_reason(self) -> str:
        """Why the connection has ended."""
        return self._connection.end_reason

    def is_open(self, call: int) -> bool:
        """Whether the client still waits for the answer of a call."""
        return call in self._calls

    @property
    def open_count(self) -> int:
        """Number of unanswered calls."""
        return len(self._calls)

    @property
    def buffered_size(self) -> int:
        """Bytes of incomplete frames and messages, and of answers that were not sent yet."""
        connection = self._connection
        return self._partial_size + connection.unsent_size + connection.incomplete_size

    @property
    def calls_size(self) -> int:
        """Approximate further memory of calls: the header fields of open calls, and the cached
        ones. It is computed on each request, which is made for strangers only, who may have few
        calls."""
        sizes = [call.size + _CALL_SIZE for call in self._calls.values()]
        return sum(sizes) + self._connection.cached_fields_size

    def incomplete_items(self, *, with_unasked: bool = False) -> list[tuple[int, int]]:
        """Return a pair for each incomplete message, which changes once the message is complete.
        With `with_unasked`, calls without a message count too."""
        found = [] if (half := self._connection.incomplete_item) is None else [half]
        if self._partial_size or with_unasked:
            found += [
                (each.id, each.count)
                for each in self._calls.values()
                if each.partial or (with_unasked and not each.is_asked)
            ]
        return found

    def send_answer(self, call: int, data: bytes) -> None:
        """Send the one message of a successful call, and end it."""
        begun = self._calls.get(call)
        if begun is None:
            return
        self._forget_call(begun)
        self._connection.send_answer(
            call,
            headers=b"" if begun.has_begun else meta.HEADERS,
            data=_FRONT.pack(0, len(data)) + data,
            trailers=meta.OK_TRAILERS,
        )

    def send_message(self, call: int, data: bytes) -> bool:
        """Send one of several messages. Return False if the next one must wait for `CallDrained`.
        Do nothing if the call is over."""
        begun = self._calls.get(call)
        if begun is None:
            return True
        headers = b"" if begun.has_begun else meta.HEADERS
        begun.has_begun = True
        return self._connection.send_data(
            call, headers=headers, data=_FRONT.pack(0, len(data)) + data
        )

    def end_call(self, call: int, status: GrpcStatus = GrpcStatus.OK, text: str = "") -> None:
        """End a call with a status. Do nothing if it is over."""
        begun = self._calls.get(call)
        if begun is None:
            return
        self._forget_call(begun)
        block = meta.encode_trailers(status, text[:_TEXT_SIZE_MAX])
        if not begun.has_begun:
            block = meta.HEADERS + block
        self._connection.send_data(call, trailers=block)

    def abort_call(self, call: int) -> None:
        """End a call without an answer."""
        begun = self._calls.get(call)
        if begun is not None:
            self._forget_call(begun)
            self._connection.reset_stream(call, ErrorCode.CANCEL)

    def shut_down(self) -> None:
        """Accept no more calls, and finish the open ones; `is_over` is set after the last. The
        caller must close the connection after a while, because a client may never respond."""
        self._connection.shut_down()


def _whole_call(call: _OpenCall, called: CallStarted, data: bytes) -> WholeCall:
    return WholeCall(call.id, called.path, called.metadata, call.due_ms, data)


def _http_refusal(request: HttpRequest) -> bytes:
    """Return the HTTP answer to a request that is not gRPC; no bytes if it is gRPC."""
    if request.method != b"POST":
        return meta.NOT_GRPC_ANSWER
    kind = request.metadata.get("content-type", "")
    if kind != _TYPE and not kind.startswith(_KINDS_OF_TYPE):
        return meta.WRONG_TYPE
    return b""

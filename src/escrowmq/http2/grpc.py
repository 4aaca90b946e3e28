"""gRPC over a connection: receives calls and messages, sends answers and statuses.

offset size field of a message
     0    1 compressed    0; no compression is offered
     1    4 size          big-endian
     5      the message
"""

from __future__ import annotations

import struct
from typing import Final

import msgspec

from escrowmq.base.fixed_limits import LONG_MAX
from escrowmq.http2 import grpc_metadata as meta
from escrowmq.http2.connection import Http2Connection
from escrowmq.http2.events import Data, Drained, Opened, Reset
from escrowmq.http2.frames import Error
from escrowmq.http2.grpc_metadata import NO_DEADLINE, Status
from escrowmq.http2.headers import HttpRequest
from escrowmq.http2.limits import Http2Limits

_FRONT: Final = struct.Struct(">BI")
_FRONT_SIZE: Final = _FRONT.size
_TYPE: Final = "application/grpc"
_KINDS_OF_TYPE: Final = (_TYPE + "+", _TYPE + ";")
_CALL_SIZE: Final = 2048
"""Approximate memory of an open call in bytes, without its header fields."""

_TEXT_SIZE_MAX: Final = 1024
"""The most characters of a status text. Clients accept 8 KiB of trailers."""


class Called(msgspec.Struct):
    """A client has called a method; `Message` and `HalfClosed` with the same number follow."""

    call: int
    path: str
    metadata: dict[str, str]
    """The header fields; shared by all calls with equal fields, so do not modify it."""

    due_ms: int
    """The call's deadline, or NO_DEADLINE."""


class Message(msgspec.Struct):
    """One complete message of a call."""

    call: int
    data: bytes


class HalfClosed(msgspec.Struct):
    """The client sends nothing more in this call, and waits for the rest of the answer."""

    call: int


class WholeCall(msgspec.Struct):
    """`Called`, `Message` and `HalfClosed` in one event, for a call that arrived in one piece, as
    nearly all do."""

    call: int
    path: str
    metadata: dict[str, str]
    due_ms: int
    data: bytes


class Cancelled(msgspec.Struct):
    """The client no longer waits for the answer of a call."""

    call: int
    reason: str


class Room(msgspec.Struct):
    """The data for which `message` returned False was sent, so that more can be."""

    call: int


CallEvent = Called | Message | HalfClosed | WholeCall | Cancelled | Room


class _Call:
    __slots__ = (
        "called", "count", "due_ms", "has_begun", "id", "needed", "partial", "size",
    )  # fmt: skip

    def __init__(self, stream_id: int, due_ms: int, size: int) -> None:
        self.id = stream_id
        self.due_ms = due_ms
        self.size = size
        """Size of its header fields in bytes."""
        self.called: Called | None = None
        """The `Called` event, until the first message has come."""
        self.has_begun = False
        self.partial = bytearray()
        self.count = 0
        """The number of its messages that did not arrive as exactly one frame."""
        self.needed = _FRONT_SIZE


class Calls:
    """The calls of one client, on its HTTP/2 connection."""

    def __init__(self, limits: Http2Limits | None = None) -> None:
        self._limits = limits or Http2Limits()
        self._size_max = self._limits.message_size_max
        self._connection = Http2Connection(self._limits)
        self._calls: dict[int, _Call] = {}
        self._events: list[CallEvent] = []
        self._partial_size = 0
        self._wake_at_ms = LONG_MAX
        self._now_ms = 0

    def allow(self, limits: Http2Limits) -> None:
        """Change the limits of messages and calls."""
        self._limits = limits
        self._size_max = limits.message_size_max
        self._connection.allow(limits)

    # ---- what comes in

    def receive(self, data: bytes, now_ms: int) -> list[CallEvent]:
        """Return the events of these bytes. They may contain events of calls that end meanwhile,
        for which `is_open` returns False. If `is_over` is set afterwards, every call was
        cancelled."""
        self._now_ms = now_ms
        for event in self._connection.receive(data, now_ms):
            if type(event) is Data:
                self._on_data(event)
            elif type(event) is Opened:
                self._on_opened(event)
            elif type(event) is Reset:
                self._cancel(event.stream_id, event.reason)
            elif type(event) is Drained and event.stream_id in self._calls:
                self._events.append(Room(event.stream_id))
        if self._connection.is_over:
            self._cancel_all()
        return self._take_events()

    def lost(self) -> list[CallEvent]:
        """End all calls of a connection that was lost or is over; return their events."""
        self._cancel_all()
        return self._take_events()

    def wake(self, now_ms: int) -> list[CallEvent]:
        """End the calls whose deadline has passed, and return their events."""
        if now_ms < self._wake_at_ms:
            return []
        for call in [each for each in self._calls.values() if each.due_ms != NO_DEADLINE]:
            if call.due_ms <= now_ms:
                self.finish(call.id, Status.DEADLINE_EXCEEDED, "the deadline of the call is over")
                self._events.append(Cancelled(call.id, "its deadline is over"))
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

    def _on_opened(self, event: Opened) -> None:
        request, stream_id = event.request, event.stream_id
        metadata = request.metadata
        if block := _refused_by_http(request):
            self._connection.send(stream_id, trailers=block)
            return
        call = self._calls[stream_id] = _Call(stream_id, NO_DEADLINE, request.size)
        if (encoding := metadata.get("grpc-encoding", "identity")) != "identity":
            self._refuse_encoding(stream_id, encoding)
            return
        timeout = metadata.get("grpc-timeout")
        if timeout is not None:
            try:
                call.due_ms = self._now_ms + meta.read_timeout(timeout.encode("latin-1"))
            except ValueError as error:
                self.finish(stream_id, Status.INTERNAL, str(error))
                return
            self._wake_at_ms = min(self._wake_at_ms, call.due_ms)
        call.called = Called(stream_id, request.path, metadata, call.due_ms)
        self._events.append(call.called)
        if event.is_end:
            self._events.append(HalfClosed(stream_id))

    def _on_data(self, event: Data) -> None:
        call = self._calls.get(event.stream_id)
        if call is None:
            return
        data = event.data
        if data and not call.partial and self._is_one_message(data):
            called, call.called = call.called, None
            events = self._events
            # Nothing came in between: return one event instead of three, as for nearly every call.
            if event.is_end and called is not None and events and events[-1] is called:
                events[-1] = WholeCall(
                    call.id, called.path, called.metadata, call.due_ms, data[_FRONT_SIZE:]
                )
                return
            events.append(Message(call.id, data[_FRONT_SIZE:]))
        elif data:
            self._gather(call, data)
        if event.is_end and call.id in self._calls:
            if call.partial:
                self._fail(call, Status.INTERNAL, "the call ended within a message")
            else:
                self._events.append(HalfClosed(call.id))

    def _is_one_message(self, data: bytes) -> bool:
        """Whether data is exactly one message, as nearly always; it need not be copied then."""
        size = len(data) - _FRONT_SIZE
        return (
            not data[0]
            and int.from_bytes(data[1:_FRONT_SIZE], "big") == size
            and size <= self._size_max
        )

    def _gather(self, call: _Call, data: bytes) -> None:
        self._partial_size -= len(call.partial)
        held = call.partial
        held += data
        at = 0
        while len(held) - at >= call.needed:
            if call.needed == _FRONT_SIZE and not self._needs(call, held, at):
                return
            if len(held) - at < call.needed:
                break
            with memoryview(held) as view:  # copied once, not twice
                whole = bytes(view[at + _FRONT_SIZE : at + call.needed])
            self._events.append(Message(call.id, whole))
            call.called = None
            at += call.needed
            call.count += 1
            call.needed = _FRONT_SIZE
        del held[:at]
        self._partial_size += len(held)
        if self._partial_size > self._limits.partial_size_max:
            self._fail(
                call,
                Status.RESOURCE_EXHAUSTED,
                f"{self._partial_size} bytes of messages that are not whole yet;"
                f" {self._limits.partial_size_max} allowed",
            )

    def _needs(self, call: _Call, held: bytearray, at: int) -> bool:
        """Parse the prefix of a message. Return False if the call was refused for it."""
        # `_gather` has subtracted the held bytes from the sum: it is cleared before `_fail`, which
        # would subtract them again.
        compressed, size = _FRONT.unpack_from(held, at)
        if compressed:
            held.clear()
            self._fail(call, Status.INTERNAL, "a compressed message, and no encoding was named")
            return False
        if size > self._size_max:
            held.clear()
            self._fail(
                call,
                Status.RESOURCE_EXHAUSTED,
                f"message of {size} bytes; {self._size_max} allowed",
            )
            return False
        call.needed = _FRONT_SIZE + size
        return True

    def _refuse_encoding(self, stream_id: int, encoding: str) -> None:
        block = meta.HEADERS + meta.IDENTITY_ONLY
        text = f"grpc-encoding is {encoding[:32]}; identity allowed"
        block += meta.trailers(Status.UNIMPLEMENTED, text)
        self._forget(self._calls[stream_id])
        self._connection.send(stream_id, trailers=block)

    def _fail(self, call: _Call, status: Status, text: str) -> None:
        """End a call with an error, and report that to the owner of the calls."""
        self.finish(call.id, status, text)
        self._events.append(Cancelled(call.id, text))

    def _cancel(self, stream_id: int, reason: str) -> None:
        call = self._calls.get(stream_id)
        if call is not None:
            self._forget(call)
            self._events.append(Cancelled(stream_id, reason))

    def _cancel_all(self) -> None:
        for call in list(self._calls):
            self._cancel(call, self._connection.reason or "the connection was lost")

    def _forget(self, call: _Call) -> None:
        self._partial_size -= len(call.partial)
        del self._calls[call.id]

    # ---- what goes out

    def take(self) -> list[bytes]:
        """Return, and forget, the bytes to write."""
        return self._connection.take()

    @property
    def has_news(self) -> bool:
        """Whether `receive` has events without more bytes: a call ends if its client leaves too
        much of an answer unread."""
        return self._connection.has_news

    @property
    def is_over(self) -> bool:
        """Whether to close the connection after everything is written."""
        return self._connection.is_over

    @property
    def reason(self) -> str:
        """Why the connection has ended."""
        return self._connection.reason

    def is_open(self, call: int) -> bool:
        """Whether the client still waits for the answer of a call."""
        return call in self._calls

    @property
    def open_count(self) -> int:
        """Number of unanswered calls."""
        return len(self._calls)

    @property
    def kept_size(self) -> int:
        """Bytes of incomplete frames and messages, and of answers that were not sent yet."""
        connection = self._connection
        return self._partial_size + connection.unsent_size + connection.half_size

    @property
    def calls_size(self) -> int:
        """Approximate further memory of calls: the header fields of open calls, and the cached
        ones. It is computed on each request, which is made for strangers only, who may have few
        calls."""
        sizes = [call.size + _CALL_SIZE for call in self._calls.values()]
        return sum(sizes) + self._connection.remembered_size

    def halves(self, *, with_unasked: bool = False) -> list[tuple[int, int]]:
        """Return a pair for each incomplete message, which changes once the message is complete.
        With `with_unasked`, calls without a message count too."""
        found = [] if (half := self._connection.half) is None else [half]
        if self._partial_size or with_unasked:
            found += [
                (each.id, each.count)
                for each in self._calls.values()
                if each.partial or (with_unasked and each.called is not None)
            ]
        return found

    def answer(self, call: int, data: bytes) -> None:
        """Send the one message of a successful call, and end it."""
        begun = self._calls.get(call)
        if begun is None:
            return
        self._forget(begun)
        self._connection.answer(
            call,
            headers=b"" if begun.has_begun else meta.HEADERS,
            data=_FRONT.pack(0, len(data)) + data,
            trailers=meta.ALL_IS_WELL,
        )

    def message(self, call: int, data: bytes) -> bool:
        """Send one of several messages. Return False if the next one must wait for `Room`. Do
        nothing if the call is over."""
        begun = self._calls.get(call)
        if begun is None:
            return True
        headers = b"" if begun.has_begun else meta.HEADERS
        begun.has_begun = True
        return self._connection.send(call, headers=headers, data=_FRONT.pack(0, len(data)) + data)

    def finish(self, call: int, status: Status = Status.OK, text: str = "") -> None:
        """End a call with a status. Do nothing if it is over."""
        begun = self._calls.get(call)
        if begun is None:
            return
        self._forget(begun)
        block = meta.trailers(status, text[:_TEXT_SIZE_MAX])
        if not begun.has_begun:
            block = meta.HEADERS + block
        self._connection.send(call, trailers=block)

    def give_up(self, call: int) -> None:
        """End a call without an answer."""
        begun = self._calls.get(call)
        if begun is not None:
            self._forget(begun)
            self._connection.reset(call, Error.CANCEL)

    def go_away(self) -> None:
        """Accept no more calls, and finish the open ones; `is_over` is set after the last. The
        caller must close the connection after a while, because a client may never respond."""
        self._connection.go_away()


def _refused_by_http(request: HttpRequest) -> bytes:
    """Return the HTTP answer to a request that is not gRPC; no bytes if it is gRPC."""
    if request.method != b"POST":
        return meta.WRONG_METHOD
    kind = request.metadata.get("content-type", "")
    if kind != _TYPE and not kind.startswith(_KINDS_OF_TYPE):
        return meta.WRONG_TYPE
    return b""

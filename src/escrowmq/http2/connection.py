"""The server's end of one HTTP/2 connection (RFC 9113) as a state machine.

`receive` takes bytes and returns events, `send` and `reset` take commands; `take` returns the bytes
to write. A stream's error ends that stream only. A connection's error ends the connection: the last
frame written is a GOAWAY, and `is_over` is set."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar, Final

from escrowmq.http2 import frames
from escrowmq.http2.events import Event, StreamData, StreamOpened, StreamReset
from escrowmq.http2.frames import ConnectionFault, ErrorCode, FrameKind, Http2Setting, StreamFault
from escrowmq.http2.header_blocks import Field
from escrowmq.http2.limits import (
    FIELDS_AT_ONCE_MAX,
    OVERHEAD_WORK,
    RESET_LATE_MS,
    WINDOW_UPDATES,
    Http2Limits,
)
from escrowmq.http2.outgoing_streams import OutgoingStreams
from escrowmq.http2.request_headers import MalformedRequest, RequestDecoder, check_field
from escrowmq.http2.streams import Stream
from escrowmq.http2.windows import ReceiveWindow

BLOCK, FRAME = -1, 0
"""The kinds of incomplete input, besides messages, which are identified by their stream. No stream
has one of these numbers."""

_SHUTDOWN_PING: Final = b"escrowmq"
"""The content of the PING that follows the first GOAWAY. A client that answers it has read the
GOAWAY."""


class _TurnOver(Exception):
    """Raised to leave the rest of the input for another turn. It is raised rarely, so the loop over
    frames need not test for the limit."""


class Http2Connection(OutgoingStreams):
    """The server's end of the HTTP/2 connection of one client."""

    def __init__(self, limits: Http2Limits | None = None) -> None:
        limits = limits or Http2Limits()
        super().__init__(limits)
        self._held = b""
        self._held_at = 0
        """The position of the unprocessed bytes in everything that the client has sent."""
        self._is_greeted = self._is_settled = False
        self._headers = RequestDecoder(list_size_max=limits.header_list_size_max)
        self._is_behind = False
        """Whether the unprocessed bytes contain complete frames for the next turn."""
        self._fields_max = 0
        self._block = bytearray()
        self._block_stream = self._block_frames = 0
        self._block_ends = False
        self._inflow = ReceiveWindow(limits.connection_window)
        self._window_out = frames.WINDOW_DEFAULT
        self._window_updates = 0
        self._is_leaving = False
        self._last_taken: int | None = None
        self.end_reason = ""
        """Why the connection has ended."""

        self.is_over = False
        """Whether to close the connection after everything is written; nothing more is read."""

        self._send_settings()

    # ---- what comes in

    def receive(self, data: bytes, now_ms: int) -> list[Event]:
        """Return the events of these bytes, and of those left from the last turn, up to the limit
        of one turn. While `has_more_events` is true, there are more."""
        self._now_ms = now_ms
        self._is_behind = False
        self._fields_max = self._headers.read_count + FIELDS_AT_ONCE_MAX
        if not self.is_over:
            try:
                self._read_frames(self._held + data if self._held else data)
            except ConnectionFault as fault:
                self._end_connection(fault.code, str(fault))
        events, self._events = self._events, []
        return events

    def _read_frames(self, data: bytes) -> None:
        at = 0
        if not self._is_greeted:
            if not self._has_preface(data):
                self._held = data
                return
            at = len(frames.PREFACE)
        end = len(data)
        while end - at >= frames.FRONT_SIZE:
            size_kind, flags, stream_id = frames.FRAME_HEADER.unpack_from(data, at)
            size = size_kind >> 8
            if size > frames.FRAME_SIZE:
                raise ConnectionFault(
                    ErrorCode.FRAME_SIZE_ERROR,
                    f"frame of {size} bytes; {frames.FRAME_SIZE} allowed",
                )
            stop = at + frames.FRONT_SIZE + size
            if stop > end:
                break
            payload = data[at + frames.FRONT_SIZE : stop]
            at = stop
            try:
                self._handle_frame(size_kind & 0xFF, flags, stream_id & frames.STREAM_MASK, payload)
            except StreamFault as fault:
                self._fail_stream(fault)
                if self._headers.read_count > self._fields_max:
                    self._is_behind = at < end
                    break
            except _TurnOver:
                self._is_behind = at < end
                break
        self._held_at += at
        self._held = data[at:] if at else data

    @property
    def incomplete_item(self) -> tuple[int, int] | None:
        """Return a pair that identifies the incomplete part of the input: the header block of a
        stream, or the frame at a position in everything that the client has sent. None if nothing
        is incomplete."""
        if self._block_stream:
            return BLOCK, self._block_stream
        return (FRAME, self._held_at) if self._held and not self._is_behind else None

    @property
    def has_more_events(self) -> bool:
        """Whether `receive` has events without more bytes."""
        return self._is_behind or bool(self._events)

    @property
    def incomplete_size(self) -> int:
        """Size of the incomplete part in bytes."""
        return len(self._held) + len(self._block)

    @property
    def cached_fields_size(self) -> int:
        """Approximate size of the cached header fields of earlier calls."""
        return self._headers.cached_size

    def set_limits(self, limits: Http2Limits) -> None:
        """Change the limits of the client's streams."""
        if limits.streams_max != self._limits.streams_max:
            most = {Http2Setting.MAX_CONCURRENT_STREAMS: limits.streams_max}
            self._out.append(frames.encode_settings(most))
            # All of the client's open streams may be aborted at once.
            self._streams.remember_given_up(limits.streams_max)
        self._limits = limits

    def _has_preface(self, data: bytes) -> bool:
        """Whether the client has sent the connection preface. Raises ConnectionFault if it has sent
        something else."""
        preface = data[: len(frames.PREFACE)]
        if not frames.PREFACE.startswith(preface):
            raise ConnectionFault(ErrorCode.PROTOCOL_ERROR, "the client does not speak HTTP/2")
        self._is_greeted = len(preface) == len(frames.PREFACE)
        return self._is_greeted

    def _handle_frame(self, kind: int, flags: int, stream_id: int, payload: bytes) -> None:
        if self._block_stream and (
            kind != FrameKind.CONTINUATION or stream_id != self._block_stream
        ):
            raise ConnectionFault(
                ErrorCode.PROTOCOL_ERROR, f"frame of kind {kind} among those of a header block"
            )
        if not self._is_settled and (kind != FrameKind.SETTINGS or flags & frames.ACK):
            raise ConnectionFault(
                ErrorCode.PROTOCOL_ERROR, f"the first frame is of kind {kind}; SETTINGS is allowed"
            )
        read = self._readers.get(kind)
        if read is None:
            self._overhead.spend_budget(self._now_ms)  # unknown kinds must be skipped
        else:
            read(self, flags, stream_id, payload)

    def _on_data(self, flags: int, stream_id: int, payload: bytes) -> None:
        size = len(payload)
        # The whole payload is counted, including padding, also for a stream that has ended: it has
        # used the connection's window, which is opened again only here.
        if not self._inflow.count_received(size):
            raise ConnectionFault(ErrorCode.FLOW_CONTROL_ERROR, "more data than the window allows")
        if room := self._inflow.take_update():
            self._out.append(frames.encode_window_update(0, room))
        stream = self._open_stream_of(stream_id, "DATA")
        if stream is None:
            if not size:
                self._overhead.spend_budget(self._now_ms)
            return
        if not stream.is_remote_open:
            raise StreamFault(stream_id, code=ErrorCode.STREAM_CLOSED, text="DATA after the end")
        if not stream.inflow.count_received(size):
            raise StreamFault(
                stream_id, code=ErrorCode.FLOW_CONTROL_ERROR, text="more data than allowed"
            )
        if flags & frames.PADDED:
            payload = frames.remove_padding(payload)
        is_end = bool(flags & frames.END_STREAM)
        if not payload and not is_end:
            self._overhead.spend_budget(self._now_ms)
            return
        if stream.expected_size >= 0:
            stream.expected_size = _subtract_length(stream, len(payload), is_end=is_end)
        self._events.append(StreamData(stream_id, payload, is_end))
        if is_end:
            stream.is_remote_open = False
        elif room := stream.inflow.take_update():
            self._out.append(frames.encode_window_update(stream_id, room))

    def _on_headers(self, flags: int, stream_id: int, payload: bytes) -> None:
        if not stream_id & 1:
            raise ConnectionFault(
                ErrorCode.PROTOCOL_ERROR, f"HEADERS on stream {stream_id}; odd numbers are allowed"
            )
        if flags & frames.PADDED:
            payload = frames.remove_padding(payload)
        if flags & frames.PRIORITY:
            if len(payload) < 5:
                raise ConnectionFault(ErrorCode.FRAME_SIZE_ERROR, "HEADERS without their priority")
            payload = payload[5:]
        is_end = bool(flags & frames.END_STREAM)
        if flags & frames.END_HEADERS:
            self._on_whole_block(stream_id, payload, is_end=is_end)
        else:
            self._block_stream, self._block_ends, self._block_frames = stream_id, is_end, 0
            self._block += payload

    def _on_continuation(self, flags: int, stream_id: int, payload: bytes) -> None:
        if not self._block_stream:
            raise ConnectionFault(ErrorCode.PROTOCOL_ERROR, "CONTINUATION of nothing")
        self._block_frames += 1
        size = len(self._block) + len(payload)
        limits = self._limits
        if self._block_frames > limits.header_frames_max or size > limits.header_list_size_max:
            raise ConnectionFault(
                ErrorCode.ENHANCE_YOUR_CALM,
                f"header block of {size} bytes in {self._block_frames} CONTINUATION frames;"
                f" {limits.header_list_size_max} in {limits.header_frames_max} allowed",
            )
        self._block += payload
        if flags & frames.END_HEADERS:
            block = bytes(self._block)
            self._block.clear()
            self._block_stream = 0
            self._on_whole_block(stream_id, block, is_end=self._block_ends)

    def _on_whole_block(self, stream_id: int, block: bytes, *, is_end: bool) -> None:
        streams = self._streams
        try:
            if stream_id > streams.last_id:
                # Also record a refused stream: frames of it may be in flight, and for frames of a
                # stream that was never opened `_open_stream_of` would end the connection.
                streams.last_id = stream_id
                self._open_stream(stream_id, block, is_end=is_end)
            else:
                self._on_trailers(stream_id, self._headers.decode_fields(block), is_end=is_end)
        except MalformedRequest as error:
            raise StreamFault(stream_id, code=ErrorCode.PROTOCOL_ERROR, text=str(error)) from error
        if self._headers.read_count > self._fields_max:
            raise _TurnOver

    def _open_stream(self, stream_id: int, block: bytes, *, is_end: bool) -> None:
        request = self._headers.decode_request(block)  # if refused too: the tables stay equal
        streams = self._streams
        if self._last_taken is not None:
            raise StreamFault(stream_id, code=ErrorCode.REFUSED_STREAM, text="shutting down")
        if len(streams.open) >= self._limits.streams_max:
            raise StreamFault(
                stream_id,
                code=ErrorCode.REFUSED_STREAM,
                text=f"{len(streams.open)} streams; {self._limits.streams_max} allowed",
            )
        stream = Stream(
            stream_id,
            window_in=self._limits.stream_window,
            window_out=self._window_out,
            opened_ms=self._now_ms,
        )
        stream.expected_size = request.content_size
        stream.is_remote_open = not is_end
        if is_end and request.content_size > 0:
            _subtract_length(stream, 0, is_end=True)
        streams.open[stream_id] = stream
        self._events.append(StreamOpened(stream_id, request, is_end))

    def _on_trailers(self, stream_id: int, fields: list[Field], *, is_end: bool) -> None:
        stream = self._open_stream_of(stream_id, "HEADERS")
        if stream is None:
            return
        if not stream.is_remote_open:
            raise StreamFault(stream_id, code=ErrorCode.STREAM_CLOSED, text="HEADERS after the end")
        if not is_end:
            raise StreamFault(
                stream_id, code=ErrorCode.PROTOCOL_ERROR, text="HEADERS in the middle of a stream"
            )
        for field in fields:
            check_field(field)
        if stream.expected_size >= 0:
            _subtract_length(stream, 0, is_end=True)
        self._events.append(StreamData(stream_id, b"", is_end=True))
        stream.is_remote_open = False

    def _on_priority(self, flags: int, stream_id: int, payload: bytes) -> None:
        self._overhead.spend_budget(self._now_ms)
        if not stream_id:
            raise ConnectionFault(ErrorCode.PROTOCOL_ERROR, "PRIORITY of the connection")
        if len(payload) != 5:
            raise StreamFault(
                stream_id,
                code=ErrorCode.FRAME_SIZE_ERROR,
                text=f"PRIORITY of {len(payload)} bytes; 5 allowed",
            )

    def _on_reset(self, flags: int, stream_id: int, payload: bytes) -> None:
        (code,) = frames.U32.unpack(frames.require_size("RST_STREAM", payload, 4))
        stream = self._open_stream_of(stream_id, "RST_STREAM", is_late_allowed=True)
        if stream is None:
            self._overhead.spend_budget(self._now_ms)
            return
        if self._now_ms - stream.opened_ms < RESET_LATE_MS:
            self._resets.spend_budget(self._now_ms)
        self._drop_stream(stream)
        known = ErrorCode(code) if code in _CODES else ErrorCode.INTERNAL_ERROR
        self._events.append(StreamReset(stream_id, known, "the client gave the call up"))

    def _on_settings(self, flags: int, stream_id: int, payload: bytes) -> None:
        if stream_id:
            raise ConnectionFault(ErrorCode.PROTOCOL_ERROR, f"SETTINGS of stream {stream_id}")
        work = 1 + frames.count_settings(payload) // OVERHEAD_WORK
        self._overhead.spend_budget(self._now_ms, work)
        if flags & frames.ACK:
            frames.require_size("ACK of SETTINGS", payload, 0)
            return
        # Other settings have no effect here: frames have the minimum size, header blocks use no
        # table, and this end opens no streams.
        windows = [
            value
            for number, value in frames.decode_settings(payload)
            if number == Http2Setting.INITIAL_WINDOW_SIZE
        ]
        if windows:
            self._resize_windows(windows)
        self._is_settled = True
        self._out.append(frames.encode_frame(FrameKind.SETTINGS, flags=frames.ACK))
        self._send_waiting()

    def _resize_windows(self, windows: list[int]) -> None:
        """Change the windows of open streams by the difference (RFC 9113, 6.9.2). If there are
        several values, the last one is used, and the streams are visited once. None of the values
        may open a window too far (6.5.3, 6.9.2), so the largest is validated."""
        before, self._window_out = self._window_out, windows[-1]
        more, most = windows[-1] - before, max(windows) - before
        if not more and most <= 0:
            return
        streams = self._streams
        self._overhead.spend_budget(self._now_ms, len(streams.open) // OVERHEAD_WORK)
        for stream in streams.open.values():
            if not stream.outflow.change_initial(more, most):
                raise ConnectionFault(
                    ErrorCode.FLOW_CONTROL_ERROR, "INITIAL_WINDOW_SIZE opens a window too far"
                )
            streams.make_ready(stream)

    def _on_push(self, flags: int, stream_id: int, payload: bytes) -> None:
        raise ConnectionFault(ErrorCode.PROTOCOL_ERROR, "PUSH_PROMISE of a client")

    def _on_ping(self, flags: int, stream_id: int, payload: bytes) -> None:
        if stream_id:
            raise ConnectionFault(ErrorCode.PROTOCOL_ERROR, f"PING of stream {stream_id}")
        frames.require_size("PING", payload, 8)
        self._overhead.spend_budget(self._now_ms)
        if not flags & frames.ACK:
            self._out.append(frames.encode_frame(FrameKind.PING, payload, flags=frames.ACK))
        elif self._is_leaving and payload == _SHUTDOWN_PING and self._last_taken is None:
            self._last_taken = self._streams.last_id
            self._out.append(
                frames.encode_goaway(self._last_taken, ErrorCode.NO_ERROR, "shutting down")
            )
            self._close_if_last()

    def _on_goaway(self, flags: int, stream_id: int, payload: bytes) -> None:
        if stream_id:
            raise ConnectionFault(ErrorCode.PROTOCOL_ERROR, f"GOAWAY of stream {stream_id}")
        if len(payload) < 8:
            raise ConnectionFault(ErrorCode.FRAME_SIZE_ERROR, f"GOAWAY of {len(payload)} bytes")
        self._overhead.spend_budget(self._now_ms)  # the client closes when it has all answers

    def _on_window(self, flags: int, stream_id: int, payload: bytes) -> None:
        (size,) = frames.U32.unpack(frames.require_size("WINDOW_UPDATE", payload, 4))
        size &= frames.WINDOW_MAX
        self._window_updates += 1
        self._overhead.spend_budget(self._now_ms, self._window_updates % WINDOW_UPDATES == 0)
        if not stream_id:
            if not size:
                raise ConnectionFault(ErrorCode.PROTOCOL_ERROR, "WINDOW_UPDATE by 0")
            if not self._outflow.add_granted(size):
                raise ConnectionFault(ErrorCode.FLOW_CONTROL_ERROR, "the window is opened too far")
            self._overhead.spend_budget(self._now_ms, self._send_waiting())
            return
        stream = self._open_stream_of(stream_id, "WINDOW_UPDATE", is_late_allowed=True)
        if stream is None:
            return
        if not size:
            raise StreamFault(stream_id, code=ErrorCode.PROTOCOL_ERROR, text="WINDOW_UPDATE by 0")
        if not stream.outflow.add_granted(size):
            raise StreamFault(
                stream_id, code=ErrorCode.FLOW_CONTROL_ERROR, text="the window is opened too far"
            )
        if stream.unsent:
            self._streams.make_ready(stream)
            self._overhead.spend_budget(self._now_ms, self._send_waiting())

    def _open_stream_of(
        self, stream_id: int, what: str, *, is_late_allowed: bool = False
    ) -> Stream | None:
        """Return the open stream of a frame; None if the frame must be skipped, because it was sent
        before the client knew that the stream is closed."""
        streams = self._streams
        stream = streams.open.get(stream_id)
        if stream is not None:
            return stream
        if not stream_id & 1 or stream_id > streams.last_id:
            raise ConnectionFault(
                ErrorCode.PROTOCOL_ERROR, f"{what} of stream {stream_id}, which is not open"
            )
        if is_late_allowed or streams.was_aborted(stream_id):
            return None
        raise ConnectionFault(
            ErrorCode.STREAM_CLOSED, f"{what} of stream {stream_id}, which is closed"
        )

    # ---- ends

    def shut_down(self) -> None:
        """Accept no more streams, and finish the open ones; `is_over` is set after the last. The
        client also gets a PING, and streams that it opens before it answers are still served."""
        if self._is_leaving or self.is_over:
            return
        self._is_leaving = True
        self._out.append(
            frames.encode_goaway(frames.STREAM_MASK, ErrorCode.NO_ERROR, "shutting down")
        )
        self._out.append(frames.encode_frame(FrameKind.PING, _SHUTDOWN_PING))

    def _close_if_last(self) -> None:
        if self._last_taken is not None and not self._streams.open and not self.is_over:
            self.is_over = True
            self.end_reason = "shut down"

    def _send_settings(self) -> None:
        limits = self._limits
        found = {
            Http2Setting.MAX_CONCURRENT_STREAMS: limits.streams_max,
            Http2Setting.INITIAL_WINDOW_SIZE: limits.stream_window,
            Http2Setting.MAX_HEADER_LIST_SIZE: limits.header_list_size_max,
        }
        self._out.append(frames.encode_settings(found))
        more = limits.connection_window - frames.WINDOW_DEFAULT
        if more > 0:
            self._out.append(frames.encode_window_update(0, more))

    def _end_connection(self, code: ErrorCode, text: str) -> None:
        self.is_over = True
        self.end_reason = text
        self._held, self._is_behind = b"", False
        self._block.clear()
        self._streams.remove_all()
        self._unsent_size = 0
        self._out.append(frames.encode_goaway(self._streams.last_id, code, text))

    _readers: ClassVar[dict[int, Callable[[Http2Connection, int, int, bytes], None]]] = {
        FrameKind.DATA: _on_data,
        FrameKind.HEADERS: _on_headers,
        FrameKind.PRIORITY: _on_priority,
        FrameKind.RST_STREAM: _on_reset,
        FrameKind.SETTINGS: _on_settings,
        FrameKind.PUSH_PROMISE: _on_push,
        FrameKind.PING: _on_ping,
        FrameKind.GOAWAY: _on_goaway,
        FrameKind.WINDOW_UPDATE: _on_window,
        FrameKind.CONTINUATION: _on_continuation,
    }


def _subtract_length(stream: Stream, size: int, *, is_end: bool) -> int:
    """Return what remains of a stream's content-length after this many bytes. Raises StreamFault if
    the length is wrong."""
    left = stream.expected_size - size
    if left < 0 or (is_end and left):
        raise StreamFault(
            stream.id, code=ErrorCode.PROTOCOL_ERROR, text="the data is not of its content-length"
        )
    return left


_CODES: Final = frozenset(ErrorCode)

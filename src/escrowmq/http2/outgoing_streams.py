"""The writing half of a connection: sends what the windows allow, and keeps the rest."""

from __future__ import annotations

from collections import deque
from typing import Final

from escrowmq.http2 import frames
from escrowmq.http2.events import Event, StreamDrained, StreamReset
from escrowmq.http2.flood_budget import FloodBudget
from escrowmq.http2.frames import ErrorCode, StreamFault
from escrowmq.http2.limits import OVERHEAD_EARNED, SMALL_PIECE, Http2Limits
from escrowmq.http2.streams import Stream, StreamTable
from escrowmq.http2.windows import SendWindow

_LAST: Final = frames.END_HEADERS | frames.END_STREAM


class OutgoingStreams:
    """The sending half of a connection: its open streams, and the data that waits for the client's
    windows."""

    def __init__(self, limits: Http2Limits) -> None:
        self._limits = limits
        self._streams = StreamTable(given_up_max=limits.streams_max)
        self._events: list[Event] = []
        self._out: list[bytes] = []
        self._outflow = SendWindow(frames.WINDOW_DEFAULT)
        self._unsent_size = 0
        self._now_ms = 0
        self._overhead = FloodBudget(
            "frames that carry nothing", most=limits.overhead_max, per_s=limits.overhead_per_s
        )
        self._resets = FloodBudget(
            "calls given up", most=limits.resets_max, per_s=limits.resets_per_s
        )

    def take_bytes(self) -> list[bytes]:
        """Return, and forget, the bytes to write."""
        out, self._out = self._out, []
        return out

    @property
    def has_more_events(self) -> bool:
        """Whether `receive` has events without more bytes, about data that was sent."""
        return bool(self._events)

    def is_open(self, stream_id: int) -> bool:
        """Whether the stream can still be answered."""
        stream = self._streams.open.get(stream_id)
        return stream is not None and stream.is_local_open

    @property
    def open_count(self) -> int:
        """Number of open streams."""
        return len(self._streams.open)

    @property
    def unsent_size(self) -> int:
        """Bytes that wait for the client's windows."""
        return self._unsent_size

    def send_data(
        self, stream_id: int, *, headers: bytes = b"", data: bytes = b"", trailers: bytes = b""
    ) -> bool:
        """Send a header block, data and a final block, each if given. Returns False if some of it
        must wait for the client's windows; `Drained` is returned when all is sent. Does nothing if
        the stream is closed."""
        stream = self._streams.open.get(stream_id)
        if stream is None or not stream.is_local_open:
            return True
        self._overhead.add_budget(OVERHEAD_EARNED)
        if headers:
            self._out.append(frames.encode_headers(stream_id, headers, is_end=False))
        # If data waits, further data must wait too, or it would overtake it.
        if not stream.unsent and self._try_to_send(stream, data):
            if trailers:
                self._end_stream(stream, trailers)
            return True
        # Before `_queue_data`, which may send all of it and end the stream.
        stream.trailers = trailers
        stream.is_local_open = not trailers
        if data:
            self._queue_data(stream, data)
        stream.is_waiting = bool(stream.unsent)
        return not stream.is_waiting

    def send_answer(self, stream_id: int, *, headers: bytes, data: bytes, trailers: bytes) -> None:
        """Send a whole answer: headers, data and trailers. Nearly always it can be sent
        immediately, in one piece, which takes 1.6 us instead of 4.6 (CPython 3.11)."""
        stream = self._streams.open.get(stream_id)
        size = len(data)
        if (
            stream is None
            or stream.is_remote_open
            or stream.unsent
            or not stream.is_local_open
            or not headers
            or size > min(frames.FRAME_SIZE, stream.outflow.left, self._outflow.left)
        ):
            self.send_data(stream_id, headers=headers, data=data, trailers=trailers)
            return
        self._overhead.add_budget(OVERHEAD_EARNED)
        self._resets.add_budget(1)
        self._outflow.left -= size
        head, middle, end = len(headers), size << 8, len(trailers)
        pack = frames.FRAME_HEADER.pack
        self._out.append(
            pack(head << 8 | 1, frames.END_HEADERS, stream_id) + headers
            + pack(middle, 0, stream_id) + data
            + pack(end << 8 | 1, _LAST, stream_id) + trailers
        )  # fmt: skip
        del self._streams.open[stream_id]
        self._close_if_last()

    def _try_to_send(self, stream: Stream, data: bytes) -> bool:
        """Send data immediately if it fits into one frame and the windows; return whether it
        did."""
        size = len(data)
        if not size:
            return True
        if size > frames.FRAME_SIZE or size > stream.outflow.left or size > self._outflow.left:
            return False
        stream.outflow.left -= size
        self._outflow.left -= size
        self._out.append(frames.FRAME_HEADER.pack(size << 8, 0, stream.id))
        self._out.append(data)
        return True

    def _queue_data(self, stream: Stream, data: bytes) -> None:
        if stream.unsent is None:
            stream.unsent = deque()
        stream.unsent.append(memoryview(data))
        stream.unsent_size += len(data)
        self._unsent_size += len(data)
        self._streams.make_ready(stream)
        self._send_waiting()
        if self._unsent_size > self._limits.unsent_size_max:
            text = (
                f"the client leaves {self._unsent_size} bytes unread;"
                f" {self._limits.unsent_size_max} allowed"
            )
            self.reset_stream(stream.id, ErrorCode.ENHANCE_YOUR_CALM)
            self._events.append(StreamReset(stream.id, ErrorCode.ENHANCE_YOUR_CALM, text))

    def _send_waiting(self) -> int:
        """Send waiting data within the windows, one frame of each stream in turn. Returns how many
        small pieces the windows have cut from messages. Only streams that can send are visited,
        because clients may open windows byte by byte."""
        streams = self._streams
        cut_count = 0
        while self._outflow.left > 0 and (stream := streams.take_next_ready()) is not None:
            size = min(stream.outflow.left, self._outflow.left, frames.FRAME_SIZE)
            if size > 0:  # its window may have been made smaller since
                cut_count += self._send_piece(stream, size)
                streams.make_ready(stream)
        return cut_count

    def _send_piece(self, stream: Stream, size: int) -> bool:
        """Send up to this many bytes of a stream's data. Returns whether the window has cut a small
        piece from a message."""
        assert stream.unsent, "nothing waits"
        is_cut = size < len(stream.unsent[0])
        piece = stream.take_unsent(size)
        size = len(piece)
        self._unsent_size -= size
        assert self._unsent_size >= 0, self._unsent_size
        stream.outflow.left -= size
        self._outflow.left -= size
        self._out.append(frames.FRAME_HEADER.pack(size << 8, 0, stream.id))
        self._out.append(piece)
        if size >= SMALL_PIECE:
            self._overhead.add_budget(OVERHEAD_EARNED)
        if stream.unsent:
            return is_cut and size < SMALL_PIECE
        if stream.trailers:
            self._end_stream(stream, stream.trailers)
        if stream.is_waiting:
            stream.is_waiting = False
            self._events.append(StreamDrained(stream.id))
        return False

    def reset_stream(self, stream_id: int, code: ErrorCode) -> None:
        """Abort a stream; no more events come from it."""
        stream = self._streams.open.get(stream_id)
        if stream is not None:
            self._drop_stream(stream)
            self._streams.remember_aborted(stream_id)
            self._out.append(frames.encode_reset(stream_id, code))

    def _end_stream(self, stream: Stream, trailers: bytes) -> None:
        """End a stream with its trailers. If the client is still sending, reset it as well."""
        self._out.append(frames.encode_headers(stream.id, trailers, is_end=True))
        self._resets.add_budget(1)
        del self._streams.open[stream.id]
        if stream.is_remote_open:
            self._streams.remember_aborted(stream.id)
            # With any other code the client may throw the answer away (RFC 9113, 8.1).
            self._out.append(frames.encode_reset(stream.id, ErrorCode.NO_ERROR))
        self._close_if_last()

    def _fail_stream(self, fault: StreamFault) -> None:
        stream = self._streams.open.get(fault.stream_id)
        if stream is None:
            self._overhead.spend_budget(self._now_ms)
        else:
            self._resets.spend_budget(
                self._now_ms
            )  # a client can start many calls by mistakes, too
            self._drop_stream(stream)
            self._events.append(StreamReset(fault.stream_id, fault.code, str(fault)))
        self._streams.remember_aborted(fault.stream_id)
        self._out.append(frames.encode_reset(fault.stream_id, fault.code))

    def _drop_stream(self, stream: Stream) -> None:
        self._unsent_size -= stream.unsent_size
        self._streams.remove_stream(stream)
        self._close_if_last()

    def _close_if_last(self) -> None:
        """End the connection if it is shutting down and this was its last open stream."""

"""The streams of a connection: which are open, and their waiting data."""

from __future__ import annotations

from collections import OrderedDict, deque
from typing import Final

from escrowmq.http2.windows import ReceiveWindow, SendWindow

UNKNOWN_SIZE: Final = -1


class Stream:
    """One stream that the client opened."""

    __slots__ = (
        "expected_size",
        "id",
        "inflow",
        "is_local_open",
        "is_remote_open",
        "is_waiting",
        "opened_ms",
        "outflow",
        "trailers",
        "unsent",
        "unsent_size",
    )

    def __init__(
        self, stream_id: int, *, window_in: int, window_out: int, opened_ms: int = 0
    ) -> None:
        self.id = stream_id
        self.opened_ms = opened_ms
        self.inflow = ReceiveWindow(window_in)
        self.outflow = SendWindow(window_out)
        self.is_remote_open = True
        """Whether the client may still send on it."""

        self.is_local_open = True
        """Whether this end may still add data. Data that waits is sent in any case."""

        self.expected_size = UNKNOWN_SIZE
        """The number of bytes of its content-length that have not arrived yet."""

        self.is_waiting = False
        """Whether `send` has returned False, so that `Drained` must be reported."""

        self.unsent: deque[memoryview] | None = None
        """Waiting data, which streams rarely have."""

        self.unsent_size = 0
        self.trailers = b""
        """The final header block, which is sent after the data."""

    def take_unsent(self, size: int) -> bytes:
        """Remove and return the next waiting bytes, up to a number."""
        assert self.unsent, "nothing waits"
        first = self.unsent[0]
        piece = bytes(first[:size])
        if len(piece) == len(first):
            self.unsent.popleft()
        else:
            self.unsent[0] = first[size:]
        self.unsent_size -= len(piece)
        return piece


class StreamTable:
    """The open streams of a connection, and the aborted ones whose frames may still arrive."""

    def __init__(self, *, given_up_max: int) -> None:
        self.open: dict[int, Stream] = {}
        self.last_id = 0
        """The highest number that the client has used."""

        self._ready: OrderedDict[int, Stream] = OrderedDict()
        """Streams with waiting data and an open window, the longest waiting first, so that others
        need not be visited."""

        self._given_up: dict[int, None] = {}
        self._given_up_max = given_up_max

    def remove_stream(self, stream: Stream) -> None:
        """Remove a stream that is closed on both sides."""
        del self.open[stream.id]
        self._ready.pop(stream.id, None)

    def remove_all(self) -> None:
        """Remove all streams, because the connection is over."""
        self.open.clear()
        self._ready.clear()

    def make_ready(self, stream: Stream) -> None:
        """Queue a stream to send if it has waiting data and an open window. Call it when either
        changes."""
        if stream.unsent and stream.outflow.left > 0:
            self._ready.setdefault(stream.id, stream)

    def take_next_ready(self) -> Stream | None:
        """Remove and return the next stream that can send; None if there is none. `make_ready`
        queues it again."""
        return self._ready.popitem(last=False)[1] if self._ready else None

    def remember_given_up(self, most: int) -> None:
        """Remember at least this many aborted streams."""
        self._given_up_max = max(self._given_up_max, most)

    def remember_aborted(self, stream_id: int) -> None:
        """Remember an aborted stream: its frames may arrive until the client knows."""
        self._given_up[stream_id] = None
        if len(self._given_up) > self._given_up_max:
            del self._given_up[next(iter(self._given_up))]

    def was_aborted(self, stream_id: int) -> bool:
        """Whether the stream was aborted, so that frames of it may still arrive."""
        return stream_id in self._given_up

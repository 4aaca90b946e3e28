"""The streams of a connection: what is open, and what waits to be sent on it."""

from __future__ import annotations

from collections import OrderedDict, deque
from typing import Final

from escrowmq.http2.windows import Inflow, Outflow

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
        self.inflow = Inflow(window_in)
        self.outflow = Outflow(window_out)
        self.is_remote_open = True
        """Whether the client may still send."""

        self.is_local_open = True
        """Whether this end may still be told to send; what waits goes out all the same."""

        self.expected_size = UNKNOWN_SIZE
        """What a content-length still lets come."""

        self.is_waiting = False
        """Whether its owner has been told that bytes have to wait."""

        self.unsent: deque[memoryview] | None = None
        """What waits; nearly no stream ever has any."""

        self.unsent_size = 0
        self.trailers = b""
        """What ends the stream behind that."""

    def take_unsent(self, size: int) -> bytes:
        """The next bytes that waited, at most so many."""
        assert self.unsent, "nothing waits"
        first = self.unsent[0]
        piece = bytes(first[:size])
        if len(piece) == len(first):
            self.unsent.popleft()
        else:
            self.unsent[0] = first[size:]
        self.unsent_size -= len(piece)
        return piece


class Streams:
    """All that are open, and which were given up with frames still under way to them."""

    def __init__(self, *, given_up_max: int) -> None:
        self.open: dict[int, Stream] = {}
        self.last_id = 0
        """The highest number that the client has used."""

        self._ready: OrderedDict[int, Stream] = OrderedDict()
        """Those with unsent bytes whose own windows are open, the one that waits for longest
        first: nobody has to go through those that cannot move to find them."""

        self._given_up: dict[int, None] = {}
        self._given_up_max = given_up_max

    def drop(self, stream: Stream) -> None:
        """It is closed on both sides."""
        del self.open[stream.id]
        self._ready.pop(stream.id, None)

    def drop_all(self) -> None:
        """The connection is over."""
        self.open.clear()
        self._ready.clear()

    def has_room(self, stream: Stream) -> None:
        """Its window was opened, or it has got bytes to send: its turn comes, if it has both."""
        if stream.unsent and stream.outflow.left > 0:
            self._ready.setdefault(stream.id, stream)

    def take_ready(self) -> Stream | None:
        """Whose turn it is; `has_room` puts it behind the others."""
        return self._ready.popitem(last=False)[1] if self._ready else None

    def give_up(self, stream_id: int) -> None:
        """The client is told that a stream is over; until it hears that it may go on with it."""
        self._given_up[stream_id] = None
        if len(self._given_up) > self._given_up_max:
            del self._given_up[next(iter(self._given_up))]

    def was_given_up(self, stream_id: int) -> bool:
        """Whether frames of this stream crossed with its end."""
        return stream_id in self._given_up

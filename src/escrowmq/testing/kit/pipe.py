"""A connection inside a process: two transports, each on its event loop, on any threads."""

from __future__ import annotations

import asyncio
import collections
import itertools
import threading
from collections.abc import Callable
from typing import Any, Final

_HIGH_WATER: Final = 64 * 1024
_PORTS: Final = itertools.cycle(range(40_000, 60_000))
HERE: Final = "127.0.0.1"
"""The host in the addresses of both ends."""

_Chunk = bytes | None
"""Bytes on their way to the other end; None means that the writing end was closed."""


class UnreadChunks:
    """Counts the chunks, of all connections, that were written by one end and not yet read by the
    other."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._count = 0

    @property
    def is_all_read(self) -> bool:
        """Whether everything has been read."""
        return not self._count

    def add(self, count: int) -> None:
        """Add a number of chunks; negative for chunks that were read."""
        with self._lock:
            self._count += count


class PipeEnd(asyncio.Transport):
    """One end of a pipe. Like any transport, its methods must be called on its own loop's
    thread."""

    _other: PipeEnd

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        protocol: asyncio.BaseProtocol,
        traffic: UnreadChunks,
        port: int,
    ) -> None:
        super().__init__({"peername": (HERE, port)})
        self._loop = loop
        self._protocol = protocol
        self._traffic = traffic
        self._inbox: collections.deque[_Chunk] = collections.deque()
        self._written_size = self._taken_size = 0
        """The bytes written by this end, and the bytes that it has read from the other end."""
        self._high = _HIGH_WATER
        self._is_reading = True
        self._is_full = False
        self._is_closing = False
        self._is_lost = False

    # -- asyncio.Transport -------------------------------------------------------------------

    def get_protocol(self) -> asyncio.BaseProtocol:
        """Return the protocol that gets this end's events."""
        return self._protocol

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        """Set the protocol that gets this end's events."""
        self._protocol = protocol

    def is_closing(self) -> bool:
        """Whether it is closed, or about to be."""
        return self._is_closing

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Set the amount of unread bytes at which the writer is paused."""
        self._high = _HIGH_WATER if high is None else high

    def get_write_buffer_size(self) -> int:
        """Bytes that the other end has not read."""
        return self._written_size - self._other._taken_size  # noqa: SLF001 - two ends of one thing

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Pass bytes to the other end."""
        if self._is_closing or not data:
            return
        self._written_size += len(data)
        self._other._receive(bytes(data))  # noqa: SLF001
        if not self._is_full and self.get_write_buffer_size() > self._high:
            self._is_full = True
            self._protocol.pause_writing()

    def can_write_eof(self) -> bool:
        """Return False: half-closing is not supported."""
        return False

    def pause_reading(self) -> None:
        """Stop reading."""
        self._is_reading = False

    def resume_reading(self) -> None:
        """Continue reading."""
        self._is_reading = True
        self._loop.call_soon(self._deliver_next)

    def close(self) -> None:
        """Close the connection once the other end has read what was written."""
        self._close_end(is_abort=False)

    def abort(self) -> None:
        """Close the connection immediately."""
        self._close_end(is_abort=True)

    # -- inside ------------------------------------------------------------------------------

    def _receive(self, chunk: _Chunk) -> None:
        """Pass a chunk to this end; called on the other end's thread."""
        self._traffic.add(1)
        self._inbox.append(chunk)
        if self._is_closing:  # its loop may not run again
            self._drop_inbox()
        elif not _call_soon(self._loop, self._deliver_next):  # it ended with its loop
            self._drop_inbox()
            _call_soon(self._other._loop, self._other._lose_connection)  # noqa: SLF001

    def _deliver_next(self) -> None:
        if self._is_closing:
            self._drop_inbox()
        while self._is_reading and not self._is_closing:
            try:
                chunk = self._inbox.popleft()
            except IndexError:
                break
            try:
                if chunk is None:
                    self._close_end(is_abort=False)
                else:
                    self._taken_size += len(chunk)
                    self._pass_data(chunk)
            finally:
                self._traffic.add(-1)
        other = self._other
        if other._is_full:  # noqa: SLF001
            _call_soon(other._loop, other._resume_writer)  # noqa: SLF001

    def _pass_data(self, data: bytes) -> None:
        protocol: Any = self._protocol
        if not isinstance(protocol, asyncio.BufferedProtocol):
            protocol.data_received(data)
            return
        while data:
            room = memoryview(protocol.get_buffer(len(data)))
            piece = data[: len(room)]
            room[: len(piece)] = piece
            protocol.buffer_updated(len(piece))
            data = data[len(piece) :]

    def _resume_writer(self) -> None:
        if self._is_full and self.get_write_buffer_size() <= self._high // 4:
            self._is_full = False
            self._protocol.resume_writing()

    def _close_end(self, *, is_abort: bool) -> None:
        if self._is_closing:
            return
        self._is_closing = True
        self._drop_inbox()
        other = self._other
        if is_abort:
            other._drop_inbox()  # noqa: SLF001
            _call_soon(other._loop, other._lose_connection)  # noqa: SLF001
        else:
            other._receive(None)  # noqa: SLF001
        self._loop.call_soon(self._lose_connection)

    def _lose_connection(self) -> None:
        self._is_closing = True
        self._drop_inbox()
        if not self._is_lost:
            self._is_lost = True
            self._protocol.connection_lost(None)

    def _drop_inbox(self) -> None:
        while self._inbox:
            try:
                self._inbox.pop()
            except IndexError:  # the other thread took it
                return
            self._traffic.add(-1)


def _call_soon(loop: asyncio.AbstractEventLoop, work: Any) -> bool:  # noqa: ANN401
    """Call a function on the loop soon; return whether the loop still exists."""
    try:
        loop.call_soon_threadsafe(work)
    except RuntimeError:
        return False
    return True


def connect_pipe(
    near: asyncio.BaseProtocol,
    make_far: Callable[[], asyncio.BaseProtocol],
    far_loop: asyncio.AbstractEventLoop,
    traffic: UnreadChunks,
) -> None:
    """Connect a protocol of the running loop with one that is made on another loop, or the same."""
    port = next(_PORTS)
    one = PipeEnd(asyncio.get_running_loop(), near, traffic, port + 1)
    other = PipeEnd(far_loop, near, traffic, port)
    one._other, other._other = other, one  # noqa: SLF001
    traffic.add(1)

    def accept_far() -> None:
        far = make_far()
        other.set_protocol(far)
        far.connection_made(other)
        traffic.add(-1)

    far_loop.call_soon_threadsafe(accept_far)
    near.connection_made(one)

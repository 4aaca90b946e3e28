"""One peer's connection: passes its bytes to the core, and limits unsent bytes."""

from __future__ import annotations

import array
import asyncio
import fcntl
import termios
from typing import Any, Protocol, cast

from escrowmq.base.fixed_limits import SEND_BUFFER_SIZE_MAX
from escrowmq.base.wire import Wire
from escrowmq.net.clock import thread_cpu_s
from escrowmq.net.incoming_connections import IncomingConnections
from escrowmq.net.read_buffer import ReadBuffer

_HIGH_WATER: int = 4 * 1024 * 1024


_LARGE_SIZE: int = 65_536
"""A write of at least this size counts as waiting; a smaller one only if another write waits before
it."""


_COST_SHARE: float = 0.1
"""The weight of the latest turn in the average cost of a byte. It is small, so that one slow turn
does not dominate."""

_size = array.array("i", [0])


class LinkOwner(Protocol):
    """What a link needs of the shell."""

    reads: ReadBuffer
    entrance: IncomingConnections

    def link_connected(self, link: PeerLink) -> None:
        """Pass a newly connected peer on to the core."""

    def report_certificate(self, link: PeerLink, certificate: dict[str, Any] | None) -> None:
        """Pass on the certificate that a connected peer has presented, or None."""

    def receive(self, link: PeerLink, data: bytes, *, waited_ms: int = 0) -> None:
        """Process bytes from a peer that have waited at least this long."""

    def serve_later(self, link: PeerLink) -> None:
        """Give a peer a turn later, because the core has kept requests of it."""

    def link_lost(self, link: PeerLink) -> None:
        """Report a lost connection."""

    def record_unsent(self, link: PeerLink, size: int) -> None:
        """Count bytes that wait until a peer reads them."""

    def dial_failed(self, peer: int) -> None:
        """Report that a connection attempt failed."""

    def dial_tls_failed(self, peer: int, fault: str) -> None:
        """Report that TLS with a server failed; the connection will be lost."""


class PeerLink(asyncio.BufferedProtocol):
    """A connection to one peer, as an asyncio protocol."""

    __slots__ = (
        "_byte_ms", "_descriptor", "_is_held", "_is_stopped", "_shell", "has_written",
        "last_active_ms", "peer", "transport", "wire",
    )  # fmt: skip

    def __init__(self, shell: LinkOwner, peer: int, wire: Wire = Wire.REMOTING) -> None:
        self._shell = shell
        self.peer = peer
        self.wire = wire
        self.last_active_ms = 0
        self.has_written = False
        self._byte_ms = 0.0
        """The recent processing cost per byte, including refusals."""
        self._descriptor = -1
        self._is_stopped = False
        self._is_held = False
        self.transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Report the connected peer and its address to the core."""
        self._set_transport(transport)
        self._shell.link_connected(self)

    def _set_transport(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)
        self.transport.set_write_buffer_limits(high=_HIGH_WATER)
        sock = self.transport.get_extra_info("socket")
        self._descriptor = sock.fileno() if sock is not None else -1

    def get_buffer(self, sizehint: int) -> memoryview:
        """Return the buffer for the next bytes."""
        return self._shell.reads.next_buffer

    def buffer_updated(self, nbytes: int) -> None:
        """Feed the core and perform its effects."""
        reads = self._shell.reads
        data = reads.next_buffer[:nbytes].tobytes()
        if nbytes < len(reads.next_buffer):
            if reads.backlogged:
                reads.end_backlog(self.peer)
            self._shell.receive(self, data)
        else:
            self._process_turn(data)

    def _process_turn(self, data: bytes) -> None:
        """Process bytes now, and read more only after other peers had their turn."""
        assert self.transport is not None
        reads = self._shell.reads
        reads.add_backlog(self.peer)
        waited_ms = self._backlog_size() * len(reads.backlogged) * self._byte_ms
        begin_s = thread_cpu_s()
        self._shell.receive(self, data, waited_ms=int(waited_ms))
        byte_ms = (thread_cpu_s() - begin_s) * 1000 / len(data)
        self._byte_ms += (byte_ms - self._byte_ms) * _COST_SHARE
        if not self.transport.is_closing():
            self.transport.pause_reading()
            asyncio.get_running_loop().call_soon(self._resume_reading)

    def _backlog_size(self) -> int:
        """Return the number of bytes that wait in the socket. The waiting time of the peer's input
        is estimated from it, if there is a backlog for a while: other peers with a backlog are
        taken to have as much."""
        if self._descriptor < 0:
            return 0
        fcntl.ioctl(self._descriptor, termios.FIONREAD, _size)
        return _size[0]

    def _resume_reading(self) -> None:
        if self._is_held or self._is_stopped:
            return  # `serve_kept` and `resume_writing` come back here when that is over
        if self.transport is not None and not self.transport.is_closing():
            self.transport.resume_reading()

    def stop_reading(self) -> None:
        """Stop reading until the peer has read its answers (`resume_writing`)."""
        self._is_stopped = True
        if self.transport is not None and not self.transport.is_closing():
            self.transport.pause_reading()

    def connection_lost(self, exc: Exception | None) -> None:
        """Report the lost peer to the core."""
        self._shell.link_lost(self)

    def pause_writing(self) -> None:
        """Stop reading from a peer that does not read its answers."""
        self.stop_reading()

    def resume_writing(self) -> None:
        """Read again from a peer that has read its answers."""
        self._is_stopped = False
        if self._is_held:
            self._shell.serve_later(self)
        else:
            self._resume_reading()

    def hold_input(self) -> None:
        """Stop reading until the peer has read its earlier answers; the core keeps its requests
        until then."""
        self._is_held = True
        if self.transport is None or self.transport.is_closing():
            return
        self.transport.pause_reading()
        if not self._is_stopped:
            self._shell.serve_later(self)

    def serve_kept(self) -> None:
        """Continue with requests of this peer that the core has kept."""
        if not self._is_held or self._is_stopped:
            return
        if self.transport is None or self.transport.is_closing():
            return
        self._is_held = False  # before the core has its turn, which may hold this peer again
        self._shell.receive(self, b"")
        self._resume_reading()

    def write(self, chunks: list[bytes]) -> bool:
        """Write immediately; if too much is unsent already, cut the connection and return False."""
        transport = self.transport
        if transport is None or transport.is_closing():
            return True
        unsent = transport.get_write_buffer_size()
        if unsent > SEND_BUFFER_SIZE_MAX:
            transport.abort()
            return False
        self.has_written = True
        data = chunks[0] if len(chunks) == 1 else b"".join(chunks)
        transport.write(data)
        if unsent or len(data) > _LARGE_SIZE:
            self._shell.record_unsent(self, unsent + len(data))
        return True

    def unsent_size(self) -> int:
        """Bytes that were written and not sent yet."""
        return 0 if self.transport is None else self.transport.get_write_buffer_size()

    def close(self, *, flush_s: float) -> None:
        """Close the connection after the written bytes are sent, but at most `flush_s` seconds from
        now."""
        transport = self.transport
        if transport is None or transport.is_closing():
            return
        transport.close()
        if transport.get_write_buffer_size():
            asyncio.get_running_loop().call_later(flush_s, transport.abort)

    def abort(self) -> None:
        """Close immediately; unsent bytes are dropped."""
        if self.transport is not None:
            self.transport.abort()

    def close_idle(self) -> None:
        """Close the connection because the peer has neither sent nor read anything for a long
        time."""
        transport = self.transport
        if transport is None:
            return
        # `close` alone would wait for a peer that does not read, for ever.
        if transport.get_write_buffer_size():
            transport.abort()
        else:
            transport.close()

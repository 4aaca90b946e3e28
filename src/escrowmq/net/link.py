"""One peer's connection: feeds the core, and bounds what waits to be written."""

from __future__ import annotations

import array
import asyncio
import fcntl
import termios
from typing import Any, Protocol, cast

from escrowmq.base.fixed_limits import SEND_BUFFER_SIZE_MAX
from escrowmq.base.wire import Wire
from escrowmq.net.admission import Entrance
from escrowmq.net.clock import worked_s
from escrowmq.net.read_buffers import Reads

_HIGH_WATER: int = 4 * 1024 * 1024


_LARGE_SIZE: int = 65_536
"""A write that counts as one that waits; smaller ones count when something waits before them."""


_COST_SHARE: float = 0.1
"""What the newest turn counts among those before it: one that met a slow moment is no rule."""

_size = array.array("i", [0])


class LinkOwner(Protocol):
    """The shell, as its links see it."""

    reads: Reads
    entrance: Entrance

    def connected(self, link: Link) -> None:
        """A link has its transport."""

    def identify(self, link: Link, certificate: dict[str, Any] | None) -> None:
        """A link that is connected has shown a certificate, or none."""

    def receive(self, link: Link, data: bytes, *, waited_ms: int = 0) -> None:
        """Bytes from a peer, known to have waited for so long at least."""

    def go_on_later(self, link: Link) -> None:
        """The core has kept requests of a peer."""

    def lost(self, link: Link) -> None:
        """A peer is gone."""

    def note_unsent(self, link: Link, size: int) -> None:
        """Bytes wait for a peer to read."""

    def unreached(self, peer: int) -> None:
        """A peer that was dialled did not let us in."""


class Link(asyncio.BufferedProtocol):
    """The shell's half of a connection."""

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
        """What a byte took lately, refusals among it."""
        self._descriptor = -1
        self._is_stopped = False
        self._is_held = False
        self.transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """A peer is there; the core learns from where."""
        self._attach(transport)
        self._shell.connected(self)

    def _attach(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)
        self.transport.set_write_buffer_limits(high=_HIGH_WATER)
        door = self.transport.get_extra_info("socket")
        self._descriptor = door.fileno() if door is not None else -1

    def get_buffer(self, sizehint: int) -> memoryview:
        """Where the next bytes go."""
        return self._shell.reads.room

    def buffer_updated(self, nbytes: int) -> None:
        """Feed the core and perform what it decided."""
        reads = self._shell.reads
        data = reads.room[:nbytes].tobytes()
        if nbytes < len(reads.room):
            if reads.behind:
                reads.catch_up(self.peer)
            self._shell.receive(self, data)
        else:
            self._feed_turn(data)

    def _feed_turn(self, data: bytes) -> None:
        """There may be more: the others' turn, and then the rest of it."""
        assert self.transport is not None
        reads = self._shell.reads
        reads.fall_behind(self.peer)
        waited_ms = self._backlog_size() * len(reads.behind) * self._byte_ms
        begin_s = worked_s()
        self._shell.receive(self, data, waited_ms=int(waited_ms))
        byte_ms = (worked_s() - begin_s) * 1000 / len(data)
        self._byte_ms += (byte_ms - self._byte_ms) * _COST_SHARE
        if not self.transport.is_closing():
            self.transport.pause_reading()
            asyncio.get_running_loop().call_soon(self._take_turn)

    def _backlog_size(self) -> int:
        """Bytes that came and wait to be read. What they and as many of each other peer that is
        behind take to be worked off is how long these have waited, when that goes on a while."""
        if self._descriptor < 0:
            return 0
        fcntl.ioctl(self._descriptor, termios.FIONREAD, _size)
        return _size[0]

    def _take_turn(self) -> None:
        if self._is_held or self._is_stopped:
            return  # `go_on` and `resume_writing` come back here when that is over
        if self.transport is not None and not self.transport.is_closing():
            self.transport.resume_reading()

    def stop_reading(self) -> None:
        """Take nothing more in, for now."""
        self._is_stopped = True
        if self.transport is not None and not self.transport.is_closing():
            self.transport.pause_reading()

    def connection_lost(self, exc: Exception | None) -> None:
        """The peer is gone."""
        self._shell.lost(self)

    def pause_writing(self) -> None:
        """A peer that does not read is not read from either."""
        self.stop_reading()

    def resume_writing(self) -> None:
        """It reads again."""
        self._is_stopped = False
        if self._is_held:
            self._shell.go_on_later(self)
        else:
            self._take_turn()

    def hold(self) -> None:
        """The core has kept requests of this peer until it has read the answers to those before."""
        self._is_held = True
        if self.transport is None or self.transport.is_closing():
            return
        self.transport.pause_reading()
        if not self._is_stopped:
            self._shell.go_on_later(self)

    def go_on(self) -> None:
        """It is this peer's turn again: the core has kept requests of it."""
        if not self._is_held or self._is_stopped:
            return
        if self.transport is None or self.transport.is_closing():
            return
        self._is_held = False  # before the core has its turn, which may hold this peer again
        self._shell.receive(self, b"")
        self._take_turn()

    def write(self, chunks: list[bytes]) -> bool:
        """Write in one go; False, and the connection is cut, when too much waits already."""
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
            self._shell.note_unsent(self, unsent + len(data))
        return True

    def unsent_size(self) -> int:
        """Bytes that were written and have not left."""
        return 0 if self.transport is None else self.transport.get_write_buffer_size()

    def close(self, *, flush_s: float) -> None:
        """Close after what was written has left; a peer that does not read it in time is cut."""
        transport = self.transport
        if transport is None or transport.is_closing():
            return
        transport.close()
        if transport.get_write_buffer_size():
            asyncio.get_running_loop().call_later(flush_s, transport.abort)

    def abort(self) -> None:
        """Cut it at once; what was written and has not left is dropped."""
        if self.transport is not None:
            self.transport.abort()

    def close_idle(self) -> None:
        """Close a peer from which nothing came, and which took nothing, for a long time."""
        transport = self.transport
        if transport is None:
            return
        # `close` alone would wait for a peer that does not read, for ever.
        if transport.get_write_buffer_size():
            transport.abort()
        else:
            transport.close()

"""One peer's connection: feeds the core, and bounds what waits to be written."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, cast

from escrowmq.base.limits import SEND_BUFFER_SIZE_MAX

if TYPE_CHECKING:
    from escrowmq.net.shell import Shell

_HIGH_WATER: int = 4 * 1024 * 1024


class Link(asyncio.Protocol):
    """The shell's half of a connection."""

    __slots__ = ("_shell", "has_written", "last_active_ms", "peer", "transport")

    def __init__(self, shell: Shell, peer: int) -> None:
        self._shell = shell
        self.peer = peer
        self.last_active_ms = 0
        self.has_written = False
        self.transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """A peer is there; the core learns from where."""
        self.transport = cast("asyncio.Transport", transport)
        self.transport.set_write_buffer_limits(high=_HIGH_WATER)
        self._shell.connected(self)

    def data_received(self, data: bytes) -> None:
        """Feed the core and perform what it decided."""
        self._shell.receive(self, data)

    def connection_lost(self, exc: Exception | None) -> None:
        """The peer is gone."""
        self._shell.lost(self)

    def pause_writing(self) -> None:
        """A peer that does not read is not read from either."""
        if self.transport is not None and not self.transport.is_closing():
            self.transport.pause_reading()

    def resume_writing(self) -> None:
        """It reads again."""
        if self.transport is not None and not self.transport.is_closing():
            self.transport.resume_reading()

    def write(self, chunks: list[bytes]) -> bool:
        """Write in one go; False, and the connection is cut, when too much waits already."""
        transport = self.transport
        if transport is None or transport.is_closing():
            return True
        if transport.get_write_buffer_size() > SEND_BUFFER_SIZE_MAX:
            transport.abort()
            return False
        self.has_written = True
        transport.write(chunks[0] if len(chunks) == 1 else b"".join(chunks))
        return True

    def close(self, *, flush_s: float) -> None:
        """Close after what was written has left; a peer that does not read it in time is cut."""
        transport = self.transport
        if transport is None or transport.is_closing():
            return
        transport.close()
        if transport.get_write_buffer_size():
            asyncio.get_running_loop().call_later(flush_s, transport.abort)

    def close_idle(self) -> None:
        """Close a peer from which nothing came, and which took nothing, for a long time."""
        transport = self.transport
        if transport is None:
            return
        if transport.get_write_buffer_size():
            transport.abort()
        else:
            transport.close()

"""A core's requests to its shell, which performs all I/O for it."""

from __future__ import annotations

import msgspec

from escrowmq.base.ports import File
from escrowmq.base.wire import Wire


class Send(msgspec.Struct):
    """Write these chunks, in order, to one peer."""

    peer: int
    chunks: list[bytes]


class Close(msgspec.Struct):
    """Close a peer's connection after everything sent before was written."""

    peer: int
    reason: str


class Hold(msgspec.Struct):
    """Stop reading from a peer until it has received what was sent to it, and other peers had their
    turn. Then call the core's `receive` without bytes: it has kept the rest of the peer's
    requests."""

    peer: int


class Dial(msgspec.Struct):
    """Open a connection to an address. The core chooses its peer number, which is negative."""

    peer: int
    host: str
    port: int
    wire: Wire = Wire.REMOTING


class Sync(msgspec.Struct):
    """Make files durable in another thread, then call the core's `synced(log_offset)` or
    `sync_failed`."""

    files: tuple[File, ...]
    log_offset: int


class Replace(msgspec.Struct):
    """Replace a small file atomically, in another thread. If several wait for one path, only the
    newest is written."""

    path: str
    data: bytes


Effect = Send | Close | Hold | Dial | Sync | Replace

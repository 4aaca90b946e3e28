"""A core's requests to its shell. A core never performs I/O itself."""

from __future__ import annotations

import msgspec

from escrowmq.base.ports import File
from escrowmq.base.wire import Wire


class Send(msgspec.Struct):
    """Write these chunks, in order, to one peer."""

    peer: int
    chunks: list[bytes]


class Close(msgspec.Struct):
    """Close a peer's connection after everything sent before has been written."""

    peer: int
    reason: str


class Hold(msgspec.Struct):
    """Read nothing more from a peer until it has read what was sent to it and others had their
    turn; then call `receive` without bytes: the core has kept the rest of its requests."""

    peer: int


class Dial(msgspec.Struct):
    """Connect to an address and call the connection `peer` (a core's own numbers are negative)."""

    peer: int
    host: str
    port: int
    wire: Wire = Wire.REMOTING


class Sync(msgspec.Struct):
    """Make files durable off the loop, then tell the core `synced(log_offset)` or `sync_failed`."""

    files: tuple[File, ...]
    log_offset: int


class Replace(msgspec.Struct):
    """Replace a small file atomically, off the loop; only the newest data of a path is written."""

    path: str
    data: bytes


Effect = Send | Close | Hold | Dial | Sync | Replace

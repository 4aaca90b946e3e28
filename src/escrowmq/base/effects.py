"""What a core asks its shell to do. A core never acts by itself."""

from __future__ import annotations

import msgspec

from escrowmq.base.ports import File


class Send(msgspec.Struct):
    """Write these chunks, in order, to one peer."""

    peer: int
    chunks: list[bytes]


class Close(msgspec.Struct):
    """Close a peer's connection after what was sent before has left."""

    peer: int
    reason: str


class Hold(msgspec.Struct):
    """Read nothing more from a peer until it has taken what was sent to it and the others had their
    turn; then call `receive` with no bytes: the core has kept the rest of its requests."""

    peer: int


class Dial(msgspec.Struct):
    """Connect to an address and call the connection `peer` (a core's own numbers are negative)."""

    peer: int
    host: str
    port: int


class Sync(msgspec.Struct):
    """Make files durable off the loop, then tell the core `synced(log_offset)` or `sync_failed`."""

    files: tuple[File, ...]
    log_offset: int


class Replace(msgspec.Struct):
    """Replace a small file atomically, off the loop; the newest data of a path wins."""

    path: str
    data: bytes


Effect = Send | Close | Hold | Dial | Sync | Replace

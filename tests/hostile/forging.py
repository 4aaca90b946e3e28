"""Records by hand: what somebody may put into the body of his own message."""

from __future__ import annotations

import zlib

from escrowmq.codec.record_layout import HEAD_V4, MAGIC_V1, PROPERTIES_SIZE

from .place import A, Line, log_offset_of

BODY_AT = HEAD_V4.size
"""Where the body of a record begins, with addresses of IPv4."""

_HOST = bytes((127, 0, 0, 1, 0, 0, 0, 1))


def forged(
    topic: str,
    body: bytes,
    properties: bytes = b"",
    *,
    log_offset: int,
    queue_offset: int = 0,
    claimed: int | None = None,
) -> bytes:
    """A record that claims a place, and so many bytes of properties, which may be whatever is
    stored behind it."""
    name = topic.encode()
    claimed = len(properties) if claimed is None else claimed
    size = BODY_AT + len(body) + 1 + len(name) + PROPERTIES_SIZE.size + claimed
    stored_ms = 1 << 43  # later than all that is there
    head = HEAD_V4.fields.pack(
        size, MAGIC_V1, zlib.crc32(body) & 0x7FFFFFFF, 0, 0, queue_offset, log_offset, 0, stored_ms,
        _HOST, stored_ms, _HOST, 0, 0, len(body),
    )  # fmt: skip
    return head + body + bytes((len(name),)) + name + PROPERTIES_SIZE.pack(claimed) + properties


def greedy(place: int) -> tuple[bytes, list[int]]:
    """Forged records, one behind another, that claim ever fewer bytes of what is behind them all;
    and where they stand, if their body begins at a place."""
    unit = len(forged("TA", b"y", log_offset=0))
    wanted = range(400, 2400, 5)
    records = []
    for index, more in enumerate(wanted):
        claimed = (len(wanted) - index - 1) * unit + more
        records.append(forged("TA", b"y", log_offset=place + index * unit, claimed=claimed))
    return b"".join(records), [place + index * unit for index in range(len(wanted))]


def next_place(line: Line) -> int:
    """Where the body of the next message of A will begin, if nobody comes between."""
    assert line.who == A
    at = log_offset_of(line.send("TA", b"probe"))
    return at + line.size_at(at, "TA") + BODY_AT

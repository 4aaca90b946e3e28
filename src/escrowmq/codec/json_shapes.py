"""Similar send requests with JSON headers, as Java clients send them (see codec/request_shapes), in
the form for the native lane. Plain Python parses each by itself."""

from __future__ import annotations

import re
from typing import Final

from escrowmq.codec.request_shapes import JsonSend, read_json_send

_REST_MAX_IN_JSON: Final = 1024
"""Bytes of a header with a shape, without the properties."""

_NAMES_IN_JSON: Final = b'"e":', b'"g":', b'"i":', b'"opaque":'
_odd_in_json: Final = re.compile(rb'"\s|\\').search
"""Without spaces and escapes, a name that occurs once is that of one field."""

_VARIES_IN_JSON: Final = tuple(
    re.compile(pattern).search
    for pattern in (
        rb'"e":"([0-9]+)"',
        rb'"g":"([0-9]+)"',
        rb'"i":"([^"]*)"',
        rb'"opaque":([0-9]+)',
    )
)
"""Queue, time, properties and number, in this order."""


class JsonSendShape:
    """All of a send request's JSON header except these values. If nothing else is escaped, each
    quote begins or ends a string, so a name with a colon that occurs once is the name of one field:
    with another value in its place, all other fields stay the same."""

    __slots__ = ("order", "pieces", "said")

    def __init__(self, pieces: list[bytes], order: bytes, said: JsonSend) -> None:
        self.pieces = pieces
        """The text before each value, and after the last one."""
        self.order = order
        """Which value is at which position."""
        self.said = said
        """Of the request from which it was learnt."""

    def may_match(self, data: bytes, at: int, header_end: int) -> bool:
        """Whether the header at a position has all of these pieces, in this order."""
        for piece in self.pieces:
            at = data.find(piece, at, header_end) + len(piece)
            if at < len(piece):
                return False
        return True


def learn_json_send(data: bytes, at: int, header_end: int) -> JsonSendShape | None:
    """The shape of the send request whose JSON header starts at a position; None if similar
    requests are unlikely."""
    header = data[at:header_end]
    said, found = read_json_send(header), [search(header) for search in _VARIES_IN_JSON]
    if said is None or not header.isascii():
        return None
    spans: list[tuple[int, int, int]] = []
    for nth, (one, name) in enumerate(zip(found, _NAMES_IN_JSON, strict=True)):
        if one is None or header.count(name) != 1:
            return None
        spans.append((*one.span(1), nth))
    ext, values = said.extFields, [header[begin:end] for begin, end, _ in spans]
    properties = values[2].replace(rb"\u0001", b"\1").replace(rb"\u0002", b"\2")
    told = [ext.e.encode(), ext.g.encode(), ext.i.encode(), b"%d" % said.opaque]
    spans.sort()
    ends = [0, *(end for _, end, _ in spans)]
    begins = [*(begin for begin, _, _ in spans), len(header)]
    pieces = [header[a:b] for a, b in zip(ends, begins, strict=True)]
    if (
        [*values[:2], properties, values[3]] != told
        or _odd_in_json(b"".join((properties, *pieces))) is not None
        or len(header) - len(ext.i) > _REST_MAX_IN_JSON
    ):
        return None
    return JsonSendShape(pieces, bytes(nth for _, _, nth in spans), said)

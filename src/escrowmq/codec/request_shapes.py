"""Learns shapes of requests: one client's sends and ENDs differ only in a few values.

A shape is all of a request's header except these values. It is learnt from one request that is
parsed as usual. The native lane finds the requests that have a shape (lane/alike.c), and their
values, by comparing bytes. A request of no known shape takes the general path.

In binary form each value has its size in front of it. In JSON it ends with a quote: if nothing else
is escaped, each quote begins or ends a string, so a name with a colon that occurs once is the name
of one field, and with another value in its place all other fields stay the same.
"""

from __future__ import annotations

import re
import struct
from typing import Final, NamedTuple

from escrowmq.base.command import Command
from escrowmq.base.own_properties import WANTS_ID, WANTS_SAFETY
from escrowmq.codec.binary_header import field_spans
from escrowmq.codec.command import BINARY, JSON, decode_header
from escrowmq.codec.headers import EndTransactionHeader, SendHeaderV2, read_header
from escrowmq.codec.own_signature import NUMBER
from escrowmq.codec.signature import ACCESS_KEY, SIGNATURE, signed_content
from escrowmq.errors import EscrowMQError

_FRONT_SIZE: Final = 8
_OPAQUE: Final = slice(5, 9)
_REMARK: Final = slice(13, 17)
_FIELDS_AT: Final = 21
_SIZE: Final = struct.Struct(">I")
_FRONT: Final = struct.Struct(">II")

OPAQUE, FIELDS_SIZE, _OWN = range(3)
"""Numbers of values that every request has. A header in JSON has no FIELDS_SIZE."""

QUEUE, BORN, PROPERTIES, _SIGNATURE = range(_OWN, _OWN + 4)
NEVER_ALIKE: Final = {NUMBER, "_UNIQUE_KEY_QUERY"}
"""Fields of signed requests that differ each time, or that signatures do not cover. Such requests
have no shape."""

_JSON_REST_MAX: Final = 2048
"""The longest JSON header, without its properties, that is learnt. A longer one has unexpected
fields."""

_OPAQUE_IN_JSON: Final = re.compile(rb'"opaque":([0-9]+)').search
_is_odd_in_json: Final = re.compile(rb'"\s|\\').search
"""Whether a JSON header has spaces or escapes. Without these, a name that occurs once is that of
one field."""


class RequestKind(NamedTuple):
    """A kind of requests, and the fields in which requests of one shape may differ."""

    header: type[SendHeaderV2 | EndTransactionHeader]
    varies: tuple[str, ...]
    always: int
    """The number of these fields, from the first on, that each request must have."""


SEND: Final = RequestKind(SendHeaderV2, ("e", "g", "i", SIGNATURE), 3)
END: Final = RequestKind(
    EndTransactionHeader, ("tranStateTableOffset", "commitLogOffset", "transactionId", "msgId"), 4
)
_END_NAMES: Final = {
    *END.varies,
    *("producerGroup", "bname", "topic", "commitOrRollback", "fromTransactionCheck"),
}

_Span = tuple[int, int, int]
"""A value in a header: its start, its end, and its number."""


class RequestShape:
    """The shape of requests, and the request from which it was learnt."""

    __slots__ = ("command", "header", "is_json", "order", "pieces", "signed")

    def __init__(
        self, raw: bytes, spans: list[_Span], command: Command,
        header: SendHeaderV2 | EndTransactionHeader,
    ) -> None:  # fmt: skip
        self.is_json = not command.is_binary
        size_before = 0 if self.is_json else _SIZE.size
        pieces, at = [], 0
        for begin, end, which in spans:
            pieces.append(raw[at : begin - (size_before if which >= _OWN else 0)])
            at = end
        self.pieces = (*pieces, raw[at:])
        """The parts of the header before each value, and after the last one."""
        self.order = bytes(which for _, _, which in spans)
        """The numbers of the values, in their order in the header."""
        self.command, self.header = command, header
        self.signed: SignedContent | None = None
        ext = command.ext or {}
        if ext.get(ACCESS_KEY) and SIGNATURE in ext:
            self.signed = SignedContent(ext)

    @property
    def wants_id(self) -> bool:
        """Whether such a request asks for a signed id of its half."""
        return (self.command.ext or {}).get(WANTS_ID) == "true"

    def frame(self, values: dict[int, bytes], body: bytes) -> bytes:
        """Return a request of this shape in binary form, with these values."""
        parts = list(self.pieces[:2])
        parts.insert(1, values[OPAQUE])
        fields = [self.pieces[2]]
        for which, piece in zip(self.order[_OWN:], self.pieces[_OWN + 1 :], strict=True):
            value = values[which]
            fields += (_SIZE.pack(len(value)), value, piece)
        text = b"".join(fields)
        size = _FIELDS_AT + len(text)
        front = _FRONT.pack(4 + size + len(body), BINARY << 24 | size)
        return b"".join((front, *parts, _SIZE.pack(len(text)), text, body))


class SignedContent:
    """The signed content that requests of one shape share: the values of their fields, sorted by
    name."""

    def __init__(self, ext: dict[str, str]) -> None:
        self.access_key = ext[ACCESS_KEY]
        places = [f"\0{nth}\0" for nth in range(3)]
        text = signed_content(ext | dict(zip(SEND.varies, places, strict=False)))
        self._parts = re.split(rb"\0[012]\0", text)
        self._order = [int(digit) for digit in re.findall(rb"\0([012])\0", text)]

    def content(self, queue: bytes, born: bytes, properties: bytes) -> bytes:
        """Return the signed content of one request, without its body."""
        values = queue, born, properties
        first, *rest = self._parts
        return first + b"".join(
            [values[nth] + part for nth, part in zip(self._order, rest, strict=True)]
        )


def learn_shape(data: bytes, at: int, header_end: int, kind: RequestKind) -> RequestShape | None:
    """Return the shape of the request whose frame starts at a position. Return None if the request
    is invalid, or similar ones are unlikely."""
    raw = data[at + _FRONT_SIZE : header_end]
    try:
        command = decode_header(raw, data[at + 4])
        header = read_header(kind.header, command.ext)
    except EscrowMQError:
        return None
    ext = command.ext or {}
    if kind is END and not ext.keys() <= _END_NAMES:
        return None
    if WANTS_SAFETY in ext or (SIGNATURE in ext and not NEVER_ALIKE.isdisjoint(ext)):
        return None
    spans = (
        _json_value_spans(raw, command, kind)
        if data[at + 4] == JSON
        else _value_spans(raw, ext, kind)
    )
    return RequestShape(raw, sorted(spans), command, header) if spans else None


def _value_spans(raw: bytes, ext: dict[str, str], kind: RequestKind) -> list[_Span]:
    """Return the values in a binary header. Return none if it has a remark, an empty value, or more
    bytes than its fields take."""
    size = int.from_bytes(raw[_FIELDS_AT - _SIZE.size : _FIELDS_AT], "big")
    if raw[_REMARK] != bytes(_SIZE.size) or size != len(raw) - _FIELDS_AT:
        return []
    found = field_spans(raw, _FIELDS_AT, len(raw))
    spans = [(_OPAQUE.start, _OPAQUE.stop, OPAQUE), (_FIELDS_AT - 4, _FIELDS_AT, FIELDS_SIZE)]
    for nth, name in enumerate(kind.varies):
        if name.encode() in found and (name in ext or name == "i"):
            spans.append((*found[name.encode()], _OWN + nth))
        elif nth < kind.always:
            return []
    return spans


def _json_value_spans(raw: bytes, command: Command, kind: RequestKind) -> list[_Span]:
    """Return the values in a JSON header. Return none if the header is not in the usual form."""
    opaque, ext = _OPAQUE_IN_JSON(raw), command.ext or {}
    if opaque is None or raw.count(b'"opaque":') != 1 or not raw.isascii():
        return []
    spans, means = [(*opaque.span(1), OPAQUE)], [b"%d" % command.opaque]
    for nth, name in enumerate(kind.varies):
        if name not in ext:
            if nth < kind.always:
                return []
            continue
        quoted = b'"%b":' % name.encode()
        value = re.search(quoted + rb'"([^"]*)"', raw)
        if value is None or raw.count(quoted) != 1:
            return []
        spans.append((*value.span(1), _OWN + nth))
        means.append(ext[name].encode())
    values = [raw[begin:end] for begin, end, _ in spans]
    said = [value.replace(rb"\u0001", b"\1").replace(rb"\u0002", b"\2") for value in values]
    rest = raw
    for begin, end, which in sorted(spans, reverse=True):
        rest = rest[:begin] + said[[one[2] for one in spans].index(which)] + rest[end:]
    is_plain = said == means and _is_odd_in_json(rest) is None
    return spans if is_plain and len(raw) - len(ext.get("i", "")) <= _JSON_REST_MAX else []

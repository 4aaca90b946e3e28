"""Recognises requests that a connection repeats with a few different numbers: pulls, and committed
offsets.

The first of a kind is parsed as usual. The native lane (lane/repeats.c) finds those that follow:
all their bytes are equal except for the numbers. Each gets a copy of the first one's header with
its own numbers.
"""

from __future__ import annotations

import struct
from operator import methodcaller
from typing import Final, NamedTuple

import msgspec

from escrowmq.base.codes import Request
from escrowmq.base.command import Command, RepeatedRequest
from escrowmq.codec.binary_header import field_spans
from escrowmq.codec.command import BINARY, decode_header
from escrowmq.codec.headers import CommitOffsetHeader, HeaderError, PullHeader, read_header
from escrowmq.lane import native
from escrowmq.lane.native import LaneRepeated


class VaryingNumber(NamedTuple):
    """A number that differs between repetitions: the header's attribute, and how many digits it may
    have."""

    attribute: str
    digits_max: int


_QUEUE: Final = {b"queueId": VaryingNumber("queue_id", 9)}
_COMMIT: Final = {b"commitOffset": VaryingNumber("commit_offset", 18)}
_PULL: Final = {**_QUEUE, b"queueOffset": VaryingNumber("queue_offset", 18), **_COMMIT}
REPEATED: Final[dict[int, tuple[type[msgspec.Struct], dict[bytes, VaryingNumber]]]] = {
    Request.PULL_MESSAGE: (PullHeader, _PULL),
    Request.LITE_PULL_MESSAGE: (PullHeader, _PULL),
    Request.UPDATE_CONSUMER_OFFSET: (CommitOffsetHeader, {**_QUEUE, **_COMMIT}),
}
"""By request code: the header type, and the fields that vary."""

_Span = tuple[int, int, VaryingNumber]
"""A number in a header: its start, its end, and which field it is."""

_FRONT_SIZE: Final = 8
"""The size of a frame's first fields: the sizes of the frame and of its header."""

_PLACE: Final = struct.Struct("=ii")
"""Encodes start and end of a number for the native lane."""

_SIZE_MAX: Final = 512
"""The largest header that is learnt."""

_KEPT_MAX: Final = 128
_COST: Final = 8
_CREDIT_MAX: Final = 64
"""The most credit of a connection. Learning a request costs credit, and each repetition earns
some."""

_OPAQUE_AT: Final = 5
_OPAQUE_END: Final = 9
_FIELDS_AT: Final = 21
"""The position of the fields in a header without remark."""

_REMARK_SIZE: Final = slice(13, 17)
_FIELDS_SIZE: Final = slice(17, 21)
_NONE: Final = bytes(4)
_copy: Final = methodcaller("__copy__")
"""Copies an object like `copy.copy`, in half the time."""


class RequestTemplate:
    """A request that was parsed, as a template for its repetitions."""

    __slots__ = ("command", "names", "plan")

    def __init__(self, command: RepeatedRequest, names: tuple[str, ...]) -> None:
        self.command = command
        self.names = names
        """The attributes of its header that vary, in their order in the header."""
        self.plan: object = None
        """Data that the code that serves these requests has attached."""

    def attach_plan(self, plan: object) -> None:
        """Attach data, to serve the repetitions faster."""
        self.plan = plan


Match = tuple[RequestTemplate, int, list[int], int]
"""A repetition of a known request: the template, its opaque, its numbers in order, and its end."""


class RepeatedRequests:
    """The requests that one connection repeats. Without the native lane, all requests are parsed as
    usual."""

    __slots__ = ("_constants", "_credit", "_given")

    def __init__(self) -> None:
        self._credit = _CREDIT_MAX
        self._constants: set[tuple[bytes, ...]] = set()
        """Identifies the known requests: the positions of their numbers, and the bytes around
        them."""
        self._given: dict[int, list[LaneRepeated]] = {}
        """The known requests, by the size of their headers, for the native lane."""

    def decode(self, data: bytes, kind: int) -> Command:
        """Decode a header, and learn the request for its repetitions. Raises RemoteProtocolError if
        it is invalid."""
        command = decode_header(data, kind)
        if (
            native.find_repeated is not None
            and command.is_binary
            and command.code in REPEATED
            and len(data) <= _SIZE_MAX
        ):
            self._learn_template(command, data)
        return command

    def find(self, data: bytes, at: int) -> Match | None:
        """Return the repetition at a position of the input. Return None if the request there is
        unknown, incomplete, or has a body or a number in an unusual form."""
        if native.find_repeated is None:
            return None
        match = native.find_repeated(data, at, self._given)
        if match is not None and self._credit < _CREDIT_MAX:
            self._credit += 1
        return match

    def _learn_template(self, command: Command, data: bytes) -> None:
        """Learn a request, so that its repetitions are found."""
        if self._credit < _COST:
            self._credit += 1
            return
        self._credit -= _COST
        kind, varying = REPEATED[command.code]
        spans = _number_spans(data, varying)
        if not spans:
            return
        try:
            header = read_header(kind, command.ext)
        except HeaderError:
            return
        if len(self._constants) >= _KEPT_MAX:
            self._constants.clear()
            self._given.clear()
        places = b"".join([_PLACE.pack(begin, end) for begin, end, _ in spans])
        constants = (places, *_bytes_around(data, spans))
        if constants in self._constants:
            return  # known already: only a number was in an unusual form
        repeated = RepeatedRequest(
            code=command.code,
            flag=command.flag,
            version=command.version,
            language=command.language,
            is_binary=True,
            header=header,
            raw=b"",
        )
        known = RequestTemplate(repeated, tuple(varying.attribute for _, _, varying in spans))
        self._constants.add(constants)
        self._given.setdefault(len(data), []).append((data, places, known))


def with_text_fields(command: Command) -> Command:
    """Return a command with its fields as text, for code that needs more than its typed header."""
    if type(command) is not RepeatedRequest:
        return command
    found = decode_header(command.raw, BINARY)
    found.body = command.body
    return found


def repeated_command(match: Match, data: bytes, at: int) -> RepeatedRequest:
    """Return the command of a repetition at a position of the input."""
    known, opaque, numbers, end = match
    found: RepeatedRequest = _copy(known.command)
    found.header = _copy(found.header)
    for name, number in zip(known.names, numbers, strict=True):
        setattr(found.header, name, number)
    found.opaque, found.raw = opaque, data[at + _FRONT_SIZE : end]
    return found


def _bytes_around(data: bytes, spans: list[_Span]) -> list[bytes]:
    """Return the parts of a header around its opaque and its numbers."""
    pieces, at = [data[:_OPAQUE_AT]], _OPAQUE_END
    for begin, end, _ in spans:
        pieces.append(data[at:begin])
        at = end
    return [*pieces, data[at:]]


def _number_spans(data: bytes, varying: dict[bytes, VaryingNumber]) -> list[_Span]:
    """Return the numbers in a decoded header, in order. Return none if one has too many digits, a
    name is repeated, or the header has more bytes than its fields take."""
    fields_size = int.from_bytes(data[_FIELDS_SIZE], "big")
    if data[_REMARK_SIZE] != _NONE or fields_size != len(data) - _FIELDS_AT:
        return []
    spans = [
        (begin, end, varying[name])
        for name, (begin, end) in field_spans(data, _FIELDS_AT, len(data)).items()
        if name in varying
    ]
    fit = all(0 < end - begin <= number.digits_max for begin, end, number in spans)
    return spans if fit else []

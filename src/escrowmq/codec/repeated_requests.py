"""Requests that a connection repeats with a few different numbers: pulls, and committed offsets.

The first of a kind is parsed as usual. The native lane (lane/repeats.c) finds those that follow:
all their bytes are the same except for the numbers. They get a copy of the first one's header with
their own numbers."""

from __future__ import annotations

import struct
from operator import methodcaller
from typing import Final, NamedTuple

import msgspec

from escrowmq.base.codes import Request
from escrowmq.base.command import Command, Repeated
from escrowmq.codec.binary_header import field_spans
from escrowmq.codec.command import BINARY, decode_header
from escrowmq.codec.headers import CommitHeader, HeaderError, PullHeader, read_header
from escrowmq.lane import native
from escrowmq.lane.native import RepeatedGiven


class Varying(NamedTuple):
    """A number that differs between similar requests."""

    attribute: str
    digits_max: int


_QUEUE: Final = {b"queueId": Varying("queue_id", 9)}
_COMMIT: Final = {b"commitOffset": Varying("commit_offset", 18)}
_PULL: Final = {**_QUEUE, b"queueOffset": Varying("queue_offset", 18), **_COMMIT}
REPEATED: Final[dict[int, tuple[type[msgspec.Struct], dict[bytes, Varying]]]] = {
    Request.PULL_MESSAGE: (PullHeader, _PULL),
    Request.LITE_PULL_MESSAGE: (PullHeader, _PULL),
    Request.UPDATE_CONSUMER_OFFSET: (CommitHeader, {**_QUEUE, **_COMMIT}),
}
"""The fields of these requests, and which of them vary."""

_Span = tuple[int, int, Varying]
"""Start and end of a number in a header, and which one it is."""

_FRONT_SIZE: Final = 8
"""The sizes of a frame and of its header."""

_PLACE: Final = struct.Struct("=ii")
"""Start and end of a number, for the native lane."""

_SIZE_MAX: Final = 512
"""Largest cached header."""

_KEPT_MAX: Final = 128
_COST: Final = 8
_CREDIT_MAX: Final = 64
"""A connection may learn one request per this many repetitions, and some at first."""

_OPAQUE_AT: Final = 5
_OPAQUE_END: Final = 9
_FIELDS_AT: Final = 21
"""Without a remark."""

_REMARK_SIZE: Final = slice(13, 17)
_FIELDS_SIZE: Final = slice(17, 21)
_NONE: Final = bytes(4)
_copy: Final = methodcaller("__copy__")
"""Like `copy.copy`, in half of the time."""


class RequestTemplate:
    """A request that others repeat."""

    __slots__ = ("command", "names", "plan")

    def __init__(self, command: Repeated, names: tuple[str, ...]) -> None:
        self.command = command
        self.names = names
        """The attributes of its header that vary, in their order."""
        self.plan: object = None
        """Further data of the code that serves these requests."""

    def attach_plan(self, plan: object) -> None:
        """Attach data for the requests that follow."""
        self.plan = plan


Match = tuple[RequestTemplate, int, list[int], int]
"""A repeated request, with its opaque, its numbers in order, and its end."""


class RepeatedRequests:
    """The repeated requests of one connection. Without the native lane none is known, and all are
    parsed as usual."""

    __slots__ = ("_constants", "_credit", "_given")

    def __init__(self) -> None:
        self._credit = _CREDIT_MAX
        self._constants: set[tuple[bytes, ...]] = set()
        """Of each known request, the places of its numbers and the bytes around them."""
        self._given: dict[int, list[RepeatedGiven]] = {}
        """The known requests, by the size of their headers."""

    def decode(self, data: bytes, kind: int) -> Command:
        """Decode a header and learn from it; raises RemoteProtocolError if it is invalid."""
        command = decode_header(data, kind)
        if (
            native.find_repeated is not None
            and command.is_binary
            and command.code in REPEATED
            and len(data) <= _SIZE_MAX
        ):
            self._learn(command, data)
        return command

    def find(self, data: bytes, at: int) -> Match | None:
        """The known request that is repeated at a position of the input. None if it is another one,
        has a body, or is incomplete, or if one of its numbers is not in clients' usual form: other
        forms may mean the same, or be invalid."""
        if native.find_repeated is None:
            return None
        match = native.find_repeated(data, at, self._given)
        if match is not None and self._credit < _CREDIT_MAX:
            self._credit += 1
        return match

    def _learn(self, command: Command, data: bytes) -> None:
        """Learn this request, so that the next similar one is a repetition."""
        if self._credit < _COST:
            self._credit += 1
            return
        self._credit -= _COST
        kind, varying = REPEATED[command.code]
        spans = _spans(data, varying)
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
        constants = (places, *_around(data, spans))
        if constants in self._constants:
            return  # it was found, except for a number that is unusual
        repeated = Repeated(
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
    """The command with its fields as text, for code that needs more than its header."""
    if type(command) is not Repeated:
        return command
    found = decode_header(command.raw, BINARY)
    found.body = command.body
    return found


def command_of(match: Match, data: bytes, at: int) -> Repeated:
    """The command of a match at a position of the input."""
    known, opaque, numbers, end = match
    found: Repeated = _copy(known.command)
    found.header = _copy(found.header)
    for name, number in zip(known.names, numbers, strict=True):
        setattr(found.header, name, number)
    found.opaque, found.raw = opaque, data[at + _FRONT_SIZE : end]
    return found


def _around(data: bytes, spans: list[_Span]) -> list[bytes]:
    """A header without its opaque and its numbers."""
    pieces, at = [data[:_OPAQUE_AT]], _OPAQUE_END
    for begin, end, _ in spans:
        pieces.append(data[at:begin])
        at = end
    return [*pieces, data[at:]]


def _spans(data: bytes, varying: dict[bytes, Varying]) -> list[_Span]:
    """The positions of the numbers in a decoded header, in order; none if one of them has too many
    digits, a name is repeated, or the header has more bytes than its fields take."""
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

"""Frequent replies that differ only in their opaque, such as success or an empty pop. (Those to
pulls differ in offsets too: codec/pulled_reply.)

They are encoded once, and cached as the bytes before and after the opaque. Measured, for one with
six fields: 1.2 µs, against 2.5 (binary) and 1.5 (JSON)."""

from __future__ import annotations

import struct
from typing import Final

from escrowmq.base.command import Command
from escrowmq.codec.command import BINARY, encode_reply

_KEPT_MAX: Final = 256
_FRONT: Final = struct.Struct(">II")
_FRONT_SIZE: Final = 8
_OPAQUE: Final = struct.Struct(">i")
_OPAQUE_AT: Final = _FRONT_SIZE + 5
_OPAQUE_NAME: Final = b'"language":"PYTHON","opaque":'
"""In JSON; inside a string the quotes would be escaped."""


class ReplyTemplate:
    """A reply without its opaque, and for JSON without the leading sizes."""

    __slots__ = ("back", "front", "is_binary", "size")

    def __init__(self, frame: bytes, opaque: int) -> None:
        self.is_binary = frame[4] == BINARY
        if self.is_binary:
            begin, end = 0, _OPAQUE_AT
            rest = end + _OPAQUE.size
        else:
            begin, end = _FRONT_SIZE, frame.index(_OPAQUE_NAME) + len(_OPAQUE_NAME)
            rest = end + len(str(opaque))
        self.front, self.back = frame[begin:end], frame[rest:]
        self.size = len(self.front) + len(self.back)

    def frame(self, opaque: int) -> bytes:
        """The whole frame."""
        if self.is_binary:
            return b"%b%b%b" % (self.front, _OPAQUE.pack(opaque), self.back)
        number = b"%d" % opaque
        size = self.size + len(number)
        return b"%b%b%b%b" % (_FRONT.pack(4 + size, size), self.front, number, self.back)


class ReplyTemplates:
    """A cache of recent replies."""

    def __init__(self) -> None:
        self._kept: dict[tuple[object, ...], ReplyTemplate] = {}

    def encode(
        self, request: Command, code: int, *, remark: str | None, ext: dict[str, str] | None
    ) -> bytes:
        """The frame of a reply without a body, in the form of the request."""
        key: tuple[object, ...] = (request.is_binary, code, remark, None)
        if ext is not None:  # no fields are written in another way than none at all
            key = (request.is_binary, code, remark, *ext, *ext.values())
        told = self._kept.get(key)
        if told is None:
            if len(self._kept) >= _KEPT_MAX:
                self._kept.clear()
            frame = encode_reply(request, code, remark=remark, ext=ext)
            told = self._kept[key] = ReplyTemplate(frame, request.opaque)
        return told.frame(request.opaque)

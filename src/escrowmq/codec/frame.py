"""Remoting frames, big-endian.

offset size field
     0    4 size          of what follows
     4    1 header kind   0 JSON, 1 binary
     5    3 header size
     8      header, then the body
"""

from __future__ import annotations

import struct
from typing import Final

from escrowmq.base.command import Command
from escrowmq.base.limits import FRAME_SIZE_MAX
from escrowmq.codec.command import decode_header
from escrowmq.errors import RemoteProtocolError

_FRONT: Final = struct.Struct(">iBBH")
_FRONT_SIZE: Final = _FRONT.size


class FrameReader:
    """Bytes in, commands out. Once `broken` is set nothing more comes: close the connection."""

    __slots__ = ("_held", "_needed", "broken")

    def __init__(self) -> None:
        self._held = bytearray()
        self._needed = _FRONT_SIZE
        self.broken: RemoteProtocolError | None = None

    def feed(self, data: bytes) -> list[Command]:
        """The commands that are whole now; those in front of a broken frame are still given."""
        if self.broken is not None:
            return []
        if self._held:
            self._held += data
            if len(self._held) < self._needed:
                return []
            data = bytes(self._held)
            self._held = bytearray()
        commands: list[Command] = []
        try:
            end = self._parse(data, commands)
        except RemoteProtocolError as error:
            self.broken = error
            return commands
        if end < len(data):
            self._held += data[end:]
        return commands

    def _parse(self, data: bytes, commands: list[Command]) -> int:
        """Parse whole frames; where the first incomplete one starts."""
        at = 0
        left = len(data)
        while left >= _FRONT_SIZE:
            size, kind, high, low = _FRONT.unpack_from(data, at)
            header_size = high << 16 | low
            if not 4 + header_size <= size <= FRAME_SIZE_MAX - 4:
                raise RemoteProtocolError(
                    f"frame of {size} bytes with a header of {header_size}; "
                    f"at most {FRAME_SIZE_MAX - 4} are allowed, and the header must fit"
                )
            frame_size = size + 4
            if frame_size > left:
                self._needed = frame_size
                return at
            header_end = at + _FRONT_SIZE + header_size
            command = decode_header(data[at + _FRONT_SIZE : header_end], kind)
            at += frame_size
            left -= frame_size
            if header_end < at:
                command.body = data[header_end:at]
            commands.append(command)
        self._needed = _FRONT_SIZE
        return at

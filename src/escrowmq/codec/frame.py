"""Remoting frames, big-endian.

offset size field
     0    4 size          of what follows
     4    1 header kind   0 JSON, 1 binary
     5    3 header size
     8      header, then the body
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import Final

from escrowmq.base.command import Command
from escrowmq.base.limits import FRAME_SIZE_MAX, FRAME_TIME_MAX_MS
from escrowmq.codec.command import decode_header
from escrowmq.errors import RemoteProtocolError

_FRONT: Final = struct.Struct(">iBBH")
_FRONT_SIZE: Final = _FRONT.size


class FrameReader:
    """Bytes in, commands out. Once `broken` is set nothing more comes: close the connection."""

    __slots__ = ("_held", "_needed", "broken", "count")

    def __init__(self) -> None:
        self._held = bytearray()
        self._needed = _FRONT_SIZE
        self.count = 0
        self.broken: RemoteProtocolError | None = None

    @property
    def is_partial(self) -> bool:
        """Whether a frame has begun and is not whole yet."""
        return bool(self._held)

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
        self.count += len(commands)
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


class FrameWatch:
    """Finds those who begin a frame and do not end it, however many bytes they send meanwhile."""

    def __init__(self) -> None:
        self._begun: dict[FrameReader, tuple[int, int]] = {}

    def overdue(self, readers: Iterable[tuple[int, FrameReader]], now_ms: int) -> list[int]:
        """The peers whose frame has been incomplete for too long. Ask now and then: a frame
        counts as begun from the first look that finds it."""
        begun: dict[FrameReader, tuple[int, int]] = {}
        found = []
        for peer, reader in readers:
            if not reader.is_partial:
                continue
            count, since_ms = self._begun.get(reader, (reader.count, now_ms))
            if count != reader.count:  # another frame by now
                since_ms = now_ms
            begun[reader] = (reader.count, since_ms)
            if now_ms - since_ms >= FRAME_TIME_MAX_MS:
                found.append(peer)
        self._begun = begun
        return found

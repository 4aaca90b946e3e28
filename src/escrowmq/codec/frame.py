"""Remoting frames, big-endian.

offset size field
     0    4 size          of what follows
     4    1 header kind   0 JSON, 1 binary
     5    3 header size
     8      header, then the body
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable
from typing import Final, Protocol

from escrowmq.base.command import Command
from escrowmq.base.fixed_limits import FRAME_SIZE_MAX, FRAME_TIME_MAX_MS, HEADER_SIZE_MAX
from escrowmq.codec.command import decode_header
from escrowmq.errors import RemoteProtocolError

_FRONT: Final = struct.Struct(">iBBH")
_FRONT_SIZE: Final = _FRONT.size


class FrameReader:
    """Reads commands from the bytes of one connection. Once `broken` is set, it reads nothing more:
    close the connection."""

    __slots__ = (
        "_back",
        "_held",
        "_needed",
        "_room",
        "broken",
        "count",
        "frame_size_max",
        "header_size_max",
    )

    def __init__(
        self,
        partial_frames: PartialFrames | None = None,
        *,
        frame_size_max: int = FRAME_SIZE_MAX,
        header_size_max: int = HEADER_SIZE_MAX,
    ) -> None:
        self._held = bytearray()
        self._back = b""
        self._needed = _FRONT_SIZE
        self._room = partial_frames
        self.frame_size_max = frame_size_max
        self.header_size_max = header_size_max
        self.count = 0
        self.broken: RemoteProtocolError | None = None

    def lift_stranger_limits(self, room: PartialFrames) -> None:
        """Apply the limits for authenticated clients from now on, also to the incomplete frame."""
        self.release_space()
        self._room, self.frame_size_max = room, FRAME_SIZE_MAX
        if self._held:
            room.set_size(self, len(self._held))

    def release_space(self) -> None:
        """Release the space of the incomplete frame: the frame is complete, or the peer has
        disconnected."""
        if self._room is not None:
            self._room.release_space(self)

    def drop_input(self, reason: str) -> None:
        """Drop the incomplete frame, and read nothing more."""
        self.broken = RemoteProtocolError(reason)
        self._held = bytearray()

    @property
    def is_partial(self) -> bool:
        """Whether there is an incomplete frame."""
        return bool(self._held)

    def put_back(self, data: bytes, at: int) -> None:
        """Keep the bytes from a position on for the connection's next turn."""
        self._back = data[at:]

    @property
    def has_put_back(self) -> bool:
        """Whether bytes were put back."""
        return bool(self._back)

    def bytes_to_read(self, data: bytes) -> bytes:
        """Return the bytes to read: those put back, those of the incomplete frame, and the new
        ones. Return no bytes while the frame is still incomplete."""
        if self._back:
            data, self._back = self._back + data, b""
        if self.broken is not None:
            return b""
        if not self._held:
            return data
        self._held += data
        if len(self._held) < self._needed:
            self._record_size()
            return b""
        data = bytes(self._held)
        self._held = bytearray()
        self.release_space()
        return data

    def next_command(
        self, data: bytes, at: int, decode: Callable[[bytes, int], Command] = decode_header
    ) -> tuple[Command, int] | None:
        """Return the command at a position of the bytes from `bytes_to_read`, and the position
        after it. `decode` decodes its header. Return None if the frame is incomplete; its bytes are
        kept."""
        left = len(data) - at
        if left >= _FRONT_SIZE:
            size, kind, high, low = _FRONT.unpack_from(data, at)
            header_end, end = at + _FRONT_SIZE + (high << 16 | low), at + size + 4
            try:
                if not header_end <= end <= at + self.frame_size_max or (
                    high << 16 | low > self.header_size_max
                ):
                    raise self._size_error(size, high << 16 | low)
                if size + 4 <= left:
                    command = decode(data[at + _FRONT_SIZE : header_end], kind)
                    if header_end < end:
                        command.body = data[header_end:end]
                    self.count += 1
                    return command, end
            except RemoteProtocolError as error:
                self.broken = error
                return None
            self._needed = size + 4
        else:
            self._needed = _FRONT_SIZE
        if left:
            self._held += data[at:]
            self._record_size()
        return None

    def read_commands(self, data: bytes) -> list[Command]:
        """Return the complete commands in these bytes. Those before a broken frame are still
        returned."""
        data, at = self.bytes_to_read(data), 0
        commands = []
        while (found := self.next_command(data, at)) is not None:
            command, at = found
            commands.append(command)
        return commands

    def _record_size(self) -> None:
        if self._room is not None:
            self._room.set_size(self, len(self._held))

    def _size_error(self, size: int, header_size: int) -> RemoteProtocolError:
        return RemoteProtocolError(
            f"frame of {size} bytes with a header of {header_size}; at most "
            f"{self.frame_size_max - 4} are allowed, {self.header_size_max} of them for the "
            "header, which must fit"
        )


class PartialReader(Protocol):
    """An object that holds incomplete input."""

    def drop_input(self, reason: str) -> None:
        """Drop the incomplete input, and read nothing more."""


class PartialFrames:
    """Tracks the incomplete frames of many peers, and limits their total size. Beyond the limit,
    the oldest is dropped, because an honest sender completes its frame soon."""

    def __init__(self, size_max: int) -> None:
        self._size_max = size_max
        self._sizes: dict[PartialReader, int] = {}
        self.size = 0
        self.given_up_count = 0

    def set_size(self, reader: PartialReader, size: int) -> None:
        """Set the present size of a reader's incomplete frame. Drop the oldest frames if the total
        exceeds the limit."""
        self.size += size - self._sizes.get(reader, 0)
        self._sizes[reader] = size
        while self.size > self._size_max:
            oldest = next(iter(self._sizes))
            self.release_space(oldest)
            self.given_up_count += 1
            oldest.drop_input(
                f"half frames of all peers are more than {self._size_max} bytes, and this one "
                "began first; send frames whole"
            )

    def release_space(self, reader: PartialReader) -> None:
        """Release the space of a reader's incomplete frame, which was completed or dropped."""
        self.size -= self._sizes.pop(reader, 0)


class FrameTimeouts:
    """Finds peers that do not complete a frame, however many bytes they send meanwhile."""

    def __init__(self) -> None:
        self._begun: dict[FrameReader, tuple[int, int]] = {}

    def overdue_peers(self, readers: Iterable[tuple[int, FrameReader]], now_ms: int) -> list[int]:
        """Return the peers whose frame has been incomplete for too long, or was dropped. Call it
        periodically: a frame's time counts from the first call that finds it."""
        begun: dict[FrameReader, tuple[int, int]] = {}
        found = []
        for peer, reader in readers:
            if reader.broken is not None:
                found.append(peer)
            if not reader.is_partial:
                continue
            count, since_ms = self._begun.get(reader, (reader.count, now_ms))
            if count != reader.count:  # another frame has begun
                since_ms = now_ms
            begun[reader] = (reader.count, since_ms)
            if now_ms - since_ms >= FRAME_TIME_MAX_MS:
                found.append(peer)
        self._begun = begun
        return found

"""config/timercheck: how far the timer's topic is delivered.

4096 bytes, big-endian; RocketMQ reads and writes the first 56
  offset size field
       0    8 read time            slots before this time are delivered
       8    8 timer log position   0: there is no timer log of ours
      16    8 queue offset         from here on RocketMQ reads the topic again
      24    8 master's queue offset
      32    8 state version        40 8 timestamp     48 8 counter
    2048    8 "ESCROWMQ"
    2056    8 taken                2064 8 border, time  2072 8 border, queue offset
    2080    8 log offset           from here on the log may hold deliveries not recorded here
    2088    4 CRC-32               of the first 56 bytes and of 2048..2088
"""

from __future__ import annotations

import struct
import zlib
from typing import Final, NamedTuple

from escrowmq.base.ports import Disk

PATH: Final = "config/timercheck"
WHEEL: Final = "timerwheel"
TIMER_LOG: Final = "timerlog"
FILE_SIZE: Final = 4096

OFFSET_BITS: Final = 40
OFFSET_MASK: Final = (1 << OFFSET_BITS) - 1
_TIME_MAX: Final = (1 << 44) - 1

_HEAD: Final = struct.Struct(">7q")
_TAIL: Final = struct.Struct(">8s4q")
_VERSION_AT: Final = 32
_TAIL_AT: Final = 2048
_CRC: Final = struct.Struct(">I")
_MAGIC: Final = b"ESCROWMQ"


class TimerProgress(NamedTuple):
    """Which records of the timer's topic are delivered."""

    taken: int
    border: int
    oldest: int
    """No record before this queue offset is pending."""

    read_ms: int = 0
    """No pending record has a slot before this time."""


class RocketMQHead(NamedTuple):
    """The fields that RocketMQ has as well, except those that are always equal to others."""

    read_ms: int
    queue_offset: int
    counter: int


def delivery_key(time_ms: int, queue_offset: int) -> int:
    """Return the key of a record: a number that orders records by delivery time, then by queue
    offset."""
    return min(time_ms, _TIME_MAX) << OFFSET_BITS | queue_offset


def encode_head(state: TimerProgress, now_ms: int, counter: int) -> bytes:
    """Encode RocketMQ's TimerCheckpoint. Without a timer log, RocketMQ reads the topic from
    `oldest` on and skips records with a slot before `read_ms`. Delivered records that are neither
    are delivered again."""
    return _HEAD.pack(state.read_ms, 0, state.oldest, state.oldest, 0, now_ms, counter)


def encode_both_parts(head: bytes, state: TimerProgress, scan_from: int) -> bytes:
    """Return RocketMQ's part of the file followed by our part, without the bytes between them. This
    is the answer to a slave; RocketMQ's slaves read only the first part."""
    time_ms, queue_offset = state.border >> OFFSET_BITS, state.border & OFFSET_MASK
    tail = _TAIL.pack(_MAGIC, state.taken, time_ms, queue_offset, scan_from)
    return head + tail + _CRC.pack(zlib.crc32(head + tail))


def complete_file(parts: bytes) -> bytes:
    """Return the whole file, given RocketMQ's part alone or both parts as `encode_both_parts`
    returns them."""
    head, tail = parts[: _HEAD.size], parts[_HEAD.size :]
    return (head.ljust(_TAIL_AT, b"\0") + tail).ljust(FILE_SIZE, b"\0")[:FILE_SIZE]


def progress_part(parts: bytes) -> bytes:
    """Return those bytes of `encode_both_parts` that say the progress. The others change with each
    request."""
    return parts[:_VERSION_AT] + parts[_HEAD.size : _HEAD.size + _TAIL.size]


def check_file(data: bytes) -> None:
    """Raise ValueError if the file is torn or empty, so that neither RocketMQ nor we have written
    it like this."""
    if len(data) < FILE_SIZE:
        raise ValueError(f"it has {len(data)} bytes instead of {FILE_SIZE}")
    if not any(data):
        raise ValueError("there are only zeros in it")


def decode_head(data: bytes | None) -> RocketMQHead | None:
    """Decode RocketMQ's part of the file; None if there is none."""
    if data is None or len(data) < _HEAD.size:
        return None
    read_ms, _, queue_offset, _, _, _, counter = _HEAD.unpack_from(data)
    return RocketMQHead(read_ms, queue_offset, counter)


def decode_file(data: bytes | None) -> tuple[int, TimerProgress] | None:
    """Return log offset and progress from our part of the file; None if RocketMQ has written the
    file since, or our part was never written."""
    if data is None or len(data) < FILE_SIZE:
        return None
    tail = data[_TAIL_AT : _TAIL_AT + _TAIL.size]
    (crc,) = _CRC.unpack_from(data, _TAIL_AT + _TAIL.size)
    magic, taken, time_ms, queue_offset, log_offset = _TAIL.unpack(tail)
    # RocketMQ rewrites its 56 bytes and leaves ours as they are. So the checksum covers both.
    if magic != _MAGIC or zlib.crc32(data[: _HEAD.size] + tail) != crc:
        return None
    read_ms, _, oldest, *_ = _HEAD.unpack_from(data)
    return log_offset, TimerProgress(taken, time_ms << OFFSET_BITS | queue_offset, oldest, read_ms)


def rocketmq_files(disk: Disk) -> list[str]:
    """Return the paths of RocketMQ's timer log and wheel, as far as they exist. The wheel is the
    last."""
    paths = [f"{TIMER_LOG}/{name}" for name in disk.names(TIMER_LOG)]
    return paths if disk.size(WHEEL) is None else [*paths, WHEEL]

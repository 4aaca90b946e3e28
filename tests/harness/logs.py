"""Logs in memory for those who walk them."""

from __future__ import annotations

from collections.abc import Sequence

from escrowmq.base.message import Message
from escrowmq.codec.properties import encode_properties
from escrowmq.codec.record import encode_filler, encode_record
from escrowmq.codec.record_layout import FILLER_SIZE

STORED_MS = 1_700_000_000_000


class Bytes:
    """A log of segments (`codec.walker.Log`) that are bytes."""

    def __init__(self, segment_size: int) -> None:
        self.segment_size = segment_size
        self.segments: dict[int, bytearray] = {}

    @property
    def starts(self) -> list[int]:
        return sorted(self.segments)

    @property
    def end(self) -> int:
        return self.starts[-1] + self.segment_size if self.segments else 0

    def start_of(self, position: int) -> int:
        return position - position % self.segment_size

    def end_of(self, position: int) -> int:
        return self.start_of(position) + self.segment_size

    def has(self, position: int) -> bool:
        return self.start_of(position) in self.segments

    def read(self, position: int, size: int) -> bytes:
        start = self.start_of(position)
        return bytes(self.segments.get(start, b"")[position - start : position - start + size])

    def next_data_position(self, position: int) -> int:
        return position

    def write(self, position: int, data: bytes) -> None:
        start = self.start_of(position)
        segment = self.segments.setdefault(start, bytearray(self.segment_size))
        segment[position - start : position - start + len(data)] = data

    def flip(self, position: int) -> None:
        self.segments[self.start_of(position)][position % self.segment_size] ^= 0xFF


def record_at(
    message: Message, log_offset: int, *, queue_offset: int = 0, later_ms: int = 0
) -> bytes:
    return encode_record(
        message,
        properties=encode_properties(message.properties),
        queue_offset=queue_offset,
        log_offset=log_offset,
        stored_ms=STORED_MS + later_ms,
    )


def log_of(messages: Sequence[Message], segment_size: int = 4096) -> tuple[Bytes, list[int]]:
    """A log of these messages, and where they stand."""
    log, at, places = Bytes(segment_size), 0, []
    for number, message in enumerate(messages):
        record = record_at(message, at, queue_offset=number, later_ms=number)
        if at % segment_size + len(record) + FILLER_SIZE > segment_size:
            log.write(at, encode_filler(log.end_of(at) - at))
            at = log.end_of(at)
            record = record_at(message, at, queue_offset=number, later_ms=number)
        log.write(at, record)
        places.append(at)
        at += len(record)
    return log, places

"""Decides what can be stored, and encodes the less usual forms of messages."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import Final

from escrowmq.base.fixed_limits import TOPIC_QUEUES_MAX
from escrowmq.base.message import Message
from escrowmq.codec.crc import CRC_PROPERTY_SIZE, encode_crc_property
from escrowmq.codec.properties import encode_properties
from escrowmq.codec.record import encode_records
from escrowmq.codec.record_layout import RECORD_SIZE_MIN, V6_MORE
from escrowmq.codec.store_entries import is_path_safe
from escrowmq.store.results import PutResult, PutStatus

_OVERHEAD_MAX: Final = RECORD_SIZE_MIN + 2 * V6_MORE + 1
"""The largest size of a record's fixed fields: two IPv6 hosts and a long topic."""

Piece = tuple[int, bytes, bytes, dict[str, str]]
"""What differs between messages of a batch: flag, body, encoded properties, properties."""


def check_sent_message(
    message: Message,
    body_size: int,
    properties_size: int,
    *,
    body_size_max: int,
    properties_size_max: int,
) -> PutResult | None:
    """Return why a sender's message is refused; None when it is not. Only senders have a limit for
    the body: a message that was accepted with an earlier limit must remain deliverable."""
    if body_size > body_size_max:
        reason = f"body of {body_size} bytes, {body_size_max} allowed"
        return PutResult(PutStatus.MESSAGE_ILLEGAL, reason=reason)
    return check_message(message, properties_size, properties_size_max=properties_size_max)


def check_message(
    message: Message, properties_size: int, *, properties_size_max: int
) -> PutResult | None:
    """Return why no record can have a message; None when one can."""
    if properties_size > properties_size_max:
        reason = f"properties of {properties_size} bytes, {properties_size_max} allowed"
        return PutResult(PutStatus.PROPERTIES_SIZE_EXCEEDED, reason=reason)
    if not is_path_safe(message.topic) or not 0 <= message.queue_id < TOPIC_QUEUES_MAX:
        reason = f"no queue can be {message.topic!r}/{message.queue_id}"
        return PutResult(PutStatus.MESSAGE_ILLEGAL, reason=reason)
    return None


def too_large_result(size: int, size_max: int) -> PutResult:
    """Return the result for a message whose record fits into no segment."""
    reason = f"record of {size} bytes, segments take {size_max}"
    return PutResult(PutStatus.MESSAGE_ILLEGAL, reason=reason)


def record_size_max(message: Message) -> int:
    """Return the largest size that the record of a message can have."""
    properties_size = len(encode_properties(message.properties)) + CRC_PROPERTY_SIZE + 1
    return _OVERHEAD_MAX + len(message.body) + len(message.topic.encode()) + properties_size


def encode_pieces(
    message: Message,
    pieces: Sequence[Piece],
    *,
    queue_offset: int,
    log_offset: int,
    has_crc: bool,
    stored_ms: int,
) -> list[bytes]:
    """Encode consecutive records from a queue offset and a log offset on. With `has_crc`, each ends
    with RocketMQ's CRC property."""
    if has_crc:
        pieces = [
            (flag, body, with_final_separator(encoded) + bytes(CRC_PROPERTY_SIZE), properties)
            for flag, body, encoded, properties in pieces
        ]
    records = encode_records(
        message, pieces, queue_offset=queue_offset, log_offset=log_offset, stored_ms=stored_ms
    )
    return [_with_crc(record) for record in records] if has_crc else records


def with_final_separator(properties: bytes) -> bytes:
    """Return properties with a final 0x02, which clients leave out. Without it, a value that ends
    with a zero would look like a torn write."""
    return properties + b"\x02" if properties and properties[-1] != 2 else properties


def without_final_zeros(pieces: Sequence[Piece]) -> Sequence[Piece]:
    """Return the pieces, changed so that no encoded properties end with a zero."""
    if b"\0" not in [piece[2][-1:] for piece in pieces]:
        return pieces
    return [
        (
            flag,
            body,
            with_final_separator(encoded) if encoded[-1:] == b"\0" else encoded,
            properties,
        )
        for flag, body, encoded, properties in pieces
    ]


def _with_crc(record: bytes) -> bytes:
    """Fill in the CRC property, for which space was left at the end."""
    record = record[:-CRC_PROPERTY_SIZE]
    return record + encode_crc_property(record)


def with_crcs(records: bytes, sizes: Sequence[int]) -> bytes:
    """Return consecutive records with their CRC properties computed anew."""
    ends = accumulate(sizes)
    return b"".join(
        [_with_crc(records[end - size : end]) for size, end in zip(sizes, ends, strict=True)]
    )


def put_results(
    records: list[bytes], *, queue_offset: int, log_offset: int, stored_ms: int
) -> list[PutResult]:
    """Return the results for messages whose records were appended at these offsets."""
    puts = []
    for number, record in enumerate(records, queue_offset):
        log_end = log_offset + len(record)
        puts.append(PutResult(PutStatus.OK, log_offset, number, len(record), stored_ms, log_end))
        log_offset = log_end
    return puts

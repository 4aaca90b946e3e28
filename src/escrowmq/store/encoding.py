"""What can be stored, and as which bytes: the less usual forms of a put."""

from __future__ import annotations

from escrowmq.base.message import Message
from escrowmq.codec.record import encode_record
from escrowmq.store.answers import Put, PutStatus
from escrowmq.store.queues import is_path_safe
from escrowmq.store.scan import CRC_PROPERTY_SIZE, crc_property


def judge(
    message: Message, properties: bytes, body_size_max: int, properties_size_max: int
) -> Put | None:
    """Why a message cannot be stored; None when it can."""
    if len(message.body) > body_size_max:
        reason = f"body of {len(message.body)} bytes, {body_size_max} allowed"
        return Put(PutStatus.MESSAGE_ILLEGAL, reason=reason)
    if len(properties) > properties_size_max:
        reason = f"properties of {len(properties)} bytes, {properties_size_max} allowed"
        return Put(PutStatus.PROPERTIES_SIZE_EXCEEDED, reason=reason)
    if not is_path_safe(message.topic) or message.queue_id < 0:
        reason = f"no queue can be {message.topic!r}/{message.queue_id}"
        return Put(PutStatus.MESSAGE_ILLEGAL, reason=reason)
    return None


def encode_with_crc(
    message: Message, properties: bytes, queue_offset: int, log_offset: int, stored_ms: int
) -> bytes:
    """A record with the peer's CRC property at its end. Positional: once a message."""
    if properties and properties[-1] != 2:
        properties += b"\x02"
    record = encode_record(
        message,
        properties=properties + bytes(CRC_PROPERTY_SIZE),
        queue_offset=queue_offset,
        log_offset=log_offset,
        stored_ms=stored_ms,
    )[:-CRC_PROPERTY_SIZE]
    return record + crc_property(record)


def encode_batch(
    batch: list[tuple[Message, bytes]],
    queue_offset: int,
    log_offset: int,
    *,
    has_crc: bool,
    stored_ms: int,
) -> list[bytes]:
    """Records one behind another, from a queue offset and a log offset on."""
    records = []
    for message, properties in batch:
        if has_crc:
            record = encode_with_crc(message, properties, queue_offset, log_offset, stored_ms)
        else:
            record = encode_record(
                message,
                properties=properties,
                queue_offset=queue_offset,
                log_offset=log_offset,
                stored_ms=stored_ms,
            )
        records.append(record)
        log_offset += len(record)
        queue_offset += 1
    return records

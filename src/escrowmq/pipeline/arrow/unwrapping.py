"""Splits records that contain several messages (sysFlag INNER_BATCH and NEED_UNWRAP) into one
record each."""

from __future__ import annotations

from escrowmq.base.message import Property, StoredMessage, SysFlag
from escrowmq.codec.batch_body import decode_batch
from escrowmq.codec.compression import decompress
from escrowmq.codec.properties import encode_properties, parse_properties
from escrowmq.codec.record import decode_record, encode_record
from escrowmq.errors import CorruptRecord, RemoteProtocolError
from escrowmq.pipeline.arrow.cells import Numbers

BATCH: int = SysFlag.INNER_BATCH | SysFlag.NEED_UNWRAP


def split_inner_batches(data: bytes, starts: Numbers, sys_flag: Numbers) -> bytes:
    """Replace each record that contains several messages by one record per message. Only records
    that are flagged for it are split (like RocketMQ's PullAPIWrapper)."""
    parts: list[bytes] = []
    ends = [*starts.tolist()[1:], len(data)]
    for start, end, flags in zip(starts.tolist(), ends, sys_flag.tolist(), strict=True):
        if flags & BATCH == BATCH:
            parts += _records_of_batch(decode_record(data, start))
        else:
            parts.append(data[start:end])
    return b"".join(parts)


def _records_of_batch(batch: StoredMessage) -> list[bytes]:
    try:
        entries = decode_batch(decompress(batch.body, batch.sys_flag))
    except RemoteProtocolError as error:
        raise CorruptRecord(
            f"the batch at log offset {batch.log_offset} cannot be split: {error}"
        ) from error
    base = batch.properties.get(Property.INNER_BASE, str(batch.queue_offset))
    if not base.isascii() or not base.isdecimal():
        raise CorruptRecord(
            f"the batch at log offset {batch.log_offset} says that its first message is number "
            f"{base[:32]!r} of its queue; a whole number is expected. Repair the store, or read "
            "without it (where the source lets you choose offsets)"
        )
    first = int(base)
    flags = batch.sys_flag & ~(BATCH | SysFlag.COMPRESSED | SysFlag.COMPRESSION_MASK)
    found = []
    for index, (flag, body, properties) in enumerate(entries):
        batch.body, batch.flag, batch.sys_flag = body, flag, flags
        own = parse_properties(properties.decode("utf-8", "replace"))
        found.append(
            encode_record(
                batch,
                properties=encode_properties(own),
                queue_offset=first + index,
                log_offset=batch.log_offset,
                stored_ms=batch.stored_ms,
            )
        )
    return found

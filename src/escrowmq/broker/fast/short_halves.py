"""Halves that are no longer in memory, as raw bytes of the log: for the fast path, which puts the
messages of plain ones."""

from __future__ import annotations

from itertools import accumulate
from typing import Final
from zlib import crc32

from escrowmq.base.message import Property, Topic
from escrowmq.broker.sends.forbidden_to_senders import ODD_OF_HALF
from escrowmq.codec.layout import HEAD_V4, MAGIC_V1
from escrowmq.codec.record import topic_part
from escrowmq.codec.request_shapes import Properties
from escrowmq.store.commit_log import CommitLog
from escrowmq.txn.plain_halves import HALF_MARK, PlainHalf

_READ_SIZE: Final = 1_024
"""Bytes that are read at once: most halves are shorter."""

_PIECE_SIZE: Final = 2_048
"""Bytes that are read of each half where several are read together."""

_TOPIC: Final = topic_part(Topic.HALF)[1]
_PLACE: Final = (Property.REAL_TOPIC.encode(), Property.REAL_QID.encode())
_QUEUE_DIGITS_MAX: Final = 9


class ShortHalves:
    """Reads them."""

    def __init__(self, log: CommitLog, properties: Properties, store_host: bytes) -> None:
        self._log = log
        self._properties = properties
        self._store_host = store_host

    def read(self, *, queue_offset: int, log_offset: int, suffix: bytes) -> PlainHalf | None:
        """The half at a log offset where a pending one is. `suffix` is what the broker appended to
        its sender's properties. None when the general path must read it."""
        record = self._log.read(log_offset, _READ_SIZE)
        if len(record) < HEAD_V4.size:
            return None
        (
            size, magic, crc, queue_id, flag, own_queue_offset, own_log_offset, sys_flag, born_ms,
            born_host, stored_ms, store_host, reconsume_times, prepared, body_size,
        ) = HEAD_V4.fields.unpack_from(record)  # fmt: skip
        if size > len(record):
            record = self._log.read(log_offset, size)
        body_end = HEAD_V4.size + body_size
        properties_at = body_end + len(_TOPIC) + 2
        body, encoded = record[HEAD_V4.size : body_end], record[properties_at:size]
        if (
            magic != MAGIC_V1
            or own_log_offset != log_offset
            or own_queue_offset != queue_offset
            or queue_id
            or prepared
            or sys_flag & ODD_OF_HALF
            or store_host != self._store_host
            or not HEAD_V4.size < body_end < properties_at < size <= len(record)
            or record[body_end : properties_at - 2] != _TOPIC
            or int.from_bytes(record[properties_at - 2 : properties_at], "big") != len(encoded)
            or crc32(body) & 0x7FFFFFFF != crc
        ):
            return None
        # The last one is the broker's: the sender's properties come first and may look like it.
        at = encoded.rfind(HALF_MARK)
        sent_end = at - len(suffix)
        if sent_end <= 0 or encoded[sent_end:at] != suffix:
            return None
        found = self._properties.read(encoded[:sent_end])
        place = _place(encoded[at + len(HALF_MARK) :])
        if found is None or place is None:
            return None
        plan, fields = found
        key, topic, of_queue = place
        if (
            plan.is_half < 0
            or plan.group < 0
            or fields[plan.is_half].lower() != b"true"
            or fields[plan.key] != key
        ):
            return None
        return PlainHalf(
            queue_offset, log_offset, size, stored_ms, fields[plan.group].decode(), topic, of_queue,
            key, plan.keys_in(fields), encoded, body, plan.tags_code_in(fields), flag, sys_flag,
            born_ms, born_host, store_host, reconsume_times,
        )  # fmt: skip

    def bytes_of(self, log_offsets: list[int]) -> tuple[bytes, list[int]]:
        """Bytes of the log with the halves at these offsets, long ones possibly incomplete, and
        where each begins in them."""
        if len(log_offsets) == 1:
            return self._log.read(log_offsets[0], _PIECE_SIZE), [0]
        first = min(log_offsets)
        size = max(log_offsets) - first + _PIECE_SIZE
        if size <= _PIECE_SIZE * len(log_offsets):
            return self._log.read(first, size), [at - first for at in log_offsets]
        pieces = [self._log.read(at, _PIECE_SIZE) for at in log_offsets]
        ends = accumulate(map(len, pieces), initial=0)
        return b"".join(pieces), list(ends)[:-1]


def _place(encoded: bytes) -> tuple[bytes, str, int] | None:
    """The keys, topic and queue id in the properties at the end of a half."""
    key, _, rest = encoded.partition(b"\x02")
    fields = rest.replace(b"\x02", b"\x01").split(b"\x01")
    if len(fields) != 5 or (fields[0], fields[2]) != _PLACE or fields[4]:
        return None
    queue_id = fields[3]
    if not (queue_id.isdigit() and len(queue_id) <= _QUEUE_DIGITS_MAX):
        return None
    return key, fields[1].decode("ascii", "replace"), int(queue_id)
